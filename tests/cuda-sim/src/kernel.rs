//! Modules and the launch of their kernels. The simulator runs the kernels of its own `kernels.ptx`, by name.

use std::ffi::{CStr, CString, c_char, c_uint, c_void};

use cudarc::driver::sys::{CUcontext, CUfunction, CUmodule, CUresult, CUstream};

use crate::checker::{Engine, Touch};
use crate::driver::Driver;
use crate::entry::{Call, In, Out, Outcome, ParamArray, entry};
use crate::queue::Work;

/// The source of the kernels.
pub(crate) const PTX: &str = include_str!("kernels.ptx");

/// A loaded module.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: CUcontext,
    /// Entry points that its source declares.
    entries: Vec<String>,
}

/// An entry point.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    module: CUmodule,
    kernel: Kernel,
}

/// A kernel that the simulator can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    Add,
    Delay,
}

/// A launch: a kernel with its parameters.
#[derive(Clone, Debug)]
pub(crate) struct KernelPlan {
    body: Body,
    /// It touches what it must not, and ends in an error of its context.
    faults: bool,
}

#[derive(Clone, Debug)]
enum Body {
    Add {
        target: u64,
        source: u64,
        len: u64,
        add: u8,
    },
    Delay,
}

impl KernelPlan {
    /// The same launch, to end in `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub(crate) fn faulting(self) -> Self {
        Self {
            faults: true,
            ..self
        }
    }

    fn touches(&self) -> Vec<Touch> {
        match self.body {
            Body::Add { len: 0, .. } | Body::Delay => Vec::new(),
            Body::Add {
                target,
                source,
                len,
                ..
            } => vec![
                Touch {
                    range: source..source.saturating_add(len),
                    write: false,
                    engine: Engine::Kernel,
                },
                Touch {
                    range: target..target.saturating_add(len),
                    write: true,
                    engine: Engine::Kernel,
                },
            ],
        }
    }
}

impl Kernel {
    fn named(name: &str) -> Option<Self> {
        match name {
            "hurray_sim_add" => Some(Self::Add),
            "hurray_sim_delay" => Some(Self::Delay),
            _ => None,
        }
    }
}

impl Driver {
    pub(crate) fn run_kernel(&mut self, plan: &KernelPlan, context: CUcontext) {
        if plan.faults {
            self.break_context(context, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
            return;
        }
        match plan.body {
            Body::Add {
                target,
                source,
                len,
                add,
            } => {
                let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
                self.memory.read(source..source + len, &mut bytes);
                for byte in &mut bytes {
                    *byte = byte.wrapping_add(add);
                }
                self.memory.write(target..target + len, &bytes);
            }
            Body::Delay => {}
        }
    }

    pub(crate) fn unload_module(&mut self, handle: CUmodule) {
        let functions: Vec<_> = self
            .functions
            .iter()
            .filter(|(_, function)| function.module == handle)
            .map(|(function, _)| function)
            .collect();
        for function in functions {
            let _ = self.functions.remove(function);
        }
        let _ = self.modules.remove(handle);
    }
}

/// The names after `.entry` in a module's source.
fn entries(source: &CStr) -> Vec<String> {
    let text = source.to_string_lossy();
    let names = text.split(".entry").skip(1).filter_map(|after| {
        after
            .trim_start()
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
    });
    names.map(str::to_owned).collect()
}

impl Call<'_> {
    fn load(&mut self, image: *const c_void) -> Result<CUmodule, CUresult> {
        let context = self.current_handle()?;
        self.refuse_unsafe_call()?;
        if image.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: an image that is PTX is text that ends in a null byte; other images are refused by their first bytes, which are read first.
        let source = unsafe { CStr::from_ptr(image.cast()) };
        if !source.to_bytes().windows(8).any(|text| text == b".version") {
            return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
        }
        let entries = entries(source);
        Ok(self.modules.insert(Module { context, entries }))
    }

    fn launch(
        &mut self,
        function: CUfunction,
        parameters: &In<*mut c_void>,
        extra: *mut c_void,
        stream: CUstream,
    ) -> Outcome {
        let stream = self.resolve(stream)?;
        let function = match self.functions.get(function) {
            Ok(function) => function.clone(),
            Err(misuse) => return Err(self.misused("function", function, misuse)),
        };
        let module = self.modules.get(function.module)?.context;
        // A kernel runs where its module is loaded.
        if module != self.stream(stream).context {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        if !extra.is_null() {
            return Err(self.not_modelled("a launch with packed parameters"));
        }
        let body = match function.kernel {
            Kernel::Delay => Body::Delay,
            Kernel::Add => Body::Add {
                target: parameter(parameters, 0)?,
                source: parameter(parameters, 1)?,
                len: parameter(parameters, 2)?,
                add: parameter::<u32>(parameters, 3)? as u8,
            },
        };
        let plan = KernelPlan {
            body,
            faults: false,
        };
        self.enqueue(stream, plan.touches(), Work::Kernel(plan))
            .map(drop)
    }
}

/// A kernel's parameter: the launch has an array of their addresses.
fn parameter<T: Copy>(parameters: &In<*mut c_void>, index: usize) -> Result<T, CUresult> {
    In::from_pointer(parameters.at(index)?.cast_const().cast()).get()
}

entry! {
    fn cuModuleLoadData(module: Out<CUmodule>, image: *const c_void) |call| {
        let handle = call.load(image)?;
        module.set(handle)
    }
    fn cuModuleUnload(hmod: CUmodule) |call| {
        if let Err(misuse) = call.modules.get(hmod) {
            return Err(call.misused("module", hmod, misuse));
        }
        call.unload_module(hmod);
        Ok(())
    }
    fn cuModuleGetFunction(hfunc: Out<CUfunction>, hmod: CUmodule, name: *const c_char) |call| {
        // SAFETY: the program passes a C string.
        let name = unsafe { CString::from(CStr::from_ptr(name)) };
        let name = name.to_string_lossy();
        let declared = match call.modules.get(hmod) {
            Ok(module) => module.entries.iter().any(|entry| *entry == name),
            Err(misuse) => return Err(call.misused("module", hmod, misuse)),
        };
        match Kernel::named(&name) {
            _ if !declared => Err(CUresult::CUDA_ERROR_NOT_FOUND),
            Some(kernel) => {
                let function = call.functions.insert(Function { module: hmod, kernel });
                hfunc.set(function)
            }
            None => Err(call.not_modelled(&format!("the kernel {name}"))),
        }
    }
    fn cuLaunchKernel(f: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream, kernelParams: ParamArray, extra: ParamArray) |call| {
        let _ = sharedMemBytes;
        let dimensions = [gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ];
        if dimensions.contains(&0) || blockDimX > 1024 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        call.launch(f, &In::from_pointer(kernelParams.0), extra.0.cast_mut().cast(), hStream)
    }
}
