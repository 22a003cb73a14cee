//! Takes the migrations from the framework's package.

fn main() -> anyhow::Result<()> {
    scripts::collect("backie", "migrations", "up.sql")
}
