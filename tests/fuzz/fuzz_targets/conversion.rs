#![no_main]
#![allow(missing_docs, reason = "libFuzzer makes the program of it")]

use hurray_fuzz::{CONVERSION, libfuzzer};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|input: &[u8]| {
    let _ = (CONVERSION.read)(input);
});

fuzz_mutator!(|input: &mut [u8], len: usize, most: usize, seed: u32| {
    libfuzzer::mutate(&CONVERSION, input, len, most, seed)
});
