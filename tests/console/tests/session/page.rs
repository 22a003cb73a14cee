//! A page of the documentation, and the blocks in it that are sessions.

use std::fmt;

/// Names the session of the block that follows.
const NAMED: &str = "<!-- session: ";

/// A page: what is no session, and what is.
pub(crate) struct Page {
    parts: Vec<Part>,
}

enum Part {
    Line(String),
    Session(Block),
}

/// A block: commands, with what they have answered.
#[derive(Clone)]
pub(crate) struct Block {
    session: String,
    lines: Vec<String>,
}

impl Page {
    /// Reads a page.
    ///
    /// # Panics
    ///
    /// If a name stands over no block of the kind `console`, or if a block has no name.
    pub(crate) fn parse(text: &str) -> Self {
        let (mut parts, mut lines) = (Vec::new(), text.lines());
        let mut named = None;
        while let Some(line) = lines.next() {
            parts.push(Part::Line(line.to_owned()));
            if line == "```console" {
                let session = named.take().unwrap_or_else(|| panic!("a block has no `{NAMED}..`"));
                let lines = lines.by_ref().take_while(|line| *line != "```").map(str::to_owned).collect();
                parts.push(Part::Session(Block { session, lines }));
                parts.push(Part::Line("```".to_owned()));
            }
            if let Some(name) = line.strip_prefix(NAMED).and_then(|rest| rest.strip_suffix(" -->")) {
                named = Some(name.to_owned());
            } else if !line.is_empty() {
                assert!(named.is_none(), "a block of the kind `console` has to follow: {line}");
            }
        }
        Page { parts }
    }

    /// The names of the sessions, in their order.
    pub(crate) fn sessions(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for part in &self.parts {
            match part {
                Part::Session(block) if !names.contains(&block.session) => names.push(block.session.clone()),
                _ => {}
            }
        }
        names
    }

    /// The blocks of a session.
    pub(crate) fn blocks(&self, session: &str) -> Vec<Block> {
        let block = |part: &Part| match part {
            Part::Session(block) if block.session == session => Some(block.clone()),
            _ => None,
        };
        self.parts.iter().filter_map(block).collect()
    }

    /// Puts other texts into the blocks of a session.
    pub(crate) fn renew(&mut self, session: &str, texts: Vec<String>) {
        let mut texts = texts.into_iter();
        for part in &mut self.parts {
            match part {
                Part::Session(block) if block.session == session => {
                    let text = texts.next().expect("there is a text for each block");
                    block.lines = text.lines().map(str::to_owned).collect();
                }
                _ => {}
            }
        }
    }
}

impl Block {
    /// The commands, each with the lines that continue it.
    pub(crate) fn commands(&self) -> Vec<String> {
        let mut commands: Vec<String> = Vec::new();
        let mut goes_on = false;
        for line in &self.lines {
            match line.strip_prefix("$ ") {
                Some(command) => commands.push(command.to_owned()),
                None if goes_on => {
                    let command = commands.last_mut().expect("a line that continues one has one before it");
                    *command += &format!("\n{line}");
                }
                None => continue,
            }
            goes_on = line.ends_with('\\');
        }
        commands
    }

    pub(crate) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Line(line) => writeln!(f, "{line}"),
            Part::Session(block) => f.write_str(&block.text()),
        })
    }
}
