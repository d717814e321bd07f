//! Properties of the descriptor codec over random descriptors and damaged bytes.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

mod arbitrary;
#[allow(dead_code, reason = "each test reads its part of the vectors")]
mod vectors;

use std::sync::LazyLock;

use hurray_core::{DescriptorError, Error, TensorDescriptor};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// All golden descriptors that decode, and those that do not.
static GOLDEN: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    [
        "descriptors",
        "descriptors_malformed",
        "descriptors_lenient",
    ]
    .iter()
    .flat_map(|list| vectors::manifest(&format!("{list}.json"), "vectors"))
    .map(|vector| vectors::bytes(vectors::text(&vector, "file")))
    .collect()
});

/// What was decoded can be encoded, and decodes to the same.
fn relays(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok((descriptor, length)) = TensorDescriptor::decode(bytes) else {
        return Ok(());
    };
    prop_assert!(length <= bytes.len());
    let encoded = descriptor.encode();
    prop_assert!(encoded.is_ok(), "decoded but not encoded: {encoded:?}");
    let encoded = encoded.unwrap();
    prop_assert_eq!(encoded.len(), length);
    prop_assert_eq!(
        TensorDescriptor::decode(&encoded).unwrap(),
        (descriptor, length)
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn decode_of_encode_is_identity(descriptor in arbitrary::descriptor()) {
        let bytes = descriptor.encode().unwrap();
        prop_assert_eq!(descriptor.encoded_len().unwrap(), bytes.len());
        let (decoded, length) = TensorDescriptor::decode(&bytes).unwrap();
        prop_assert_eq!(length, bytes.len());
        prop_assert_eq!(decoded.encode().unwrap(), bytes);
        prop_assert_eq!(decoded, descriptor);
    }

    #[test]
    fn every_prefix_is_refused(descriptor in arbitrary::descriptor(), at in any::<Index>()) {
        let bytes = descriptor.encode().unwrap();
        prop_assert!(TensorDescriptor::decode(&bytes[..at.index(bytes.len())]).is_err());
    }

    #[test]
    fn changed_bytes_never_panic(
        golden in select(&**GOLDEN),
        changes in vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = golden;
        prop_assume!(!bytes.is_empty());
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        relays(&bytes)?;
    }

    #[test]
    fn changed_bytes_of_random_descriptors_never_panic(
        descriptor in arbitrary::descriptor(),
        changes in vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = descriptor.encode().unwrap();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        relays(&bytes)?;
    }

    #[test]
    fn cut_and_filled_bytes_never_panic(
        golden in select(&**GOLDEN),
        at in any::<Index>(),
        more in vec(any::<u8>(), 0..80),
    ) {
        let mut bytes = golden;
        bytes.truncate(at.index(bytes.len() + 1));
        bytes.extend(more);
        relays(&bytes)?;
        // A length that covers all of it takes the parser further.
        if bytes.len() >= 10 {
            let length = u32::try_from(bytes.len()).unwrap();
            bytes[6..10].copy_from_slice(&length.to_le_bytes());
            relays(&bytes)?;
        }
    }

    #[test]
    fn appending_keeps_what_was_there(descriptor in arbitrary::descriptor(), before in vec(any::<u8>(), 0..9)) {
        let mut bytes = before.clone();
        descriptor.encode_into(&mut bytes).unwrap();
        prop_assert_eq!(&bytes[..before.len()], &before);
        prop_assert_eq!(&bytes[before.len()..], descriptor.encode().unwrap());
    }

    #[test]
    fn a_space_of_another_length_is_refused(descriptor in arbitrary::descriptor(), room in 0..400_usize) {
        let required = descriptor.encoded_len().unwrap();
        prop_assume!(room != required);
        let mut space = vec![0xA5; room];
        let refusal = descriptor.encode_to_slice(&mut space);
        let expected = DescriptorError::Room { required, available: room };
        prop_assert_eq!(refusal, Err(Error::Descriptor(expected)));
        prop_assert!(space.iter().all(|&byte| byte == 0xA5));
    }

    #[test]
    fn scheme_of_section_of_scheme_is_identity(scheme in arbitrary::scheme()) {
        scheme.validate_parameters().unwrap();
        prop_assert_eq!(scheme.encode().scheme(), Ok(scheme));
    }

    #[test]
    fn sections_never_panic(bytes in vec(any::<u8>(), 0..40), tag in 0..7_u8, version in 0..3_u8) {
        let mut bytes = bytes;
        for (byte, value) in bytes.iter_mut().zip([tag, version, tag & 1, 0]) {
            *byte = value;
        }
        if let Ok(scheme) = hurray_core::QuantizationScheme::decode(&bytes) {
            prop_assert_eq!(scheme.encode().scheme(), Ok(scheme));
        }
    }
}
