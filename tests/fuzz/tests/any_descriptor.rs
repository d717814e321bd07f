//! Descriptors that no vector has, changed like those that one has.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

#[path = "../../../crates/core/tests/arbitrary/mod.rs"]
mod arbitrary;

use fastrand::Rng;
use hurray_fuzz::{CAPSULE, DESCRIPTOR, STREAM, scramble};
use proptest::collection::vec;
use proptest::prelude::*;

/// Words as index buffers hold them: small ones, and a few that are not.
fn words() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![6 => 0..6_u64, 1 => any::<u64>()];
    vec(word, 0..40).prop_map(|words| words.into_iter().flat_map(u64::to_le_bytes).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn is_followed_safely(
        descriptor in arbitrary::descriptor(),
        data in words(),
        changes in 0..3,
        seed: u64,
    ) {
        let mut bytes = descriptor.encode().unwrap();
        bytes.extend(data);
        let mut rng = Rng::with_seed(seed);
        for _ in 0..changes {
            let mut plain = rng.fork();
            (DESCRIPTOR.mutate)(&mut bytes, &mut rng, &mut |bytes| scramble(bytes, &mut plain));
        }
        for target in [DESCRIPTOR, CAPSULE, STREAM] {
            (target.read)(&bytes);
        }
    }
}
