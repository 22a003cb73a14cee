//! The terminal after a panic.

use std::env;
use std::io::Read;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use portable_pty::{CommandBuilder, PtySize, native_pty_system};

use super::super::terminal::Screen;

/// Makes the test the program that panics.
const PANICS: &str = "QUEUEABLE_TEST_PANICS";

/// Runs itself in a terminal, where it takes the terminal and panics.
#[test]
fn a_panic_gives_the_terminal_back_and_is_read_there() {
    if env::var_os(PANICS).is_some() {
        let _screen = Screen::take().unwrap();
        // A thread that does not draw leaves the screen alone.
        assert!(thread::spawn(|| panic!("elsewhere")).join().is_err());
        panic!("while it draws");
    }
    let pair = native_pty_system().openpty(PtySize::default()).unwrap();
    let mut command = CommandBuilder::new(env::current_exe().unwrap());
    let (_, module) = module_path!().split_once("::").unwrap();
    command.args(["--exact", "--nocapture"]);
    command.arg(format!("{module}::a_panic_gives_the_terminal_back_and_is_read_there"));
    command.env(PANICS, "1");
    let mut child = pair.slave.spawn_command(command).unwrap();
    let (mut output, (lines, written)) = (pair.master.try_clone_reader().unwrap(), channel());
    thread::spawn(move || {
        let (mut all, mut buffer) = (String::new(), [0; 1024]);
        while let Ok(read @ 1..) = output.read(&mut buffer) {
            all.push_str(&String::from_utf8_lossy(&buffer[..read]));
            let _ = lines.send(all.clone());
        }
    });
    assert!(!child.wait().unwrap().success());
    let is_given_back = |all: &str| {
        let after = |from: usize, text: &str| Some(from + all.get(from..)?.find(text)?);
        let taken = after(0, "\u{1b}[?1049h")?;
        let elsewhere = after(taken, "elsewhere")?;
        let back = after(elsewhere, "\u{1b}[?1049l")?;
        after(back, "\u{1b}[?25h").and(after(back, "while it draws"))
    };
    let mut all = String::new();
    while is_given_back(&all).is_none() {
        all = written.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("it is not given back: {all:?}"));
    }
    let settings = format!("{:?}", pair.master.get_termios().unwrap().local_flags);
    assert!(settings.contains("ECHO") && settings.contains("ICANON"), "{settings}");
}
