//! Our codec beside that of release 0.1.0: the same bytes from the same fields, and the same answer to any bytes, in what is accepted, in what
//! is made of it and in why the rest is refused. [`REFUSED_HERE_ONLY`] and [`NOT_BUILT_BY_THE_RELEASE`]
//! are all the differences there may be.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

extern crate ours as hurray_core;

#[path = "../../../crates/core/tests/arbitrary/mod.rs"]
mod arbitrary;
mod peer_of;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::LazyLock;

use ours::{DescriptorError, Error, QuantizationScheme, Statistics};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// What we refuse and the release may accept: the rule, and the decision or text behind it.
const REFUSED_HERE_ONLY: [(&str, &str); 6] = [
    ("S1", "decisions.md 1: major version 0 is refused"),
    (
        "S2",
        "decisions.md 1: a length past the data is truncation at any minor version",
    ),
    (
        "S12",
        "decisions.md 1: no dynamic dimension in a shard's parent; S13 falls under it",
    ),
    (
        "Q6",
        "quantization.md Q6: version 0 of a scheme does not exist",
    ),
    (
        "Q13",
        "quantization.md Q13: per-block too, a clear flag needs a zero-point buffer",
    ),
    (
        "Q14",
        "quantization.md Q14: per-block too, scales need a buffer",
    ),
];

/// The one error by which the release's constructors refuse what its decoder reads. decisions.md 1: S16 is kept, a relay repeats what it read.
const NOT_BUILT_BY_THE_RELEASE: &str = "ExtensionTypeFieldInvalid";

/// The release's error for each of our rules (descriptor.md section 12, quantization.md section 10).
fn release_error(rule: &str) -> &'static str {
    match rule {
        "R1" | "R5" | "R42" => "DescriptorTruncated",
        "R2" => "InvalidMagic",
        "R3" => "UnsupportedDescriptorVersion",
        "R4" => "DescriptorTooShort",
        "R6" => "ReservedDescriptorFlagBitsSet",
        "R7" => "InvalidTypeTag",
        "R8" => "ReservedTypeTag",
        "R9" => "UnknownTypeTag",
        "R10" => "RankExceedsMaximum",
        "R11" => "InvalidLayoutTag",
        "R12" => "ReservedLayoutTag",
        "R13" | "R33" | "R45" | "R50" | "R52" => "ReservedBytesNonZero",
        "R14" | "R15" | "R16" | "R17" | "R19" | "R20" | "R21" | "R22" | "R23" | "R29" | "R30"
        | "R57" | "R58" | "R59" => "InvalidLayout",
        "R18" => "SubpavingNestingTooDeep",
        "R24" => "ReservedCompositionRule",
        "R25" => "InvalidCompositionRule",
        "R26" => "PrivateCompositionRule",
        "R27" => "InvalidCombineOp",
        "R28" => "OpenCompositeReserved",
        "R31" => "ExtensionTypeFlagMismatch",
        "R32" => "EmptyBufferTable",
        "R34" => "ReservedDeviceTag",
        "R35" => "InvalidDeviceTag",
        "R36" | "R41" => "InvalidSyncMode",
        "R37" => "ReservedMemoryClass",
        "R38" => "InvalidMemoryClass",
        "R39" => "AlignmentNotPowerOfTwo",
        "R40" => "AlignmentBelowMinimum",
        "R43" => "ShardOutOfBounds",
        "R44" => "StatisticsReservedMaskBitsSet",
        "R46" | "R47" | "R48" | "R49" => "ExtensionTypePackingInvalid",
        "R51" => "InvalidMemberRole",
        "R53" => "DescriptorLengthMismatch",
        "R54" => "CompositeHeadHasBuffers",
        "R55" => "CompositeHeadHasByteOffset",
        "R56" => "CompositeHeadHasQuantization",
        "R60" => "InvalidQuantization",
        "Q1" | "Q7" => "QuantizationDescriptorTooShort",
        "Q2" => "InvalidQuantizationSchemeTag",
        "Q3" => "ReservedQuantizationSchemeTag",
        "Q4" => "PrivateQuantizationSchemeTag",
        "Q5" => "UnknownQuantizationSchemeTag",
        "Q6" => "UnsupportedSchemeVersion",
        "Q8" => "ReservedQuantizationFlagsBits",
        "Q11" => "InvalidBlockSize",
        "Q9" | "Q10" | "Q12" | "Q13" | "Q14" => "InvalidQuantization",
        other => panic!("{other} is no rule of the decoder"),
    }
}

/// The name of the release's error.
fn name(error: &peer::Error) -> String {
    let text = format!("{error:?}");
    text.chars()
        .take_while(char::is_ascii_alphanumeric)
        .collect()
}

/// Our rule; for a block-paged tensor's quantization, that of the section.
fn rule(error: &Error) -> &'static str {
    match error {
        Error::Descriptor(DescriptorError::PagedQuantization(error)) => error.rule(),
        error => error.rule(),
    }
}

fn refused_here_only(rule: &str) -> bool {
    REFUSED_HERE_ONLY.iter().any(|(listed, _)| *listed == rule)
}

fn same_refusal(rule: &str, theirs: &peer::Error) -> Result<(), TestCaseError> {
    // Where a rule of ours alone comes first, the release goes on to whatever it meets next.
    if !refused_here_only(rule) {
        prop_assert_eq!(release_error(rule), name(theirs), "{}", rule);
    }
    Ok(())
}

/// Both decoders give the same answer to `bytes`.
fn compare(bytes: &[u8]) -> Result<(), TestCaseError> {
    let theirs = peer::TensorDescriptor::decode(bytes);
    match (ours::TensorDescriptor::decode(bytes), theirs) {
        (Ok((mut ours, _)), Ok(theirs)) => {
            // decisions.md 10: we repeat what a later minor version appended, the release drops it.
            ours.skipped.clear();
            prop_assert_eq!(ours.encode().unwrap(), theirs.encode().unwrap());
        }
        (Err(ours), Err(theirs)) => same_refusal(rule(&ours), &theirs)?,
        (Err(ours), Ok(_)) => {
            prop_assert!(refused_here_only(rule(&ours)), "refused here: {ours}");
        }
        (Ok(_), Err(theirs)) => prop_assert!(false, "refused by the release: {theirs}"),
    }
    Ok(())
}

/// Both section decoders give the same answer to `section`.
fn compare_section(section: &[u8]) -> Result<(), TestCaseError> {
    let theirs = peer::QuantizationDescriptor::decode(section);
    match (QuantizationScheme::decode(section), theirs) {
        (Ok(ours), Ok((theirs, _))) => {
            let ours = ours.encode();
            prop_assert_eq!(ours.as_bytes(), theirs.encode_to_vec());
        }
        (Err(ours), Err(theirs)) => same_refusal(ours.rule(), &theirs)?,
        (Err(ours), Ok(_)) => {
            prop_assert!(refused_here_only(ours.rule()), "refused here: {ours}");
        }
        (Ok(_), Err(theirs)) => prop_assert!(false, "refused by the release: {theirs}"),
    }
    Ok(())
}

fn read(file: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../vectors");
    std::fs::read(folder.join(file)).unwrap()
}

fn manifest(file: &str, list: &str) -> Vec<serde_json::Value> {
    let mut manifest: serde_json::Value = serde_json::from_slice(&read(file)).unwrap();
    serde_json::from_value(manifest[list].take()).unwrap()
}

static GOLDEN: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let of = |folder: &'static str, list: &str| {
        manifest(&format!("{folder}{list}.json"), "vectors")
            .into_iter()
            .map(move |vector| read(&format!("{folder}{}", vector["file"].as_str().unwrap())))
    };
    of("", "descriptors")
        .chain(of("", "descriptors_malformed"))
        .chain(of("", "descriptors_lenient"))
        .chain(of("layouts/", "layouts"))
        .chain(of("layouts/", "layouts_malformed"))
        .collect()
});

fn bad_sections() -> Vec<Vec<u8>> {
    let hex = |text: &str| {
        let pairs = text.as_bytes().chunks(2);
        pairs
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    };
    manifest("quantization/manifest.json", "bad_sections")
        .iter()
        .map(|bad| hex(bad["section"].as_str().unwrap()))
        .collect()
}

#[test]
fn golden_files_get_the_same_answer() {
    assert!(GOLDEN.len() > 600);
    for bytes in &*GOLDEN {
        compare(bytes).unwrap();
    }
}

#[test]
fn bad_sections_get_the_same_answer() {
    for section in bad_sections() {
        compare_section(&section).unwrap();
    }
}

/// Statistics that can be built: what is not known is 0.
fn only_known(statistics: &Statistics) -> Option<Statistics> {
    let mut known = Statistics::default();
    if let Some(nnz) = statistics.nnz() {
        known = known.with_nnz(nnz);
    }
    if let Some(ratio) = statistics.sparsity_ratio() {
        known = known.with_sparsity_ratio(ratio.abs().fract()).ok()?;
    }
    if let (Some(min), Some(max), Some(abs_max)) = (
        statistics.value_min(),
        statistics.value_max(),
        statistics.value_abs_max(),
    ) {
        known = known.with_value_range(min, max, abs_max);
    }
    if let (Some(mean), Some(stddev)) = (statistics.value_mean(), statistics.value_stddev()) {
        known = known.with_moments(mean, stddev.abs()).ok()?;
    }
    if let (Some(n), Some(m)) = (statistics.nm_n(), statistics.nm_m()) {
        known = known.with_sparsity_pattern(n.min(m), m).ok()?;
    }
    if let (Some(nan), Some(inf)) = (statistics.has_nan(), statistics.has_inf()) {
        known = known.with_non_finite(nan, inf);
    }
    Some(known)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_same_fields_give_the_same_bytes(descriptor in arbitrary::descriptor()) {
        let mut descriptor = descriptor;
        descriptor.skipped.clear();
        descriptor.statistics = descriptor.statistics.as_ref().and_then(only_known);
        let bytes = descriptor.encode().unwrap();
        match peer_of::descriptor(&descriptor) {
            Ok(theirs) => {
                prop_assert_eq!(&theirs.encode().unwrap(), &bytes);
                let read = ours::TensorDescriptor::decode(&theirs.encode().unwrap());
                prop_assert_eq!(read, Ok((descriptor, bytes.len())));
                let read = peer::TensorDescriptor::decode(&bytes).unwrap();
                prop_assert_eq!(read.encode().unwrap(), bytes);
            }
            Err(error) => {
                prop_assert_eq!(name(&error), NOT_BUILT_BY_THE_RELEASE);
                // Its decoder takes the bytes all the same.
                compare(&bytes)?;
                prop_assert!(peer::TensorDescriptor::decode(&bytes).is_ok());
            }
        }
    }

    #[test]
    fn random_descriptors_get_the_same_answer(descriptor in arbitrary::descriptor()) {
        compare(&descriptor.encode().unwrap())?;
    }

    #[test]
    fn changed_descriptors_get_the_same_answer(
        descriptor in arbitrary::descriptor(),
        changes in vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = descriptor.encode().unwrap();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        compare(&bytes)?;
    }

    #[test]
    fn changed_golden_files_get_the_same_answer(
        golden in select(&**GOLDEN),
        changes in vec((any::<Index>(), prop_oneof![any::<u8>(), 0..5_u8, 0xFC..=0xFF_u8]), 1..4),
    ) {
        let mut bytes = golden;
        prop_assume!(!bytes.is_empty());
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        compare(&bytes)?;
    }

    #[test]
    fn cut_and_filled_golden_files_get_the_same_answer(
        golden in select(&**GOLDEN),
        at in any::<Index>(),
        more in vec(any::<u8>(), 0..40),
        sized in any::<bool>(),
    ) {
        let mut bytes = golden;
        bytes.truncate(at.index(bytes.len() + 1));
        bytes.extend(more);
        if sized && bytes.len() >= 10 {
            let length = u32::try_from(bytes.len()).unwrap();
            bytes[6..10].copy_from_slice(&length.to_le_bytes());
        }
        compare(&bytes)?;
    }

    #[test]
    fn the_same_scheme_gives_the_same_section(scheme in arbitrary::scheme()) {
        let theirs = peer_of::scheme(&scheme).unwrap();
        let section = scheme.encode();
        prop_assert_eq!(section.as_bytes(), theirs.encode_to_vec());
        compare_section(section.as_bytes())?;
    }

    #[test]
    fn changed_sections_get_the_same_answer(
        scheme in arbitrary::scheme(),
        changes in vec((any::<Index>(), prop_oneof![any::<u8>(), 0..4_u8, Just(0xFF)]), 0..5),
        cut in any::<Index>(),
        more in vec(any::<u8>(), 0..4),
    ) {
        let mut section = scheme.encode().as_bytes().to_vec();
        for (at, value) in changes {
            let at = at.index(section.len());
            section[at] = value;
        }
        compare_section(&section)?;
        section.extend(more);
        compare_section(&section)?;
        section.truncate(cut.index(section.len() + 1));
        compare_section(&section)?;
    }
}

/// Nothing is listed that the release refuses too.
#[test]
fn the_listed_differences_exist() {
    let descriptors = GOLDEN
        .iter()
        .filter(|bytes| peer::TensorDescriptor::decode(bytes).is_ok())
        .filter_map(|bytes| ours::TensorDescriptor::decode(bytes).err())
        .map(|error| rule(&error));
    let sections = bad_sections()
        .into_iter()
        .filter(|section| peer::QuantizationDescriptor::decode(section).is_ok())
        .filter_map(|section| QuantizationScheme::decode(&section).err())
        .map(|error| error.rule());
    let seen: BTreeSet<_> = descriptors.chain(sections).collect();
    let listed: BTreeSet<_> = REFUSED_HERE_ONLY.iter().map(|(rule, _)| *rule).collect();
    assert_eq!(seen, listed);
}
