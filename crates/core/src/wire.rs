//! Little-endian fields, taken from bytes and put into them.

use smallvec::{Array, SmallVec};

use crate::DescriptorError;

/// Takes fields from the front of a descriptor. Nothing is allocated before its bytes are known to be there.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    limit: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            limit: bytes.len(),
        }
    }

    /// Bytes taken so far.
    pub(crate) fn position(&self) -> usize {
        self.limit.saturating_sub(self.rest.len())
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[cold]
    fn truncated(&self, field: &'static str, length: usize) -> DescriptorError {
        DescriptorError::Truncated {
            field,
            offset: self.position(),
            length,
            limit: self.limit,
        }
    }

    pub(crate) fn bytes(
        &mut self,
        field: &'static str,
        length: usize,
    ) -> Result<&'a [u8], DescriptorError> {
        let Some((taken, rest)) = self.rest.split_at_checked(length) else {
            return Err(self.truncated(field, length));
        };
        self.rest = rest;
        Ok(taken)
    }

    /// `N` bytes where they lie: a block that is there in full before its fields are read.
    pub(crate) fn block<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<&'a [u8; N], DescriptorError> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.truncated(field, N));
        };
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], DescriptorError> {
        self.block(field).copied()
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, DescriptorError> {
        self.array(field).map(|[byte]| byte)
    }

    /// A boolean byte: any non-zero value is true (S14).
    pub(crate) fn bool(&mut self, field: &'static str) -> Result<bool, DescriptorError> {
        self.u8(field).map(|byte| byte != 0)
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, DescriptorError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, DescriptorError> {
        self.array(field).map(u64::from_le_bytes)
    }

    pub(crate) fn f64(&mut self, field: &'static str) -> Result<f64, DescriptorError> {
        self.array(field).map(f64::from_le_bytes)
    }

    /// Whether the next `N` bytes, which are reserved, are zero.
    pub(crate) fn is_zero<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<bool, DescriptorError> {
        self.array(field).map(|bytes| bytes == [0; N])
    }

    fn words<const N: usize, A: Array>(
        &mut self,
        field: &'static str,
        count: usize,
        from_le_bytes: impl Fn([u8; N]) -> A::Item,
    ) -> Result<SmallVec<A>, DescriptorError> {
        let (words, _) = self.bytes(field, count.saturating_mul(N))?.as_chunks::<N>();
        Ok(words.iter().map(|&word| from_le_bytes(word)).collect())
    }

    pub(crate) fn u32s<A: Array<Item = u32>>(
        &mut self,
        field: &'static str,
        count: usize,
    ) -> Result<SmallVec<A>, DescriptorError> {
        self.words(field, count, u32::from_le_bytes)
    }

    pub(crate) fn u64s<A: Array<Item = u64>>(
        &mut self,
        field: &'static str,
        count: usize,
    ) -> Result<SmallVec<A>, DescriptorError> {
        self.words(field, count, u64::from_le_bytes)
    }

    pub(crate) fn i64s<A: Array<Item = i64>>(
        &mut self,
        field: &'static str,
        count: usize,
    ) -> Result<SmallVec<A>, DescriptorError> {
        self.words(field, count, i64::from_le_bytes)
    }
}

/// Puts fields into a space that is exactly as long as what is written.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    rest: &'a mut [u8],
}

impl<'a> Writer<'a> {
    pub(crate) fn new(space: &'a mut [u8]) -> Self {
        Self { rest: space }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let (space, rest) = std::mem::take(&mut self.rest)
            .split_at_mut_checked(bytes.len())
            .unwrap_or_default();
        debug_assert_eq!(space.len(), bytes.len(), "encoded_len was too small");
        if space.len() == bytes.len() {
            space.copy_from_slice(bytes);
        }
        self.rest = rest;
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn zeros<const N: usize>(&mut self) {
        self.bytes(&[0; N]);
    }

    pub(crate) fn u32s(&mut self, values: &[u32]) {
        for &value in values {
            self.u32(value);
        }
    }

    pub(crate) fn u64s(&mut self, values: &[u64]) {
        for &value in values {
            self.u64(value);
        }
    }

    pub(crate) fn i64s(&mut self, values: &[i64]) {
        for &value in values {
            self.bytes(&value.to_le_bytes());
        }
    }
}
