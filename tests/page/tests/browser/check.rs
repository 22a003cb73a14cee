//! Whether people can use a page: who do not see well, who use no mouse, who have a small screen.

use std::fmt::Write;

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

const HEIGHT: u32 = 800;

impl Browser {
    /// Asserts that nothing on the page keeps people from using it, in light and dark, on a small screen and enlarged, that it never
    /// has to be scrolled sideways, and that the browser does not complain.
    pub(crate) fn check(&self, what: &str) {
        let mut found = String::new();
        for sight in &SIGHTS {
            self.resize(sight.width, HEIGHT / sight.scale, sight.scale);
            self.darken(sight.dark);
            for finding in self.findings() {
                let _ = writeln!(found, "{}: {finding}", sight.name);
            }
            // The browser's own would be dark, and axe would take it for white.
            if self.script(HAS_BACKGROUND) != true {
                let _ = writeln!(found, "{}: no background", sight.name);
            }
            for wide in self.too_wide() {
                let _ = writeln!(found, "{}: wider than the window: {wide}", sight.name);
            }
        }
        self.chromium("Emulation.clearDeviceMetricsOverride", json!({}));
        self.darken(false);
        assert!(found.is_empty(), "{what} ({}):\n{found}", self.address());
        self.assert_quiet(what);
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

    /// What makes the document wider than its window, if it is.
    fn too_wide(&self) -> Vec<String> {
        let wide = self.script(TOO_WIDE);
        let wide = wide.as_array().cloned().unwrap_or_default();
        wide.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }
}

const RUN: &str = "
    const [tags, done] = arguments;
    axe.run(document, { runOnly: { type: 'tag', values: tags }, resultTypes: ['violations'] }).then(
        found => done(found.violations.flatMap(finding => finding.nodes.map(node => (
            { rule: finding.id, impact: node.impact, html: node.html, why: node.failureSummary })))),
        error => done(String(error)));";

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
