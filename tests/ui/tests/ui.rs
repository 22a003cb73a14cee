//! Every mistake is one error, at the guilty token, that says what is accepted.

#[test]
fn every_mistake_is_named_where_it_was_made() {
    let tests = trybuild::TestCases::new();
    for topic in ["console/wrong", "derive", "entity", "features", "handlers", "operations"] {
        tests.compile_fail(format!("{topic}/*.rs"));
    }
    tests.pass("console/*.rs");
}
