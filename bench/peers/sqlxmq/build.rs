//! Takes the migrations from the framework's package.

fn main() -> anyhow::Result<()> {
    scripts::collect("sqlxmq", "migrations", ".up.sql")
}
