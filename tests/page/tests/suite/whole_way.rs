//! The whole way of a person who finds failed rows, sees why, retries them, watches them succeed, and pauses the queue.

use fantoccini::key::Key;
use queueable::Status;

use super::served::{FAILED, Served};
use crate::browser::{Browser, By};

/// How a person uses a browser.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Hand {
    Mouse,
    Keyboard,
}

struct Person {
    browser: Browser,
    hand: Hand,
}

impl Person {
    fn follow(&self, link: &str) {
        match self.hand {
            Hand::Mouse => self.browser.click(By::Link(link)),
            Hand::Keyboard => self.enter("link", link),
        }
    }

    fn press(&self, button: &str) {
        match self.hand {
            Hand::Mouse => self.browser.click(By::Button(button)),
            Hand::Keyboard => self.enter("button", button),
        }
    }

    fn enter(&self, role: &str, name: &str) {
        self.browser.tab_to(role, name);
        self.browser.press(Key::Enter);
    }

    fn write(&self, field: &str, text: &str) {
        match self.hand {
            Hand::Mouse => self.browser.fill(By::Field(field), text),
            Hand::Keyboard => {
                self.browser.tab_to("textbox", field);
                self.browser.write(text);
            }
        }
    }

    fn choose(&self, field: &str, option: &str) {
        match self.hand {
            Hand::Mouse => self.browser.choose(By::Field(field), option),
            Hand::Keyboard => {
                self.browser.tab_to("combobox", field);
                // Not by its letters: those that come a second apart begin a word anew.
                let chosen = || self.browser.script("return document.activeElement.selectedOptions[0].label");
                let is_chosen = (0..20).any(|_| {
                    chosen() == option || {
                        self.browser.press(Key::Down);
                        false
                    }
                });
                assert!(is_chosen, "no {option:?} in {field}: {}", chosen());
            }
        }
    }
}

pub(super) fn go_the_whole_way(browser: Browser, hand: Hand) {
    let served = Served::filled();
    let person = Person { browser, hand };
    let browser = &person.browser;

    // Finds the failed payments of the company.
    browser.open(&served.address(""));
    browser.see("Overview");
    person.follow("payments");
    person.write("Condition", "company_id = 3345");
    person.choose("State", "failed");
    person.press("Search");
    browser.see("20 rows");
    let search = browser.address();
    assert!(search.contains("where=company_id") && search.contains("state=failed"), "{search}");

    // Sees why.
    person.follow("11");
    browser.see("card declined for order 11");
    person.follow("Errors");
    person.follow("card declined for order <number>");
    browser.see("What these rows have in common");
    browser.see("company_id = 3345");

    // Retries the group.
    let poller = served.pay();
    person.follow("Retry this group …");
    browser.see("card declined");
    person.write("Why", "ticket 812");
    person.press("Retry now: 20 rows");
    browser.await_text("20 rows changed.");
    browser.reload();
    browser.see("20 rows changed.");
    browser.see("ticket 812");

    // Watches them succeed.
    browser.open(&search.replace("state=failed", "state=finished"));
    browser.await_text("20 rows");
    assert!({ FAILED }.all(|id| served.status(id) == Status::Success));
    assert_eq!(served.status(9), Status::Failed);
    drop(poller);

    // Pauses the queue, and sees who has.
    person.follow("Pauses and limits");
    person.choose("Queue", "payments");
    person.write("Why", "the bank is down");
    person.press("Pause");
    browser.see("It is paused.");
    person.follow("Overview");
    browser.see("by ops: the bank is down");
    person.follow("Audit");
    browser.see("the bank is down");
    browser.see("ticket 812");
    assert_eq!(browser.text_of(By::Css("tbody tr:first-child td:nth-child(2)")), "ops");
    browser.assert_quiet("the whole way");
}

#[test]
fn a_person_finds_failed_payments_and_retries_them() {
    go_the_whole_way(Browser::new(), Hand::Mouse);
}
