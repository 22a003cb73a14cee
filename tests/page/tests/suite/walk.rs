//! All pages: those that links lead to, from the overview on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;
use url::Url;

use crate::browser::Browser;

/// Follows the links of the page from these addresses on, and calls `visit` on each page with its address; beside those addresses on
/// `enough` pages of one form, for example of rows. Returns how many there were.
pub(crate) fn walk(browser: &Browser, from: &[String], enough: usize, mut visit: impl FnMut(&str)) -> usize {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut known: BTreeSet<String> = from.iter().cloned().collect();
    let mut waiting: VecDeque<String> = from.iter().cloned().collect();
    let mut visited = 0;
    while let Some(address) = waiting.pop_front() {
        let of_form = seen.entry(form(&address)).or_default();
        if *of_form >= enough && !from.contains(&address) {
            continue;
        }
        *of_form += 1;
        visited += 1;
        browser.open(&address);
        for link in links(browser) {
            if link.starts_with(&from[0]) && !is_file(&link) && known.insert(link.clone()) {
                waiting.push_back(link);
            }
        }
        visit(&address);
    }
    visited
}

/// An address without what differs between pages of the same form: values of the query, and names of runs and of groups.
fn form(address: &str) -> String {
    let url = Url::parse(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    let is_name = |part: &str| part.len() >= 8 && part.chars().all(|c| c.is_ascii_hexdigit());
    let parts: Vec<_> = url.path().split('/').map(|part| if is_name(part) { "_" } else { part }).collect();
    // The search from which a person has come to a row makes no other page of it.
    let fields = url.query_pairs().filter(|(name, _)| !name.starts_with("s."));
    let names: BTreeSet<_> = fields
        .map(|(name, value)| match &*value {
            "postpone" | "priority" | "delete" => value.into_owned(),
            _ => name.into_owned(),
        })
        .collect();
    format!("{} {names:?}", parts.join("/"))
}

/// What a browser would save and not show.
fn is_file(address: &str) -> bool {
    let path = address.split('?').next().unwrap_or_default();
    path.ends_with(".csv") || path.ends_with(".json")
}

fn links(browser: &Browser) -> Vec<String> {
    let links = browser.script("return [...document.querySelectorAll('a[href]')].map(link => link.href.split('#')[0])");
    let links = links.as_array().cloned().unwrap_or_default();
    links.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}
