#![no_main]
#![allow(missing_docs, reason = "libFuzzer makes the program of it")]

use hurray_fuzz::{FILE, libfuzzer};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|input: &[u8]| {
    let _ = (FILE.read)(input);
});

fuzz_mutator!(|input: &mut [u8], len: usize, most: usize, seed: u32| {
    libfuzzer::mutate(&FILE, input, len, most, seed)
});
