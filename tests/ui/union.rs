use queueable::Queueable;

#[derive(Queueable)]
union Payment {
    id: i64,
    amount_cents: i64,
}

fn main() {}
