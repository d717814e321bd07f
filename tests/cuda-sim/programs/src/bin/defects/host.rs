//! The host touches what it must not touch, or not yet.

use std::ffi::c_void;

use hurray_cuda_programs::cuda::{self, Result};
use hurray_cuda_programs::device::LEN;

use crate::Defect;
use crate::scene::Scene;

pub(crate) const DEFECTS: &[Defect] = &[
    (
        "the_host_reads_device_memory",
        "host-touch",
        the_host_reads_device_memory,
    ),
    (
        "the_host_reads_freed_memory",
        "use-after-free",
        the_host_reads_freed_memory,
    ),
    (
        "the_host_overwrites_an_upload",
        "host-touch",
        the_host_overwrites_an_upload,
    ),
    (
        "the_host_reads_a_download",
        "host-touch",
        the_host_reads_a_download,
    ),
    (
        "the_host_reads_what_a_kernel_writes",
        "host-touch",
        the_host_reads_what_a_kernel_writes,
    ),
    (
        "a_host_function_calls_the_driver",
        "host-function-call",
        a_host_function_calls_the_driver,
    ),
    (
        "a_forked_child_calls_the_driver",
        "forked-call",
        a_forked_child_calls_the_driver,
    ),
];

/// Reads a byte that the host shares with a device.
fn peek(pointer: *const u8) -> u8 {
    // SAFETY: mapped memory, or a fault that is what the program is there for.
    unsafe { pointer.read_volatile() }
}

/// Writes a byte that the host shares with a device.
fn poke(pointer: *mut u8, byte: u8) {
    // SAFETY: mapped memory, or a fault that is what the program is there for.
    unsafe { pointer.write_volatile(byte) };
}

fn the_host_reads_device_memory(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::fill(scene.a, 1, LEN, scene.first)?;
    cuda::synchronize_stream(scene.first)?;
    let byte = if broken {
        peek(std::ptr::with_exposed_provenance(scene.a as usize))
    } else {
        cuda::download_now(scene.a, 1)?[0]
    };
    assert_eq!(byte, 1);
    scene.close()
}

fn the_host_reads_freed_memory(broken: bool) -> Result {
    let scene = Scene::open()?;
    let host = cuda::alloc_host(LEN)?;
    poke(host, 1);
    if broken {
        cuda::free_host(host)?;
    }
    assert_eq!(peek(host), 1);
    cuda::free_host(host)?;
    scene.close()
}

fn the_host_overwrites_an_upload(broken: bool) -> Result {
    let scene = Scene::open()?;
    let host = cuda::alloc_host(LEN)?;
    cuda::upload(scene.a, host, LEN, scene.first)?;
    // Reading is harmless.
    let byte = peek(host);
    if !broken {
        cuda::synchronize_stream(scene.first)?;
    }
    poke(host, byte);
    cuda::synchronize()?;
    cuda::free_host(host)?;
    scene.close()
}

fn the_host_reads_a_download(broken: bool) -> Result {
    let scene = Scene::open()?;
    let host = cuda::alloc_host(LEN)?;
    cuda::download(host, scene.a, LEN / 2, scene.first)?;
    // The other half is the host's.
    poke(host.wrapping_add(LEN / 2), 1);
    if !broken {
        cuda::synchronize_stream(scene.first)?;
    }
    let _ = peek(host.wrapping_add(if broken { LEN / 2 } else { 0 }));
    let whole = cuda::alloc_host(LEN)?;
    cuda::download(whole, scene.a, LEN, scene.first)?;
    if !broken {
        cuda::synchronize_stream(scene.first)?;
    }
    let _ = peek(whole);
    cuda::synchronize()?;
    cuda::free_host(host)?;
    cuda::free_host(whole)?;
    scene.close()
}

fn the_host_reads_what_a_kernel_writes(broken: bool) -> Result {
    let scene = Scene::open()?;
    let memory = cuda::alloc_managed(LEN)?;
    cuda::add(scene.device.add, memory, scene.a, LEN, 1, scene.first)?;
    if !broken {
        cuda::synchronize_stream(scene.first)?;
    }
    let _ = peek(std::ptr::with_exposed_provenance(memory as usize));
    cuda::synchronize()?;
    cuda::free(memory)?;
    scene.close()
}

unsafe extern "C" fn call_the_driver(data: *mut c_void) {
    if !data.is_null() {
        assert!(cuda::synchronize().is_err());
    }
}

fn a_host_function_calls_the_driver(broken: bool) -> Result {
    let scene = Scene::open()?;
    let data = if broken {
        std::ptr::dangling_mut::<c_void>()
    } else {
        std::ptr::null_mut()
    };
    cuda::launch_host(scene.first, Some(call_the_driver), data)?;
    scene.close()
}

fn a_forked_child_calls_the_driver(broken: bool) -> Result {
    let scene = Scene::open()?;
    // SAFETY: the child calls the driver, which refuses, and nothing else but `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = i32::from(broken && cuda::alloc(LEN).is_ok());
        // SAFETY: ends the child without running its parent's exit handlers.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child, and the status has a place.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    scene.close()
}
