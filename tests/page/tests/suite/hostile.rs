//! Rows, errors, reasons and names may contain anything.

use diesel::prelude::*;
use queueable::{Pause, Queueable};
use serde_json::Value;

use super::entities::{Payment, payments};
use super::served::{Served, ago, enqueue, fail, invoice};
use super::walk::walk;
use crate::browser::Browser;
use crate::db::NAME;

/// Texts that would do something on a page that trusts them.
const TEXTS: [&str; 14] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=\"alert(2)\">",
    "' autofocus onfocus='alert(3)' x='",
    "javascript:alert(4)",
    "<a href=\"javascript:alert(5)\">click</a>",
    "</td></tr></table></main><h1>Owned</h1>",
    "</script><svg onload=alert(6)>",
    "<style>* { display: none }</style>",
    "<!-- --!> <![CDATA[ ]]> {{7*7}} ${7*7} %3Cscript%3E",
    "&lt;b&gt; &amp; &#x3c;i&#x3e; &quot;",
    "\u{202e}gpj.exe\u{2066}\u{200b}\u{feff} \u{5e9}\u{5dc}\u{5d5}\u{5dd}",
    "👩‍👩‍👧‍👦 🏳️‍🌈 Z̷̧̛͔͈̪͚͐̓̈́̎ä̸́l̶g̵o̷ ﷽",
    "a\0b\u{1b}[31m\u{7}\r\n\tc\\",
    "😀",
];

/// These, and four long ones.
const ROWS: i64 = 18;

/// A text as the database takes it.
fn taken(text: &str) -> String {
    if NAME == "postgres" { text.replace('\0', "") } else { text.to_owned() }
}

/// The page of rows that contain all of that.
fn served() -> Served {
    let served = Served::new();
    let connection = &mut served.database.connect();
    let words = ["W".repeat(10_000), "\u{202e}".repeat(500), "🏳️‍🌈".repeat(1_000), "<b>".repeat(3_000)];
    let texts = TEXTS.iter().copied().chain(words.iter().map(String::as_str));
    for (id, text) in (1..=ROWS).zip(texts) {
        let text = taken(text);
        enqueue(connection, id, 3345, ago(9_000));
        let columns = (payments::customer.eq(&text), payments::note.eq(&text), payments::api_token.eq(&text));
        diesel::update(payments::table.find(id)).set(columns).execute(connection).expect("the row is there");
        if id % 3 != 0 {
            fail(connection, id, &text);
        }
        // A key has no control characters here, and at most 255.
        let key: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
        invoice(connection, &key, 1, "RENDER");
    }
    let line = TEXTS.join(" ").replace(|c: char| c.is_control(), "");
    let (reason, by) = (line.chars().take(900).collect::<String>(), line.chars().take(250).collect::<String>());
    Payment::pause(connection, Pause::new(&reason, &by)).expect("the reason is short enough");
    queueable::control::adopt_environment(connection, &by, &by, &reason).expect("the name is short enough");
    served
}

/// What is on the page that none of our own pages has, and cells that do not hold what is in them.
const STRANGE: &str = "
    const strange = [...document.querySelectorAll('img, iframe, object, base, style, [onload], [onerror], [onfocus], :not(dialog *)[autofocus], svg a')];
    strange.push(...[...document.querySelectorAll('a[href], form[action], button[formaction]')].filter(
        of => !/^https?:/.test(of.href ?? of.action ?? of.formAction)));
    const headings = document.querySelectorAll('h1').length, scripts = document.querySelectorAll('script').length;
    const leaks = [...document.querySelectorAll('td, th, dd, li, caption, h1, h2, label')].filter(
        of => of.clientWidth > 0 && of.scrollWidth > of.clientWidth + 1);
    return [
        ...strange.map(of => of.outerHTML.slice(0, 200)),
        ...headings === 1 ? [] : [`${headings} headings`],
        ...scripts === 1 ? [] : [`${scripts} scripts`],
        ...leaks.map(of => `${of.scrollWidth} of ${of.clientWidth} pixels: ${of.outerHTML.slice(0, 200)}`),
        ...document.documentElement.scrollWidth > document.documentElement.clientWidth ? ['the page is wider than its window'] : [],
    ];";

/// What is on the page that should not be, at the width that it has.
pub(super) fn strange(browser: &Browser) -> Vec<String> {
    let strange = browser.script(STRANGE);
    let strange = strange.as_array().cloned().unwrap_or_default();
    strange.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[test]
fn nothing_that_a_row_contains_runs_or_leaves_its_place() {
    let served = served();
    let browser = Browser::new();
    let mut found = Vec::new();
    let rows = (1..=ROWS).map(|id| served.address(&format!("/q/payments/row?key={id}")));
    let from: Vec<_> = [served.address("")].into_iter().chain(rows).collect();
    let visited = walk(&browser, &from, 3, |address| {
        for width in [1280, 360] {
            browser.resize(width, 900, 1);
            found.extend(strange(&browser).iter().map(|strange| format!("{address} at {width} pixels: {strange}")));
        }
        assert_eq!(browser.dialog(), None, "{address}");
        found.extend(browser.complaints());
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(visited > 20, "{visited}");
}
