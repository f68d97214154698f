//! Mistakes in a tool are compile errors that point at the word. They stand here and not with the other
//! tests of the attribute because this crate compiles in seconds.
//!
//! After a change on purpose, write the expected texts again:
//! `TRYBUILD=overwrite cargo test -p turnmill-macros`.

#[test]
fn mistakes_are_compile_errors_at_the_word() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
