//! The terminal, which is given back on every end: a key, an error, a panic, a signal.

use std::io::{self, IsTerminal, Stdout, Write, stdout};
use std::panic;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, ThreadId};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::style::force_color_output;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, queue};

use crate::cli::Global;
use crate::failure::{Answer, Failure};

/// Who draws on the terminal, as long as it has to be given back.
static TAKEN_BY: Mutex<Option<ThreadId>> = Mutex::new(None);

/// The whole terminal.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    pub(super) fn take() -> io::Result<Self> {
        give_back_on_panic();
        // From here on, so that what fails halfway is undone.
        let screen = Screen { terminal: terminal()? };
        enter()?;
        Ok(screen)
    }

    /// Takes the terminal again after somebody else had it.
    pub(super) fn retake(&mut self) -> io::Result<()> {
        enter()?;
        self.clear()
    }

    /// Forgets what the terminal shows: all of it is drawn next. `Terminal::clear` would ask the terminal where its cursor is, which
    /// not every one answers.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.terminal = terminal()?;
        execute!(stdout(), Clear(ClearType::All))
    }
}

fn terminal() -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    Terminal::new(CrosstermBackend::new(stdout()))
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter() -> io::Result<()> {
    *taken_by() = Some(thread::current().id());
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Hide)
}

/// Makes the terminal what it was. What cannot be written cannot be mended either.
pub(super) fn give_back() {
    if taken_by().take().is_none() {
        return;
    }
    let mut out = stdout();
    let _ = queue!(out, LeaveAlternateScreen, Show);
    let _ = out.flush();
    let _ = disable_raw_mode();
}

fn taken_by() -> MutexGuard<'static, Option<ThreadId>> {
    TAKEN_BY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The message of a panic would be gone with the screen. A panic of another thread does not end the screen.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            if *taken_by() == Some(thread::current().id()) {
                give_back();
            }
            before(panicked);
        }));
    });
}

/// Refuses to draw where nobody can see it.
pub(super) fn check(global: &Global) -> Answer {
    if global.json {
        return Err(Failure::Usage("`top` is for people: for JSON use `status --json --watch`".to_owned()));
    }
    match stdout().is_terminal() {
        true => Ok(()),
        false => Err(Failure::Usage("`top` needs a terminal: use `status --watch` here".to_owned())),
    }
}

/// Whether the screen has colours.
pub(super) fn is_coloured(global: &Global) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_coloured = match global.color {
        clap::ColorChoice::Always => true,
        clap::ColorChoice::Never => false,
        clap::ColorChoice::Auto => !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
    };
    // It reads NO_COLOR by itself, which `--color always` overrules.
    force_color_output(is_coloured);
    is_coloured
}
