//! What is refused, and the whole text of the answer.

use std::fmt::Write;

use crate::table::read;

const REFUSED: &[&str] = &[
    "",
    "   ",
    "companyid = 7",
    "stauts = 'FAILED'",
    "elephant = 7",
    "\"company_ID\" = 7",
    "company_id",
    "company_id = ",
    "company_id = 'abc'",
    "company_id = 2147483648",
    "tiny = -129",
    "visits = -1",
    "visits = 18446744073709551616",
    "company_id = 1.0",
    "company_id = true",
    "company_id = null",
    "company_id in (1, null)",
    "company_id in ()",
    "company_id in (1 2)",
    "company_id in 1",
    "company_id in (1",
    "company_id in (1, 'x')",
    "company_id between 1 or 3",
    "company_id not 3",
    "company_id = id",
    "company_id == 3",
    "3 = company_id",
    "payments.company_id = 3",
    "company_id = 1 company_id = 2",
    "company_id = 1 and",
    "company_id = 1 or or company_id = 2",
    "and company_id = 1",
    "(company_id = 1",
    "company_id = 1)",
    "company_id = 1; DROP TABLE payments",
    "company_id = 1 -- and more",
    "company_id = 1 /* and more */",
    "pg_sleep(10)",
    "status(1)",
    "name = FAILED",
    "name = \"FAILED\"",
    "name = 'open",
    "name = ‘curly’",
    "name = 'null\0byte'",
    "\"name = 3",
    "name = 7",
    "name like 7",
    "name like 'a\\'",
    "name is 3",
    "name ! = 'a'",
    "name = 'a' && name = 'b'",
    "name = 'a' || 'b'",
    "status = 'FAILD'",
    "status = 'failed'",
    "status in ('FAILED', 'elephant')",
    "is_paid > true",
    "is_paid = 1",
    "is_paid like 't%'",
    "hash like 'a%'",
    "hash = x'0'",
    "hash = x'zz'",
    "hash = 'abc'",
    "details = '{}'",
    "kind > 'card'",
    "kind = 7",
    "address between '10.0.0.1/32' and '10.0.0.2/32'",
    "ratio = 1e999",
    "ratio = 'much'",
    "amount = 1e3",
    "amount = 0.0000000000000000000000000000001",
    "booked_on = '2026-02-30'",
    "booked_on = 3",
    "opens_at = '25:00'",
    "opens_at = now()",
    "created = 'yesterday'",
    "created = '12026-01-01'",
    "created > now() - 2 h",
    "created > now() - 2q",
    "created > now() - 99999999999999999999d",
    "created > now() - 9000y",
    "created > now()) - 2h",
    "created > now(3)",
    "created > now - 2h",
    "created > 2h",
    "reference = 'abc'",
    "not",
    "like = 'a'",
    "name = 'schön und gut' and größe = 3",
    "name = '漢字' and elephant = 3",
    "name = 'a\u{202e}b\u{1b}[31m\n' and elephant = 3",
    "name = '123456789 123456789 123456789 123456789 123456789 123456789 123456789 ' and elephant = 3 \
     and name = '123456789 123456789 123456789 123456789 123456789 123456789 123456789 '",
];

#[test]
fn each_refusal_shows_the_place_and_says_what_is_accepted() {
    let mut seen = String::new();
    for text in REFUSED {
        let refused = read(text).expect_err(text);
        assert!(text.get(refused.span.clone()).is_some(), "{refused:?}");
        writeln!(seen, "{refused}\n").unwrap();
    }
    insta::assert_snapshot!(seen);
}

#[test]
fn a_status_in_double_quotes_is_taken_as_it_is() {
    for (text, means) in [
        ("status = \"failed\"", "status = 'failed'"),
        ("status not in (\"O'Brien\", \"\", 'FAILED')", "status not in ('O''Brien', '', 'FAILED')"),
        ("status <> \"company_id\"", "status <> 'company_id'"),
    ] {
        assert_eq!(read(text).unwrap().to_string(), means);
    }
    assert!(read("status = \"null\0byte\"").is_err());
}

#[test]
fn no_text_is_too_large_or_too_deep_for_an_answer() {
    let of = |text: String| read(&text).map(drop).map_err(|refused| refused.message);
    let refusal = |message: &str| Err(message.to_owned());
    let parentheses = |n: usize| "(".repeat(n) + "id = 1" + &")".repeat(n);
    assert_eq!(of(parentheses(63)), Ok(()));
    assert_eq!(of(parentheses(64)), refusal("conditions stand inside each other at most 64 deep"));
    assert_eq!(of("(".repeat(60_000)), refusal("conditions stand inside each other at most 64 deep"));
    assert_eq!(of("not ".repeat(16_000)), refusal("conditions stand inside each other at most 64 deep"));
    assert_eq!(of("not ".repeat(63) + "id = 1"), Ok(()));
    assert_eq!(of(format!("id in ({}1)", "1,".repeat(9_999))), Ok(()));
    assert_eq!(of(format!("id in ({}1)", "1,".repeat(10_000))), refusal("a list has at most 10000 values"));
    assert_eq!(of("id=1".to_owned() + &" or id=1".repeat(499)), Ok(()));
    assert_eq!(of("id=1".to_owned() + &" or id=1".repeat(500)), refusal("a condition has at most 500 comparisons"));
    let long = "x".repeat(65_537);
    assert_eq!(of(long), refusal("a condition has at most 65536 bytes, and this one 65537"));
}
