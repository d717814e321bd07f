//! Codes, scales and zero points that are tensors of their own, joined into one quantized tensor.

use std::collections::{HashMap, HashSet};

use half::{bf16, f16};
use hurray_core::{
    BlockAffine, ChannelAffine, ElementType, Layout, Mxfp, QuantizationScheme, ScaleType,
    TensorAffine, TensorDescriptor, element_count,
};
use hurray_io::{Value, stored_row};

use super::ConvertError;
use super::source::{Bytes, Listed, Source, dense, zeroed};

/// An input whose quantized parts are joined.
pub(crate) struct Joined<'a> {
    source: Box<dyn Source<'a> + 'a>,
    listed: Vec<Listed>,
    /// How each listed tensor is read.
    recipes: Vec<Recipe>,
}

#[derive(Clone, Debug)]
enum Recipe {
    /// As the input has it.
    Plain(usize),
    Joined {
        codes: usize,
        /// What every byte of the codes is exclusive-ored with: it turns codes that are stored with an offset into two's complement.
        flip: u8,
        parameters: Vec<Parameter>,
    },
}

/// A parameter buffer, one entry for each channel or block.
#[derive(Clone, Copy, Debug)]
struct Parameter {
    tensor: usize,
    to: Entry,
    /// Entries lie with the blocks last; these are the tensor's dimensions before the axis, along it, and after it.
    order: [usize; 3],
}

/// What an entry is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// As it is.
    Same,
    Float32,
    Int32,
}

/// The names that parts of a tensor have beside that of its codes.
const SCALES: [&str; 4] = ["_scale", "_scales", ".scale", ".scales"];
const ZERO_POINTS: [&str; 4] = ["_zero_point", "_zero_points", ".zero_point", ".zero_points"];
const WEIGHT: &str = ".weight";
const PACKED: &str = "_packed";
const BLOCKS: &str = "_blocks";
/// Elements of a block of `_blocks`: 16 bytes of pairs.
const MX_BLOCK: u64 = 32;

/// A tensor that was found for another.
type Found = Option<usize>;

/// Why parts stay apart.
enum Apart {
    /// They make no tensor.
    Unfit(String),
    /// They could not be read.
    Failed(ConvertError),
}

impl From<ConvertError> for Apart {
    fn from(error: ConvertError) -> Self {
        Self::Failed(error)
    }
}

/// Parameter buffers, and the scheme that names them.
type Parameters = (Vec<Parameter>, QuantizationScheme);

fn unfit<T>(reason: impl Into<String>) -> Result<T, Apart> {
    Err(Apart::Unfit(reason.into()))
}

/// Parts that make one tensor.
struct Parts {
    name: String,
    codes: usize,
    scales: usize,
    zero_points: Found,
    /// The tensor that states the shape of packed codes.
    shape: Found,
}

impl<'a> Joined<'a> {
    pub(crate) fn new(source: Box<dyn Source<'a> + 'a>) -> Result<Self, ConvertError> {
        let mut joined = HashMap::new();
        let mut apart = HashMap::new();
        let mut used = HashSet::new();
        let finder = Finder::new(&*source);
        for number in 0..source.tensors().len() {
            let parts = match finder.parts(number) {
                None => continue,
                Some(Ok(parts)) => parts,
                Some(Err(reason)) => {
                    apart.insert(number, reason.to_owned());
                    continue;
                }
            };
            match finder.join(&parts) {
                Ok((descriptor, scheme, recipe)) => {
                    used.extend([Some(parts.scales), parts.zero_points, parts.shape]);
                    let listed = Listed {
                        name: parts.name,
                        descriptor: Ok(descriptor),
                        note: Some(format!("joined, {scheme}").into()),
                    };
                    joined.insert(number, (listed, recipe));
                }
                Err(Apart::Unfit(reason)) => {
                    apart.insert(number, reason);
                }
                Err(Apart::Failed(error)) => return Err(error),
            }
        }
        let mut listed = Vec::new();
        let mut recipes = Vec::new();
        for (number, plain) in source.tensors().iter().enumerate() {
            if let Some((one, recipe)) = joined.remove(&number) {
                listed.push(one);
                recipes.push(recipe);
            } else if !used.contains(&Some(number)) {
                let reason = apart.get(&number);
                let reason = reason.map(|reason| format!("left apart: {reason}").into());
                listed.push(Listed {
                    name: plain.name.clone(),
                    descriptor: plain.descriptor.clone(),
                    note: reason.or_else(|| plain.note.clone()),
                });
                recipes.push(Recipe::Plain(number));
            }
        }
        Ok(Self {
            source,
            listed,
            recipes,
        })
    }
}

impl<'a> Source<'a> for Joined<'a> {
    fn metadata(&self) -> &[(String, Value)] {
        self.source.metadata()
    }

    fn notes(&self) -> &[String] {
        self.source.notes()
    }

    fn tensors(&self) -> &[Listed] {
        &self.listed
    }

    fn read(&self, number: usize) -> Result<Vec<Bytes<'a>>, ConvertError> {
        match self.recipes.get(number) {
            None => Ok(Vec::new()),
            Some(&Recipe::Plain(number)) => self.source.read(number),
            Some(Recipe::Joined {
                codes,
                flip,
                parameters,
            }) => {
                let mut buffers = self.source.read(*codes)?;
                if *flip != 0 {
                    for buffer in &mut buffers {
                        let mut flipped = zeroed(buffer.len())?;
                        for (to, from) in flipped.iter_mut().zip(buffer.iter()) {
                            *to = from ^ flip;
                        }
                        *buffer = Bytes::Owned(flipped);
                    }
                }
                for parameter in parameters {
                    buffers.push(parameter.read(&*self.source)?);
                }
                Ok(buffers)
            }
        }
    }
}

/// Finds what belongs together, by name.
struct Finder<'s, 'a> {
    source: &'s dyn Source<'a>,
    numbers: HashMap<&'s str, usize>,
}

impl<'s, 'a> Finder<'s, 'a> {
    fn new(source: &'s dyn Source<'a>) -> Self {
        let names = source.tensors().iter().enumerate();
        Self {
            source,
            numbers: names
                .filter(|(_, listed)| listed.descriptor.is_ok())
                .map(|(number, listed)| (listed.name.as_str(), number))
                .collect(),
        }
    }

    fn find(&self, base: &str, suffix: &str) -> Found {
        self.numbers
            .get(format!("{base}{suffix}").as_str())
            .copied()
    }

    /// The first that is there of `base` with one of `suffixes`, or of what stands before `.weight` with one that begins with a dot.
    fn beside(&self, base: &str, suffixes: &[&str]) -> Found {
        suffixes
            .iter()
            .find_map(|suffix| self.find(base, suffix))
            .or_else(|| {
                let owner = base.strip_suffix(WEIGHT)?;
                let mut dotted = suffixes.iter().filter(|suffix| suffix.starts_with('.'));
                dotted.find_map(|suffix| self.find(owner, suffix))
            })
    }

    /// The parts of which `codes` are the codes, if there are; why they stay apart where that is known from the names.
    fn parts(&self, codes: usize) -> Option<Result<Parts, &'static str>> {
        let name = self.source.tensors().get(codes)?.name.as_str();
        if let Some(owner) = name.strip_suffix(".qweight") {
            self.find(owner, ".scales")?;
            return Some(Err(
                "whether GPTQ's zero points are stored less one, and in which order AWQ packs, is in no tensor",
            ));
        }
        if self.find(name, "_scale_inv").is_some() {
            return Some(Err("its scales are for square blocks, which no scheme has"));
        }
        let packed = name
            .strip_suffix(PACKED)
            .and_then(|base| Some((base, self.find(base, "_shape")?)));
        let (base, suffixes, shape) = match (packed, name.strip_suffix(BLOCKS)) {
            (Some((base, shape)), _) => (base, &SCALES[..], Some(shape)),
            (None, Some(base)) => (base, &["_scales"][..], None),
            (None, None) => (name, &SCALES[..], None),
        };
        Some(Ok(Parts {
            name: base.to_owned(),
            codes,
            scales: self.beside(base, suffixes)?,
            zero_points: self.beside(base, &ZERO_POINTS),
            shape,
        }))
    }

    fn descriptor(&self, number: usize) -> Option<&'s TensorDescriptor> {
        self.source.tensors().get(number)?.descriptor.as_ref().ok()
    }

    /// The joined tensor, its scheme's name, and how it is read.
    fn join(&self, parts: &Parts) -> Result<(TensorDescriptor, &'static str, Recipe), Apart> {
        let (Some(codes), Some(scales)) =
            (self.descriptor(parts.codes), self.descriptor(parts.scales))
        else {
            return unfit("a part cannot be read");
        };
        if codes.quantization.is_some() || !codes.layout.is_dense() {
            return unfit("its codes are no plain dense tensor");
        }
        let (codes, flip) = self.codes(parts, codes)?;
        let zero_points = parts.zero_points.and_then(|number| self.descriptor(number));
        for parameter in [Some(scales), zero_points].into_iter().flatten() {
            if !matches!(parameter.layout, Layout::RowMajor) || parameter.quantization.is_some() {
                return unfit("its scales or zero points are not plain row-major");
            }
        }
        if zero_points.is_some_and(|zero_points| zero_points.shape != scales.shape) {
            return unfit("its zero points have another shape than its scales");
        }
        let (parameters, scheme) = self.scheme(parts, &codes, scales)?;
        let mut descriptor = codes;
        let count = scheme.parameter_count(&descriptor.shape, &descriptor.layout);
        let count = count.unwrap_or(u64::MAX);
        for parameter in &parameters {
            let width = match parameter.to {
                Entry::Same => scheme.scale_type().storage_width().map_or(8, |w| w.bits()) / 8,
                Entry::Float32 | Entry::Int32 => 4,
            };
            let bytes = count.saturating_mul(width.into());
            descriptor.buffers.push(stored_row(bytes));
        }
        descriptor.quantization = Some(scheme.encode());
        if let Err(error) = descriptor.validate() {
            return unfit(error.to_string());
        }
        let recipe = Recipe::Joined {
            codes: parts.codes,
            flip,
            parameters,
        };
        Ok((descriptor, scheme.name(), recipe))
    }

    /// The codes as elements, and what turns their bytes into them.
    fn codes(
        &self,
        parts: &Parts,
        codes: &TensorDescriptor,
    ) -> Result<(TensorDescriptor, u8), Apart> {
        let name = self.source.tensors().get(parts.codes);
        if name.is_some_and(|listed| listed.name.ends_with(BLOCKS)) {
            // [..., blocks, 16] bytes of two codes each.
            let shape = match codes.shape.split_last() {
                Some((&16, [outer @ .., blocks]))
                    if codes.element_type == ElementType::Uint8
                        && matches!(codes.layout, Layout::RowMajor) =>
                {
                    [outer, &[blocks.saturating_mul(MX_BLOCK)]].concat()
                }
                _ => return unfit("its blocks are not 16 bytes each"),
            };
            let codes = dense(ElementType::Float4E2m1, shape, Layout::RowMajor);
            return match codes {
                Some(codes) => Ok((codes, 0)),
                None => unfit("it is too large"),
            };
        }
        let Some(stated) = parts.shape else {
            return Ok((codes.clone(), 0));
        };
        let is_short = |shape: &&TensorDescriptor| shape.shape.as_slice() == [2];
        let shape: Vec<u64> = match self.descriptor(stated).filter(is_short) {
            Some(_) => self.integers(stated)?.unwrap_or_default(),
            None => Vec::new(),
        }
        .iter()
        .map(|&size| u64::try_from(size).unwrap_or(0))
        .collect();
        if parts.zero_points.is_some() {
            return unfit("its zero points are packed too, which is not read");
        }
        let (&[rows, words], &[stated_rows, columns]) = (&*codes.shape, &*shape) else {
            return unfit("its packed codes have no rows and columns");
        };
        // Codes are stored with half their range added: in two's complement, with their highest bit turned.
        let (element_type, flip) = match columns.checked_div(words) {
            Some(16) => (ElementType::Int2, 0xAA),
            Some(8) => (ElementType::Int4, 0x88),
            Some(4) => (ElementType::Int8, 0x80),
            _ => return unfit("its words do not hold 4, 8 or 16 codes each"),
        };
        if !columns.is_multiple_of(words) {
            return unfit("its rows end inside a word");
        }
        if codes.element_type != ElementType::Int32
            || rows != stated_rows
            || !matches!(codes.layout, Layout::RowMajor)
        {
            return unfit("its packed codes are no int32 rows");
        }
        let codes = dense(element_type, shape, Layout::RowMajor);
        match codes {
            Some(codes) => Ok((codes, flip)),
            None => unfit("it is too large"),
        }
    }

    /// The parameters' buffers and the scheme that names them.
    fn scheme(
        &self,
        parts: &Parts,
        codes: &TensorDescriptor,
        scales: &TensorDescriptor,
    ) -> Result<Parameters, Apart> {
        let is_float = matches!(
            scales.element_type,
            ElementType::Float16 | ElementType::Bfloat16 | ElementType::Float32
        );
        if codes.element_type.is_float() {
            let is_power = matches!(
                scales.element_type,
                ElementType::Float8E8m0 | ElementType::Uint8
            );
            if !is_power {
                return unfit(format!(
                    "no scheme has {} codes with {} scales",
                    codes.element_type, scales.element_type
                ));
            }
            return mxfp(parts, codes, scales);
        }
        if codes.element_type.integer_range().is_none() || !is_float {
            return unfit(format!(
                "no scheme has {} codes with {} scales",
                codes.element_type, scales.element_type
            ));
        }
        if let Some(zero_points) = parts.zero_points {
            let range = codes.element_type.integer_range();
            let Some(values) = self.integers(zero_points)? else {
                return unfit("its zero points are no integers");
            };
            let fits = |value: &i64| {
                range.is_some_and(|(lowest, highest)| {
                    *value >= lowest
                        && (*value < 0 || value.unsigned_abs() <= highest)
                        && i32::try_from(*value).is_ok()
                })
            };
            if !values.iter().all(fits) {
                return unfit("a zero point is outside the range of its codes");
            }
        }
        if element_count(&scales.shape) == Some(1) {
            return self.tensor_affine(parts);
        }
        let Some((axis, blocks)) = axis_of(&codes.shape, &scales.shape) else {
            return unfit(format!(
                "scales of shape {:?} are neither for the channels nor for the blocks of {:?}",
                scales.shape.as_slice(),
                codes.shape.as_slice()
            ));
        };
        let scale_buffer = 1;
        let zero_point_buffer = parts.zero_points.map(|_| 2);
        let number = u32::try_from(axis).unwrap_or(u32::MAX);
        let (order, to, scheme) = match blocks {
            None => {
                let scheme = QuantizationScheme::ChannelAffine(ChannelAffine {
                    axis: number,
                    scale_buffer,
                    zero_point_buffer,
                });
                ([1, 1, 1], Entry::Float32, scheme)
            }
            Some(block_size) => {
                let scheme = QuantizationScheme::BlockAffine(BlockAffine {
                    axis: number,
                    block_size,
                    scale_buffer,
                    zero_point_buffer,
                    scale_type: match scales.element_type {
                        ElementType::Float16 => ScaleType::Float16,
                        ElementType::Bfloat16 => ScaleType::Bfloat16,
                        _ => ScaleType::Float32,
                    },
                });
                (order(&scales.shape, axis), Entry::Same, scheme)
            }
        };
        let tensor = parts.scales;
        let mut parameters = vec![Parameter { tensor, to, order }];
        if let Some(tensor) = parts.zero_points {
            let to = Entry::Int32;
            parameters.push(Parameter { tensor, to, order });
        }
        Ok((parameters, scheme))
    }
    fn tensor_affine(&self, parts: &Parts) -> Result<Parameters, Apart> {
        let one = |tensor, to| {
            let order = [1, 1, 1];
            let parameter = Parameter { tensor, to, order };
            let bytes = parameter.read(self.source)?;
            Ok::<_, ConvertError>(bytes.first_chunk::<4>().copied().unwrap_or_default())
        };
        let scale = f32::from_le_bytes(one(parts.scales, Entry::Float32)?);
        let zero_point = match parts.zero_points {
            Some(number) => i32::from_le_bytes(one(number, Entry::Int32)?),
            None => 0,
        };
        let scheme = QuantizationScheme::TensorAffine(TensorAffine { scale, zero_point });
        match scheme.validate_parameters() {
            Ok(()) => Ok((Vec::new(), scheme)),
            Err(error) => unfit(error.to_string()),
        }
    }

    /// The values of an integer tensor.
    fn integers(&self, number: usize) -> Result<Option<Vec<i64>>, ConvertError> {
        let Some(descriptor) = self.descriptor(number) else {
            return Ok(None);
        };
        let element_type = descriptor.element_type;
        let buffers = self.source.read(number)?;
        let bytes = buffers.first().map_or(&[][..], |bytes| bytes);
        Ok(integers(bytes, element_type))
    }
}
fn mxfp(
    parts: &Parts,
    codes: &TensorDescriptor,
    scales: &TensorDescriptor,
) -> Result<Parameters, Apart> {
    let (Some((size, outer)), Some((blocks, scale_outer))) =
        (codes.shape.split_last(), scales.shape.split_last())
    else {
        return unfit("a scalar has no blocks");
    };
    let block_size = size
        .checked_div(*blocks)
        .filter(|_| size.is_multiple_of(*blocks) && outer == scale_outer);
    let Some(block_size) = block_size.and_then(|size| u32::try_from(size).ok()) else {
        return unfit("its scales are not for blocks of its last dimension");
    };
    let parameter = Parameter {
        tensor: parts.scales,
        to: Entry::Same,
        order: order(&scales.shape, outer.len()),
    };
    let scheme = QuantizationScheme::Mxfp(Mxfp {
        axis: outer.len() as u32,
        block_size,
        scale_buffer: 1,
    });
    Ok((vec![parameter], scheme))
}

/// The axis along which scales of shape `scales` change, and the elements of a block where they are for blocks.
///
/// For channels: one dimension as the codes have it, all others 1; or one dimension in all, which is that of axis 0. For blocks: all dimensions as
/// the codes have them but one, which divides theirs.
fn axis_of(codes: &[u64], scales: &[u64]) -> Option<(usize, Option<u32>)> {
    if let ([channels], [first, ..]) = (scales, codes)
        && channels == first
    {
        return Some((0, None));
    }
    if scales.len() != codes.len() {
        return None;
    }
    let pairs = || codes.iter().zip(scales);
    let mut wide = pairs().enumerate().filter(|(_, (_, scale))| **scale != 1);
    if let (Some((axis, (code, scale))), None) = (wide.next(), wide.next())
        && code == scale
    {
        return Some((axis, None));
    }
    let mut other = pairs()
        .enumerate()
        .filter(|(_, (code, scale))| code != scale);
    let (axis, (code, scale)) = other.next()?;
    if other.next().is_some() || *scale == 0 || !code.is_multiple_of(*scale) {
        return None;
    }
    let block_size = u32::try_from(code.checked_div(*scale)?).ok()?;
    block_size
        .is_power_of_two()
        .then_some((axis, Some(block_size)))
}

/// The entries of `shape` before, along and after `axis`. A tensor that was found has as many bytes.
fn order(shape: &[u64], axis: usize) -> [usize; 3] {
    let count = |shape: Option<&[u64]>| {
        element_count(shape.unwrap_or_default())
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(usize::MAX)
    };
    [
        count(shape.get(..axis)),
        shape.get(axis).map_or(1, |&size| size as usize),
        count(shape.get(axis.saturating_add(1)..)),
    ]
}

impl Parameter {
    fn read<'a>(&self, source: &dyn Source<'a>) -> Result<Bytes<'a>, ConvertError> {
        let listed = source.tensors().get(self.tensor);
        let element_type = listed
            .and_then(|listed| listed.descriptor.as_ref().ok())
            .map(|descriptor| descriptor.element_type);
        let mut buffers = source.read(self.tensor)?;
        let (Some(bytes), Some(element_type)) = (buffers.pop(), element_type) else {
            return Ok(Bytes::Borrowed(&[]));
        };
        let bytes = match self.to {
            Entry::Same => bytes,
            Entry::Float32 if element_type == ElementType::Float32 => bytes,
            Entry::Float32 => Bytes::Owned(widened(&bytes, element_type)),
            Entry::Int32 if element_type == ElementType::Int32 => bytes,
            Entry::Int32 => {
                let integers = integers(&bytes, element_type).unwrap_or_default();
                // They fit: the range of the codes was checked.
                let integers = integers.iter().map(|&n| i32::try_from(n).unwrap_or(0));
                Bytes::Owned(integers.flat_map(i32::to_le_bytes).collect())
            }
        };
        let [before, along, after] = self.order;
        if after <= 1 {
            return Ok(bytes);
        }
        let width = match self.to {
            Entry::Same => element_type.storage_width().map_or(1, |w| w.bits() / 8) as usize,
            Entry::Float32 | Entry::Int32 => 4,
        };
        let mut ordered = Vec::with_capacity(bytes.len());
        for outer in 0..before {
            for inner in 0..after {
                for block in 0..along {
                    let at = (outer * along + block) * after + inner;
                    ordered.extend(bytes.get(at * width..(at + 1) * width).unwrap_or_default());
                }
            }
        }
        Ok(Bytes::Owned(ordered))
    }
}

/// float16 or bfloat16, as float32: exact.
fn widened(bytes: &[u8], element_type: ElementType) -> Vec<u8> {
    let widen = |bytes: &[u8; 2]| match element_type {
        ElementType::Bfloat16 => bf16::from_le_bytes(*bytes).to_f32(),
        _ => f16::from_le_bytes(*bytes).to_f32(),
    };
    let floats = bytes.as_chunks::<2>().0.iter().map(widen);
    floats.flat_map(f32::to_le_bytes).collect()
}

/// Integers of up to 64 bits; `None` for another type, or one that does not fit.
fn integers(bytes: &[u8], element_type: ElementType) -> Option<Vec<i64>> {
    fn all<const N: usize>(bytes: &[u8], integer: impl Fn([u8; N]) -> i64) -> Vec<i64> {
        bytes.as_chunks().0.iter().map(|&n| integer(n)).collect()
    }
    Some(match element_type {
        ElementType::Int8 => all(bytes, |n| i8::from_le_bytes(n).into()),
        ElementType::Uint8 => all(bytes, |n| u8::from_le_bytes(n).into()),
        ElementType::Int16 => all(bytes, |n| i16::from_le_bytes(n).into()),
        ElementType::Uint16 => all(bytes, |n| u16::from_le_bytes(n).into()),
        ElementType::Int32 => all(bytes, |n| i32::from_le_bytes(n).into()),
        ElementType::Uint32 => all(bytes, |n| u32::from_le_bytes(n).into()),
        ElementType::Int64 => all(bytes, i64::from_le_bytes),
        _ => return None,
    })
}
