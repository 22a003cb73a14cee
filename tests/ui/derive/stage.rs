use queueable::Stage;

#[derive(Debug, Clone, Copy, PartialEq, Stage)]
struct One;

#[derive(Debug, Clone, Copy, PartialEq, Stage)]
enum None {}

#[derive(Debug, Clone, Copy, PartialEq, Stage)]
enum WithField {
    Read,
    Wait(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Stage)]
enum Twice {
    Read,
    #[stage(name = "READ")]
    ReadAgain,
}

#[derive(Debug, Clone, Copy, PartialEq, Stage)]
enum Renamed {
    #[stage(text = "read")]
    Read,
}

fn main() {}
