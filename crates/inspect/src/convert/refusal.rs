use hurray_core::ElementType;
use thiserror::Error;

use super::gguf::SUPPORTED;

/// Why a tensor cannot be taken over or written.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A type of a foreign format without a counterpart.
    #[error("there is no counterpart of its type {foreign}")]
    ForeignType {
        /// The type's name there.
        foreign: String,
    },
    /// A block type of ggml whose values the format's schemes do not have.
    #[error("its type {ggml} maps to no quantization scheme; those that do: {SUPPORTED}")]
    GgmlType {
        /// The type's name in ggml.
        ggml: String,
    },
    /// A member of an archive that is no array.
    #[error("it is no array: its name does not end in .npy")]
    NoArray,
    /// A type that safetensors has no name for.
    #[error("safetensors has no type for {element_type}; --split writes its buffers")]
    NoSafetensorsType {
        /// The type.
        element_type: ElementType,
    },
    /// Elements that do not fill whole bytes.
    #[error(
        "its {count} elements of {element_type} do not fill whole bytes, as safetensors asks for; --split writes its buffers"
    )]
    PartialByte {
        /// The type.
        element_type: ElementType,
        /// Elements.
        count: u64,
    },
    /// A layout other than row-major, column-major and strided.
    #[error(
        "safetensors holds row-major tensors, and its layout is {layout}; --split writes its buffers"
    )]
    Layout {
        /// The layout's name.
        layout: &'static str,
    },
    /// A quantized tensor.
    #[error("safetensors has no quantization, and it is quantized{}; --split writes codes and parameters apart", .scheme.map(|scheme| format!(" ({scheme})")).unwrap_or_default())]
    Quantized {
        /// The scheme's name, where it is known.
        scheme: Option<&'static str>,
    },
    /// The head of a composite.
    #[error("safetensors has no composites; --split writes its members apart")]
    Composite,
    /// A descriptor that the format does not allow.
    #[error(transparent)]
    Descriptor(#[from] hurray_core::Error),
}
