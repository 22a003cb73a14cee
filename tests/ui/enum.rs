use queueable::Queueable;

#[derive(Queueable)]
enum Payment {
    Paid,
    Open,
}

fn main() {}
