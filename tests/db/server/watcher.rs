//! What ends a server when nobody is left to do it.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Ends the server and removes its directory when the test process has gone, whatever took it: a shell that reads from a
/// pipe whose other end only the test process holds. Nothing inside the process could do that after a `kill -9`.
pub(super) struct Watcher {
    shell: Child,
}

/// Reads the id of the process group to end, line by line; an empty line means none. The waiting is bounded, because a
/// dead server keeps its id until somebody reaps it, and not every container has somebody who does.
const WATCH: &str = r#"
while read -r line; do group=$line; done
if [ -n "$group" ] && kill -s QUIT -- "-$group"; then
    tries=30
    while [ $tries -gt 0 ] && kill -s 0 -- "-$group"; do
        sleep 0.1
        tries=$((tries - 1))
    done
    kill -s KILL -- "-$group"
fi
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
"#;

impl Watcher {
    /// Starts watching over a server that will live in `directory`.
    pub(super) fn over(directory: &Path) -> Self {
        let shell = Command::new("sh")
            .args(["-c", WATCH, "watcher"])
            .arg(directory)
            .current_dir("/")
            .stdin(Stdio::piped())
            // Not the tests' own output: whoever reads that would wait for the watcher too.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("there is a shell");
        Self { shell }
    }

    /// Makes this child and its whole process group what has to end.
    pub(super) fn follow(&self, child: &Child) {
        self.tell(&child.id().to_string());
    }

    /// Says that the child has ended.
    pub(super) fn forget(&self) {
        self.tell("");
    }

    /// Ends the child and removes the directory now, and returns when that is done.
    pub(super) fn finish(&mut self, child: &mut Child) {
        drop(self.shell.stdin.take());
        // Reaping the child is what lets the shell see it gone.
        let _ = child.wait();
        let _ = self.shell.wait();
    }

    fn tell(&self, line: &str) {
        let mut pipe = self.shell.stdin.as_ref().expect("the pipe is open until the watch is finished");
        writeln!(pipe, "{line}").expect("the watcher reads until the pipe closes");
    }
}
