#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let target = stoat_core::testing::fuzz::TARGETS.iter().find(|(name, _)| *name == "coordination");
    target.expect("the library has this target").1(bytes);
});
