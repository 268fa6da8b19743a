//! Programs that must compile and programs that must not, with what rustc says about them.
//!
//! `TRYBUILD=overwrite cargo test -p stoat-ui-tests` writes the answers anew; the messages belong to the toolchain that
//! the workspace names.

#[test]
fn the_macros_accept_programs_and_explain_mistakes() {
    let cases = trybuild::TestCases::new();
    cases.pass("ui/*/pass/*.rs");
    cases.compile_fail("ui/*/fail/*.rs");
}
