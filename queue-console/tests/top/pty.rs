//! A program in a pseudo terminal, whose screen a test reads and whose keys it presses.

use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, SlavePty, native_pty_system};
use vt100::Parser;

/// How long a test waits for what must appear. A busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    /// As long as it is open, the settings of the terminal stay what the program has made of them.
    _slave: Box<dyn SlavePty + Send>,
    keys: Box<dyn Write + Send>,
    seen: Arc<Mutex<Seen>>,
    changed: Receiver<()>,
}

/// What the program has written.
struct Seen {
    parser: Parser,
    bytes: Vec<u8>,
}

impl Terminal {
    pub(crate) fn start(command: CommandBuilder, (columns, lines): (u16, u16)) -> Self {
        let size = PtySize { rows: lines, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("the system has pseudo terminals");
        let child = pair.slave.spawn_command(command).expect("the program starts");
        let keys = pair.master.take_writer().expect("nobody else writes to it");
        let mut output = pair.master.try_clone_reader().expect("it can be read");
        let seen = Arc::new(Mutex::new(Seen { parser: Parser::new(some(lines), some(columns), 0), bytes: Vec::new() }));
        let (of_reader, (changes, changed)) = (seen.clone(), channel());
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut buffer) {
                let mut seen = of_reader.lock().unwrap_or_else(PoisonError::into_inner);
                seen.parser.process(&buffer[..read]);
                seen.bytes.extend_from_slice(&buffer[..read]);
                drop(seen);
                let _ = changes.send(());
            }
        });
        Terminal { child, master: pair.master, _slave: pair.slave, keys, seen, changed }
    }

    /// Presses keys, as the terminal sends them.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the program reads keys");
        self.keys.flush().expect("the program reads keys");
    }

    /// Waits until the screen shows this.
    pub(crate) fn shows(&mut self, text: &str) {
        self.becomes(&format!("shows `{text}`"), |screen| screen.contents().contains(text));
    }

    /// Waits until the screen does not show this any more.
    pub(crate) fn hides(&mut self, text: &str) {
        self.becomes(&format!("does not show `{text}`"), |screen| !screen.contents().contains(text));
    }

    /// Waits until one line of the screen shows all of these.
    pub(crate) fn shows_in_one_line(&mut self, texts: &[&str]) {
        self.becomes(&format!("shows {texts:?} in one line"), |screen| {
            screen.contents().lines().any(|line| texts.iter().all(|text| line.contains(text)))
        });
    }

    pub(crate) fn becomes(&mut self, what: &str, is: impl Fn(&vt100::Screen) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is(self.seen().parser.screen()) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "not within {PATIENCE:?}: the screen {what}:\n{}", self.text());
            let _ = self.changed.recv_timeout(left.min(Duration::from_secs(1)));
        }
    }

    pub(crate) fn text(&self) -> String {
        self.seen().parser.screen().contents()
    }

    /// All that the program has written.
    pub(crate) fn written(&self) -> String {
        String::from_utf8_lossy(&self.seen().bytes).into_owned()
    }

    pub(crate) fn resize(&mut self, (columns, lines): (u16, u16)) {
        let size = PtySize { rows: lines, cols: columns, pixel_width: 0, pixel_height: 0 };
        self.seen().parser.screen_mut().set_size(some(lines), some(columns));
        self.master.resize(size).expect("a terminal has a size");
    }

    /// Writes to the screen what the program has not written.
    pub(crate) fn garbage(&self) {
        self.seen().parser.process(b"\x1b[1;1Hsomebody else");
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.process_id().expect("it runs")
    }

    /// Waits for the end of the program, and checks that the terminal is what it was before.
    pub(crate) fn ended(mut self) -> ExitStatus {
        let status = self.wait();
        self.becomes("is given back", |screen| !screen.alternate_screen() && !screen.hide_cursor());
        let settings = format!("{:?}", self.master.get_termios().expect("a terminal has settings").local_flags);
        assert!(settings.contains("ECHO") && settings.contains("ICANON"), "{settings}");
        status
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is a child of this process") {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.text());
            // What it writes tells that it goes on.
            let _ = self.changed.recv_timeout(Duration::from_millis(50));
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn some(number: u16) -> NonZero<u16> {
    NonZero::new(number).expect("a terminal has lines and columns")
}
