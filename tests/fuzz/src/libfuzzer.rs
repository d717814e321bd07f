//! libFuzzer's side of a [`Target`].

use fastrand::Rng;

use crate::Target;

/// A custom mutator: changes the first `len` bytes of `input`, which may become `most`; gives how many they are.
pub fn mutate(target: &Target, input: &mut [u8], len: usize, most: usize, seed: u32) -> usize {
    let mut rng = Rng::with_seed(seed.into());
    let mut bytes = input[..len].to_vec();
    let mut plain = |bytes: &mut Vec<u8>| {
        let len = bytes.len().min(most);
        bytes.resize(most, 0);
        let len = libfuzzer_sys::fuzzer_mutate(bytes, len, most);
        bytes.truncate(len);
    };
    (target.mutate)(&mut bytes, &mut rng, &mut plain);
    bytes.truncate(most);
    input[..bytes.len()].copy_from_slice(&bytes);
    bytes.len()
}
