//! Whether people can use a page: who do not see well, who use no mouse, who have a small screen.

use std::collections::BTreeMap;

use fantoccini::error::CmdError;
use serde_json::{Value, json};

use super::window::Browser;

const AXE: &str = include_str!("../../axe/axe.min.js");

/// The sets of axe's rules: levels A and AA, and what is good practice.
const RULES: [&str; 6] = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

/// A screen and its user's taste.
struct Sight {
    name: &'static str,
    width: u32,
    scale: u32,
    dark: bool,
}

const SIGHTS: [Sight; 4] = [
    Sight { name: "light", width: 1280, scale: 1, dark: false },
    Sight { name: "dark", width: 1280, scale: 1, dark: true },
    Sight { name: "360 pixels", width: 360, scale: 1, dark: false },
    // A window of 1,280 pixels at 200 %.
    Sight { name: "200 % and dark", width: 640, scale: 2, dark: true },
];

/// The fewest in which each light and each width is seen.
const SIGHTS_IN_BRIEF: [Sight; 2] = [
    Sight { name: "light", width: 1280, scale: 1, dark: false },
    Sight { name: "360 pixels and dark", width: 360, scale: 1, dark: true },
];

const HEIGHT: u32 = 800;

impl Browser {
    /// Asserts that a page has no faults.
    pub(crate) fn check(&self, what: &str) {
        let faults = self.faults();
        assert!(faults.is_empty(), "{what} ({}):\n{}", self.address(), faults.join("\n"));
    }

    /// What keeps people from using the page: in light and dark, on a small screen and enlarged; where it has to be scrolled sideways;
    /// and what the browser complains about.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.faults_in(&SIGHTS)
    }

    /// The same for very many pages: each light and each width once.
    pub(crate) fn faults_in_brief(&self) -> Vec<String> {
        self.faults_in(&SIGHTS_IN_BRIEF)
    }

    /// The same, on one screen.
    pub(crate) fn faults_at_a_glance(&self) -> Vec<String> {
        self.faults_in(&SIGHTS[..1])
    }

    fn faults_in(&self, sights: &[Sight]) -> Vec<String> {
        // The same fault is seen on several screens.
        let mut seen: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for sight in sights {
            self.resize(sight.width, HEIGHT / sight.scale, sight.scale);
            self.darken(sight.dark);
            for fault in [self.findings(), self.too_wide(), self.without_background()].concat() {
                seen.entry(fault).or_default().push(sight.name);
            }
        }
        let mut faults: Vec<_> =
            seen.into_iter().map(|(fault, sights)| format!("{}: {fault}", sights.join(", "))).collect();
        self.chromium("Emulation.clearDeviceMetricsOverride", json!({}));
        self.darken(false);
        faults.extend(self.complaints().into_iter().map(|line| format!("the console: {line}")));
        faults.extend(self.dialog().map(|text| format!("a dialog: {text}")));
        faults
    }

    /// What axe finds that is serious or critical: rule, place and advice.
    fn findings(&self) -> Vec<String> {
        let findings = self.ask(async {
            let client = self.client();
            if client.execute("return typeof axe", Vec::new()).await? != "object" {
                client.execute(AXE, Vec::new()).await?;
            }
            client.execute_async(RUN, vec![json!(RULES)]).await
        });
        let findings = findings.unwrap_or_else(|error: CmdError| panic!("axe does not run: {error}"));
        let findings = findings.as_array().unwrap_or_else(|| panic!("axe has failed: {findings}"));
        let grave =
            findings.iter().filter(|finding| matches!(finding["impact"].as_str(), Some("serious" | "critical")));
        let text = |value: &Value| value.as_str().unwrap_or_default().replace('\n', " ");
        grave
            .map(|finding| format!("{} {}: {}", text(&finding["rule"]), text(&finding["html"]), text(&finding["why"])))
            .collect()
    }

    /// A page that leaves its background to the browser: in the dark it would be black, and axe would take it for white.
    fn without_background(&self) -> Vec<String> {
        let has_background = self.script(HAS_BACKGROUND) == true;
        (!has_background).then(|| "no background".to_owned()).into_iter().collect()
    }

    /// What makes the document wider than its window, if it is.
    fn too_wide(&self) -> Vec<String> {
        let wide = self.script(TOO_WIDE);
        let wide = wide.as_array().cloned().unwrap_or_default();
        wide.iter().filter_map(Value::as_str).map(|wide| format!("wider than the window: {wide}")).collect()
    }
}

/// Runs axe as if a person pressed a mouse button meanwhile: the page's script then replaces no part of it, and axe speaks of no element
/// that is gone.
const RUN: &str = "
    const [tags, done] = arguments;
    document.dispatchEvent(new Event('pointerdown'));
    axe.run(document, { runOnly: { type: 'tag', values: tags }, resultTypes: ['violations'] }).then(
        found => done(found.violations.flatMap(finding => finding.nodes.map(node => (
            { rule: finding.id, impact: node.impact, html: node.html, why: node.failureSummary })))),
        error => done(String(error))).finally(() => window.dispatchEvent(new Event('pointerup')));";

const HAS_BACKGROUND: &str = "
    return [document.documentElement, document.body].some(element => getComputedStyle(element).backgroundColor !== 'rgba(0, 0, 0, 0)');";

const TOO_WIDE: &str = "
    const root = document.documentElement;
    if (root.scrollWidth <= root.clientWidth) return [];
    const wide = [...document.querySelectorAll('body *')].filter(element => {
        const box = element.getBoundingClientRect();
        return box.width > 0 && box.right + scrollX > root.clientWidth + 1;
    });
    return [`${root.scrollWidth} of ${root.clientWidth} pixels`, ...wide.slice(0, 8).map(element => element.outerHTML.slice(0, 200))];";
