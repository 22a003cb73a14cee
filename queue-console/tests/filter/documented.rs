//! The examples of the page on the language.

use crate::table::read;

const PAGE: &str = include_str!("../../docs/filter.md");

#[test]
fn the_examples_of_the_page_are_accepted() {
    let mut lines = PAGE.lines();
    let mut examples = 0;
    while lines.by_ref().any(|line| line == "```sql") {
        for line in lines.by_ref().take_while(|line| *line != "```") {
            read(line).unwrap_or_else(|refused| panic!("{refused}"));
            examples += 1;
        }
    }
    assert!(examples > 8, "{examples}");
}
