//! Every mistake is one error, at the guilty token, that says what is accepted.

#[test]
fn every_mistake_is_named_where_it_was_made() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
