#!/usr/bin/env bash
# What a further entity, with a handler and a poller, adds to a user's build: the time for 21 entities less that for one.
set -euo pipefail
cd "$(dirname "$0")/.."

queueable=$PWD
project=$(mktemp -d)
trap 'rm -rf "$project"' EXIT
mkdir "$project/src"
cat >"$project/Cargo.toml" <<END
[package]
name = "entities"
version = "0.1.0"
edition = "2024"
[dependencies]
queueable = { path = "$queueable", features = ["bundled"] }
diesel = { version = "2.3", features = ["sqlite", "r2d2"] }
END
cp Cargo.lock "$project"

entities() {
    echo 'use diesel::prelude::*;'
    echo 'use diesel::r2d2::{ConnectionManager, Pool};'
    echo 'use queueable::{Handler, HandlerResult, Message, Outcome, Queueable};'
    local number
    for number in $(seq "$1"); do
        cat <<END
diesel::table! { payments$number (id) { id -> BigInt, company_id -> BigInt, amount_cents -> BigInt, } }
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments$number)]
#[queue(retry = exponential("10s", max = "1h"), max_tries = 10)]
#[allow(dead_code)]
struct Payment$number { id: i64, company_id: i64, amount_cents: i64 }
struct Charge$number;
impl Handler<Payment$number, SqliteConnection> for Charge$number {
    fn handle(&self, _: &Payment$number, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
}
END
    done
    echo 'fn main() {'
    echo '    let pool = Pool::new(ConnectionManager::<SqliteConnection>::new("app.sqlite")).unwrap();'
    for number in $(seq "$1"); do
        echo "    drop(Payment$number::poller(pool.clone(), Charge$number).workers(2).start().unwrap());"
    done
    echo '}'
}

# Prints how many milliseconds it takes to build the program with so many entities, its dependencies being there.
milliseconds() {
    entities "$2" >"$project/src/main.rs"
    rm -rf "$project"/target/*/incremental
    local began
    began=$(date +%s%3N)
    cargo build --quiet --manifest-path "$project/Cargo.toml" --profile "$1" >&2
    echo $(($(date +%s%3N) - began))
}

for profile in dev release; do
    milliseconds "$profile" 1 >/dev/null
    for _ in 1 2 3; do
        one=$(milliseconds "$profile" 1)
        many=$(milliseconds "$profile" 21)
        echo "$profile: 1 entity $one ms, 21 entities $many ms: $(((many - one) / 20)) ms for each further one"
    done
done
