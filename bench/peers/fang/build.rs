//! Takes the migrations from the framework's package.

fn main() -> anyhow::Result<()> {
    scripts::collect("fang", "postgres_migrations", "up.sql")
}
