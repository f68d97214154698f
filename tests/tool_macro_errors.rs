//! Mistakes in a tool are compile errors that point at the word. After a change on purpose, write the
//! expected texts again with `TRYBUILD=overwrite cargo test --test tool_macro_errors`.

#[test]
fn mistakes_are_compile_errors_at_the_word() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
