//! Programs that read one text and write another.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

/// Runs a program to its end with this input, and returns its output.
pub(crate) fn said(command: &mut Command, input: &[u8]) -> Vec<u8> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?} does not run: {error}"));
    let mut stdin = child.stdin.take().expect("it is piped");
    let output = thread::scope(|scope| {
        // While this thread reads the output, because both may be more than a pipe holds. A program that ends early says why.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().expect("the program is a child of this process")
    });
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
