//! Circles of imports, and the arrows that close them.

use std::collections::BTreeMap;

use petgraph::algo::{is_cyclic_directed, tarjan_scc};
use petgraph::graphmap::DiGraphMap;

use crate::sources::{Import, Sources};

type Arrows = BTreeMap<(String, String), Vec<Import>>;

/// Every circle among the rooms and inside them, told with the arrows to take out.
pub(crate) fn circles(sources: &Sources) -> Vec<String> {
    let mut found = circles_in(&sources.between_rooms(), |names| format!("the rooms {names}"));
    let mut rooms: Vec<_> = sources.rooms().into_iter().collect();
    rooms.sort();
    for room in rooms {
        let told = |names: String| format!("in the room {room}, the files {names}");
        found.extend(circles_in(&sources.within(&room), told));
    }
    found
}

fn circles_in(arrows: &Arrows, told: impl Fn(String) -> String) -> Vec<String> {
    let graph = DiGraphMap::<&str, ()>::from_edges(arrows.keys().map(|(from, to)| (from.as_str(), to.as_str())));
    let mut found = Vec::new();
    for mut circle in tarjan_scc(&graph) {
        if circle.len() < 2 {
            continue;
        }
        circle.sort_unstable();
        let mut text = told(circle.join(", "));
        text.push_str(" import each other in a circle; taking out what follows opens it:");
        for (from, to) in few_arrows(arrows, &circle) {
            text.push_str(&format!("\n  {from} -> {to}"));
            for Import { file, line, path } in &arrows[&(from.clone(), to.clone())] {
                text.push_str(&format!("\n    {file}:{line}: crate::{}", path.join("::")));
            }
        }
        found.push(text);
    }
    found
}

/// Arrows whose removal opens a circle, and none of them too many: those that few lines draw are tried first.
fn few_arrows<'a>(arrows: &'a Arrows, circle: &[&str]) -> Vec<&'a (String, String)> {
    let is_inside = |(from, to): &&(String, String)| circle.contains(&from.as_str()) && circle.contains(&to.as_str());
    let mut left: Vec<_> = arrows.keys().filter(is_inside).collect();
    left.sort_by_key(|arrow| std::cmp::Reverse(arrows[*arrow].len()));
    let mut out = Vec::new();
    while has_circle(&left) {
        out.extend(left.pop());
    }
    while let Some(place) = (0..out.len()).rev().find(|place| !has_circle(&[&left[..], &[out[*place]]].concat())) {
        left.push(out.remove(place));
    }
    out
}

fn has_circle(arrows: &[&(String, String)]) -> bool {
    let graph = DiGraphMap::<&str, ()>::from_edges(arrows.iter().map(|(from, to)| (from.as_str(), to.as_str())));
    is_cyclic_directed(&graph)
}
