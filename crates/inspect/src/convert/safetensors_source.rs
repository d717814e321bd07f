use hurray_core::Layout;
use hurray_io::Value;
use safetensors::{Dtype, SafeTensors};

use super::ConvertError;
use super::refusal::Refusal;
use super::safetensors_type::element_type;
use super::source::{Bytes, Listed, Source, dense, zeroed};

/// A safetensors file. Its header is checked by the `safetensors` crate: sizes, types, and that the tensors' ranges fill the file without gap or
/// overlap.
#[derive(Debug)]
pub(crate) struct SafetensorsSource<'a> {
    metadata: Vec<(String, Value)>,
    listed: Vec<Listed>,
    /// The bytes of each listed tensor.
    data: Vec<(Dtype, &'a [u8])>,
}

impl<'a> SafetensorsSource<'a> {
    pub(crate) fn open(file: &'a [u8]) -> Result<Self, ConvertError> {
        let (header_len, header) = SafeTensors::read_metadata(file)?;
        let bytes = header_len
            .checked_add(8)
            .and_then(|start| file.get(start..))
            .unwrap_or_default();
        let mut metadata: Vec<(String, Value)> = header
            .metadata()
            .iter()
            .flatten()
            .map(|(key, value)| (key.clone(), Value::String(value.clone())))
            .collect();
        // The header's JSON object has no order that is kept.
        metadata.sort_by(|a, b| a.0.cmp(&b.0));
        let mut listed = Vec::new();
        let mut data = Vec::new();
        for name in header.offset_keys() {
            let Some(info) = header.info(&name) else {
                continue;
            };
            let shape: Vec<u64> = info.shape.iter().map(|&size| size as u64).collect();
            let descriptor = element_type(info.dtype)
                .and_then(|element_type| dense(element_type, shape, Layout::RowMajor))
                .ok_or_else(|| Refusal::ForeignType {
                    foreign: info.dtype.to_string(),
                });
            let (start, end) = info.data_offsets;
            // `read_metadata` has checked that the ranges lie in the file.
            data.push((info.dtype, bytes.get(start..end).unwrap_or_default()));
            listed.push(Listed {
                name,
                descriptor,
                note: (info.dtype == Dtype::BOOL)
                    .then(|| "bool, packed to one bit for each".into()),
            });
        }
        Ok(Self {
            metadata,
            listed,
            data,
        })
    }
}

impl<'a> Source<'a> for SafetensorsSource<'a> {
    fn metadata(&self) -> &[(String, Value)] {
        &self.metadata
    }

    fn notes(&self) -> &[String] {
        &[]
    }

    fn tensors(&self) -> &[Listed] {
        &self.listed
    }

    fn read(&self, number: usize) -> Result<Vec<Bytes<'a>>, ConvertError> {
        let Some(&(dtype, bytes)) = self.data.get(number) else {
            return Ok(Vec::new());
        };
        Ok(vec![if dtype == Dtype::BOOL {
            Bytes::Owned(packed(bytes)?)
        } else {
            Bytes::Borrowed(bytes)
        }])
    }
}

/// One bit for each byte, 1 for any but 0, from the lowest bit up.
pub(crate) fn packed(bools: &[u8]) -> Result<Vec<u8>, ConvertError> {
    let mut bits = zeroed(bools.len().div_ceil(8))?;
    for (byte, bools) in bits.iter_mut().zip(bools.chunks(8)) {
        for (bit, &bool) in bools.iter().enumerate() {
            *byte |= u8::from(bool != 0) << bit;
        }
    }
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use hurray_core::ElementType;

    use super::*;

    #[test]
    fn booleans_are_packed_from_the_lowest_bit() {
        assert_eq!(packed(&[1, 0, 255, 0, 0, 0, 0, 2, 1]).unwrap(), [0x85, 1]);
        assert!(packed(&[]).unwrap().is_empty());
    }

    #[test]
    fn every_pair_goes_both_ways() {
        for element_type in ElementType::named() {
            if let Some(dtype) = super::super::safetensors_type::dtype(element_type) {
                assert_eq!(super::element_type(dtype), Some(element_type));
                let bits = element_type.storage_width().unwrap().bits() as usize;
                assert_eq!(dtype.bitsize(), if bits == 1 { 8 } else { bits });
            }
        }
    }
}
