//! `hurray.BlockPagedLayout`.

use hurray_core::{BlockPaged, IndexType, KvRole, Layout as Core};
use pyo3::PyClassInitializer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::{Layout, checked};
use crate::errors::OrRaise;
use crate::quantization;

/// Pages of tokens in a shared pool: a key-value cache. Tag 0x0A.
///
/// The tensor's shape is (tokens, heads, head_dim), and `paged_axis` is 0. `page_size` is in
/// tokens. `kv_role` is "key", "value" or "fused"; `layer_index` the transformer layer, None for
/// none; `block_table_index_type` "uint32" or "uint64". Buffers: the pool of
/// `num_pages` pages, the block table (page numbers, sequence after sequence), the `num_seqs` + 1
/// sequence pointers into it. Raises ValueError for another string.
#[pyclass(extends = Layout, frozen, module = "hurray")]
pub(super) struct BlockPagedLayout(pub(super) BlockPaged);

#[pymethods]
impl BlockPagedLayout {
    #[new]
    #[pyo3(signature = (page_size, num_pages, paged_axis, num_seqs, kv_role="key", layer_index=None, block_table_index_type="uint32"))]
    fn new(
        page_size: u32,
        num_pages: u64,
        paged_axis: u32,
        num_seqs: u32,
        kv_role: &str,
        layer_index: Option<u32>,
        block_table_index_type: &str,
    ) -> PyResult<PyClassInitializer<Self>> {
        let kv_role = match kv_role {
            "key" => KvRole::Key,
            "value" => KvRole::Value,
            "fused" => KvRole::Fused,
            other => {
                return Err(PyValueError::new_err(format!(
                    "kv_role is 'key', 'value' or 'fused', got '{other}'"
                )));
            }
        };
        let index_type = match block_table_index_type {
            "uint32" => IndexType::Uint32,
            "uint64" => IndexType::Uint64,
            other => {
                return Err(PyValueError::new_err(format!(
                    "block_table_index_type is 'uint32' or 'uint64', got '{other}'"
                )));
            }
        };
        let paged = BlockPaged {
            page_size,
            num_pages,
            paged_axis,
            num_seqs,
            kv_role,
            layer_index,
            index_type,
        };
        checked(Core::BlockPaged(paged), 3, Self(paged))
    }

    /// Tokens of a page.
    #[getter]
    fn page_size(&self) -> u32 {
        self.0.page_size
    }

    /// Pages of the pool.
    #[getter]
    fn num_pages(&self) -> u64 {
        self.0.num_pages
    }

    /// The dimension that is cut into pages.
    #[getter]
    fn paged_axis(&self) -> u32 {
        self.0.paged_axis
    }

    /// Sequences that share the pool.
    #[getter]
    fn num_seqs(&self) -> u32 {
        self.0.num_seqs
    }

    /// What the cache holds: "key", "value" or "fused".
    #[getter]
    fn kv_role(&self) -> &'static str {
        match self.0.kv_role {
            KvRole::Key => "key",
            KvRole::Value => "value",
            KvRole::Fused => "fused",
        }
    }

    /// The transformer layer, or None.
    #[getter]
    fn layer_index(&self) -> Option<u32> {
        self.0.layer_index
    }

    /// The type of block table and sequence pointers: "uint32" or "uint64".
    #[getter]
    fn block_table_index_type(&self) -> &'static str {
        match self.0.index_type {
            IndexType::Uint32 => "uint32",
            IndexType::Uint64 => "uint64",
        }
    }

    /// Checks the contents of the two index buffers, given as iterables of ints.
    ///
    /// `seq_ptr` has `num_seqs` + 1 entries, begins with 0, never decreases and ends with the
    /// length of `block_table`; every entry of `block_table` is below `num_pages`. Raises
    /// InvalidDescriptorError, with the first entry that is wrong.
    #[pyo3(signature = (seq_ptr, block_table))]
    fn validate_index_buffers(
        &self,
        seq_ptr: &Bound<'_, PyAny>,
        block_table: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.0
            .validate_indices(&numbers(seq_ptr)?, &numbers(block_table)?)
            .or_raise()
    }

    /// Checks that the cache can be quantized like this: not per channel along axis 0, and per
    /// block only with blocks that are the pages.
    ///
    /// Raises InvalidDescriptorError if not.
    #[pyo3(signature = (quantization))]
    fn validate_quantization_compatibility(&self, quantization: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0
            .validate_scheme(&quantization::argument(quantization)?)
            .or_raise()
    }

    fn __repr__(&self) -> String {
        let layer_index = match self.0.layer_index {
            Some(index) => index.to_string(),
            None => "None".to_owned(),
        };
        format!(
            "BlockPagedLayout(page_size={}, num_pages={}, paged_axis={}, num_seqs={}, kv_role='{}', \
             layer_index={layer_index}, block_table_index_type='{}')",
            self.0.page_size,
            self.0.num_pages,
            self.0.paged_axis,
            self.0.num_seqs,
            self.kv_role(),
            self.block_table_index_type()
        )
    }
}

fn numbers(iterable: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    iterable.try_iter()?.map(|item| item?.extract()).collect()
}
