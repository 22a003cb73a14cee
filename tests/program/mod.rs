//! The examples as programs that a test starts, watches, kills and reads.

mod faketime;

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tempfile::TempDir;

/// How long a program, or an effect that a test expects of it, may take. Beside other suites, tens of thousands of payments
/// take minutes.
const PATIENCE: Duration = Duration::from_secs(1200);

/// A running example. It is killed when it is dropped.
pub(crate) struct Program {
    child: Child,
    // Files instead of pipes: nothing reads while the program runs, and a full pipe would block it.
    output: TempDir,
}

/// What a program said, and how it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Program {
    /// Starts the example that cargo has built beside this test.
    pub(crate) fn start<A: AsRef<OsStr>>(example: &str, arguments: impl IntoIterator<Item = A>) -> Self {
        Self::spawn(Command::new(built(example)).args(arguments))
    }

    /// Starts an example in `directory`, which it takes for the package's directory, and where it keeps its files.
    pub(crate) fn start_in<A: AsRef<OsStr>>(
        directory: &Path,
        example: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let mut command = Command::new(built(example));
        Self::spawn(command.args(arguments).current_dir(directory).env("CARGO_MANIFEST_DIR", directory))
    }

    /// Starts a program in `directory`, where it keeps its files.
    pub(crate) fn start_at_path<A: AsRef<OsStr>>(
        directory: &Path,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        Self::spawn(Command::new(program).args(arguments).current_dir(directory))
    }

    /// Starts an example with a wrong clock, given as an offset like `-1d`.
    pub(crate) fn start_at<A: AsRef<OsStr>>(
        offset: &str,
        example: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let mut command = Command::new(built(example));
        let library = faketime::library().expect(faketime::MISSING);
        command.env("LD_PRELOAD", library).env("FAKETIME", offset).env("DONT_FAKE_MONOTONIC", "1");
        Self::spawn(command.args(arguments))
    }

    /// Starts one test of this test's own program in another process, for actions that no process survives.
    pub(crate) fn of_this_test<V: AsRef<OsStr>>(
        test: &str,
        variables: impl IntoIterator<Item = (&'static str, V)>,
    ) -> Self {
        let program = env::current_exe().expect("a program knows where it is");
        Self::spawn(Command::new(program).args(["--exact", test, "--nocapture"]).envs(variables))
    }

    fn spawn(command: &mut Command) -> Self {
        let output = tempfile::tempdir().expect("the system's temporary directory is writable");
        let file = |name| File::create(output.path().join(name)).expect("the directory is writable");
        let child = command
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .expect("the example is a program");
        Self { child, output }
    }

    /// Runs an example to its end.
    pub(crate) fn run<A: AsRef<OsStr>>(example: &str, arguments: impl IntoIterator<Item = A>) -> Ended {
        Self::start(example, arguments).end()
    }

    /// Waits for the program's end.
    pub(crate) fn end(mut self) -> Ended {
        self.until("the program ends", |program| program.child.try_wait().expect("it is a child of this process"));
        self.ended()
    }

    /// Waits until there is an answer. Panics if the program ends first.
    pub(crate) fn await_answer<T>(&mut self, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        self.until(what, |program| {
            let ended = program.child.try_wait().expect("it is a child of this process").is_some();
            let answer = ask();
            assert!(answer.is_some() || !ended, "the program ended before {what}: {:?}", program.ended());
            answer
        })
    }

    /// Kills the program as `kill -9` does and returns when it is gone; panics if it had ended by itself.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it is a child of this process");
        let ended = self.ended();
        assert_eq!(ended.status.signal(), Some(9), "the program ended before it was killed: {ended:?}");
    }

    /// Asks the program to end, once it has said `text`.
    pub(crate) fn terminate_after(&mut self, text: &str) {
        self.await_text(text);
        self.signal("TERM");
    }

    /// Asks the program to end twice at the same moment, once it has said `text`.
    pub(crate) fn terminate_twice_after(&mut self, text: &str) {
        self.await_text(text);
        // Both signals wait until it goes on. Two of the same kind would become one.
        ["STOP", "TERM", "INT", "CONT"].iter().for_each(|name| self.signal(name));
    }

    fn await_text(&mut self, text: &str) {
        self.until(text, |program| program.said().contains(text).then_some(()));
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name]).arg(self.child.id().to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()), "the program runs, and it is ours");
    }

    /// Freezes the program and returns when all its threads have stopped, which is when the system tells the parent. A thread
    /// inside a system call still gets what it has asked for, such as a lock. `CONT` thaws the program.
    pub(crate) fn freeze(&mut self) {
        self.signal("STOP");
        self.until("every thread has stopped", |program| {
            let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
            waitid(WaitId::Pid(Pid::from_child(&program.child)), stopped).expect("it is a child of this process")
        });
    }

    /// Waits for a line that begins with `text`, and returns the rest of the line.
    pub(crate) fn line_after(&mut self, text: &str) -> String {
        self.until(text, |program| {
            let said = program.said();
            // Only whole lines: of an unfinished one, the rest would be missing.
            let mut lines = said.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
            lines.find_map(|line| line.strip_prefix(text)).map(str::to_owned)
        })
    }

    fn said(&self) -> String {
        fs::read_to_string(self.output.path().join("stdout")).expect("the program writes text")
    }

    fn ended(&mut self) -> Ended {
        let status = self.child.wait().expect("it is a child of this process");
        Ended { status, stdout: self.said(), stderr: self.complaints() }
    }

    fn complaints(&self) -> String {
        fs::read_to_string(self.output.path().join("stderr")).expect("the program writes text")
    }

    /// Asks again and again until there is an answer. An empty channel paces it.
    fn until<T>(&mut self, what: &str, mut ask: impl FnMut(&mut Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let (_nobody, pace) = mpsc::channel::<()>();
        loop {
            if let Some(answer) = ask(self) {
                return answer;
            }
            if Instant::now() >= deadline {
                panic!("not within {PATIENCE:?}: {what}; the program said:\n{}{}", self.said(), self.complaints());
            }
            let _ = pace.recv_timeout(Duration::from_millis(5));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both do nothing to a program that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// The program's output, if it ended well.
    pub(crate) fn well(self) -> String {
        assert!(self.status.success(), "{}\n{}{}", self.status, self.stdout, self.stderr);
        self.stdout
    }
}

/// The input of the main job: the lines of `examples/data/payments.csv`, and as many more as are asked for.
///
/// The companies are 3301 to 3397. Every 41st amount is not positive; one in a hundred ends in 13.
pub(crate) fn payments(lines: i64) -> String {
    let line = |i: i64| {
        let company = 3301 + i * 7919 % 97;
        let amount = 100 + i * 7907 % 250_007;
        let refused = if i % 2 == 0 { -amount } else { 0 };
        format!("{company},{}\n", if i % 41 == 0 { refused } else { amount })
    };
    "company_id,amount_cents\n".to_owned() + &(1..=lines).map(line).collect::<String>()
}

fn built(example: &str) -> PathBuf {
    let test = env::current_exe().expect("a program knows where it is");
    let profile = test.parent().and_then(|deps| deps.parent()).expect("tests are built in target/<profile>/deps");
    let program = profile.join("examples").join(example);
    assert!(
        program.is_file(),
        "the example `{example}` is not built. `cargo test` builds the examples, unless it is given `--test`: run \
         `cargo build --examples` first then, with the same features and profile. It is looked for at {}",
        program.display()
    );
    program
}
