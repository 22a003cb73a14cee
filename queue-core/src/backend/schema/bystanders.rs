//! The application's triggers, and columns that fill themselves, that every write of the queue sets off.

use std::sync::LazyLock;

use diesel::result::QueryResult;
use regex::Regex;

use super::columns::{Ddl, needed_columns};
use super::target::{Target, TriggerMigration};
use super::trigger::{PREFIX, Triggers};

/// Logs which of the application's triggers and columns each write of the queue sets off, so that no user is surprised
/// by the times in `updated_at`. It leaves out triggers that name or compare columns: their authors chose when they run.
pub(crate) fn tell<T: Triggers>(connection: &mut T, target: &Target) -> QueryResult<()> {
    let live = connection.live_triggers(target)?.into_iter().filter(|trigger| !trigger.name.starts_with(PREFIX));
    let updates: Vec<_> = live.filter_map(|trigger| Some((trigger.name, trigger.at_update?))).collect();
    for (name, _) in updates.iter().filter(|(_, definition)| T::runs_at_every_update(definition)) {
        tell_of(target, &format!("runs the trigger {name}"));
    }
    for column in connection.set_at_update(target)?.iter().filter(|column| !is_kept(column, &updates)) {
        tell_of(target, &format!("sets the column {column}"));
    }
    Ok(())
}

fn tell_of(target: &Target, what: &str) {
    tracing::info!(
        entity = target.entity,
        "each write of the queue to {} {what}, as every UPDATE does; {}::trigger_migration writes the SQL that restricts it to \
         the domain's columns, see docs/into-your-application.md",
        target.table,
        target.entity
    );
}

/// Tells whether a trigger that a definition in the SQL of PostgreSQL or SQLite creates runs at every update: it has no
/// list of columns, and no condition on single columns of the old row.
#[allow(dead_code, reason = "MySQL knows neither")]
pub(crate) fn has_no_columns(definition: &str) -> bool {
    static OLD_COLUMN: LazyLock<Regex> = LazyLock::new(|| regex(r"\bwhen\b(?s:.*)\bold\s*\.\s*[^* ]"));
    let head = head_of(definition);
    any_column(&head).is_some() && !OLD_COLUMN.is_match(&head)
}

/// Returns the definition of a trigger up to its statement, in small letters. Every word is where it was, but an `x` is in
/// the place of each byte in quotes, and a blank in that of each byte of a comment.
pub(crate) fn head_of(definition: &str) -> String {
    static NO_WORDS: LazyLock<Regex> =
        LazyLock::new(|| regex(r#"'[^']*'|"[^"]*"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*(?s:.*?)\*/"#));
    static HEAD_ENDS: LazyLock<Regex> = LazyLock::new(|| regex(r"\b(begin|execute)\b"));
    let masked = NO_WORDS.replace_all(definition, |found: &regex::Captures<'_>| {
        let mask = if found[0].starts_with(['-', '/']) { " " } else { "x" };
        mask.repeat(found[0].len())
    });
    let mut head = masked.to_ascii_lowercase();
    let end = HEAD_ENDS.find(&head).map_or(head.len(), |end| end.start());
    head.truncate(end);
    head
}

/// Finds the event of an update of any column in the [head](head_of) of a trigger's definition.
pub(crate) fn any_column(head: &str) -> Option<usize> {
    static ANY_COLUMN: LazyLock<Regex> = LazyLock::new(|| regex(r"\bupdate\s+(on|or)\b"));
    ANY_COLUMN.find(head).map(|found| found.start())
}

/// Tells whether the statement of a trigger compares no column with its old value.
#[allow(dead_code, reason = "the others have conditions outside the statement")]
pub(crate) fn compares_nothing(statement: &str) -> bool {
    static COMPARES: LazyLock<Regex> =
        LazyLock::new(|| regex(r"\bold\s*\.\s*(`[^`]+`|[a-z_0-9]+)\s*(<=>|<>|!=)|(<=>|<>|!=)\s*old\s*\."));
    !COMPARES.is_match(&statement.to_ascii_lowercase())
}

/// Tells whether a trigger that compares gives the column its value.
pub(crate) fn is_kept(column: &str, triggers: &[(String, String)]) -> bool {
    let column = regex::escape(&column.to_ascii_lowercase());
    let sets = regex(&format!(r"\bnew\s*\.\s*`?{column}`?\s*="));
    let keeps = |statement: &str| !compares_nothing(statement) && sets.is_match(&statement.to_ascii_lowercase());
    triggers.iter().any(|(_, statement)| keeps(statement))
}

/// Makes a regular expression. The crate is built without the tables of Unicode, so the boundaries and blanks are those of
/// ASCII.
pub(crate) fn regex(pattern: &str) -> Regex {
    let pattern = pattern.replace(r"\b", r"(?-u:\b)").replace(r"\s", "[ \t\r\n]");
    Regex::new(&pattern).expect("the pattern is a regular expression")
}

impl TriggerMigration {
    fn replace(&mut self, drop: &str, before: &str, after: &str) {
        self.up += &[line(drop), line(after)].concat();
        self.down += &[line(drop), line(before)].concat();
    }

    fn add(&mut self, drop: &str, create: &str) {
        self.up += &line(create);
        self.down += &line(drop);
    }
}

fn line(statement: &str) -> String {
    format!("{};\n", statement.trim_end_matches(|end: char| end == ';' || end.is_whitespace()))
}

/// Makes the SQL for the triggers and columns of which a poller tells at its start.
pub(crate) fn trigger_migration<D: Ddl>(connection: &mut D, target: &Target) -> QueryResult<TriggerMigration> {
    let needed = needed_columns::<D>(target);
    let mut columns = Vec::new();
    for column in connection.live_columns(target)? {
        let is_needed = needed.iter().any(|needed| needed.name.eq_ignore_ascii_case(&column.name));
        if !is_needed && !column.marked && !column.name.starts_with("queueable_") {
            columns.push(column.name);
        }
    }
    let mut live = connection.live_triggers(target)?;
    live.retain(|trigger| !trigger.name.starts_with(PREFIX));
    live.sort_by(|one, other| one.name.cmp(&other.name));
    let updates: Vec<_> = live.into_iter().filter_map(|trigger| Some((trigger.name, trigger.at_update?))).collect();
    let mut migration = TriggerMigration::default();
    for (name, definition) in updates.iter().filter(|(_, definition)| D::runs_at_every_update(definition)) {
        match D::restricted(target, definition, &columns) {
            Ok(restricted) => migration.replace(&D::drop_only(target, name), definition, &restricted),
            Err(why) => migration.skipped.push((name.clone(), why)),
        }
    }
    let set = connection.set_at_update(target)?;
    columns.retain(|column| !set.contains(column));
    for column in set.iter().filter(|column| !is_kept(column, &updates)) {
        if let Some((name, create)) = D::keeper(target, column, &columns) {
            migration.add(&D::drop_only(target, &name), &create);
        }
    }
    Ok(migration)
}

/// Gives a trigger that runs at every update a list of columns, in the SQL of PostgreSQL and SQLite.
#[allow(dead_code, reason = "MySQL knows none")]
pub(crate) fn with_columns(target: &Target, definition: &str, columns: &[String]) -> Result<String, &'static str> {
    static REFERENCING: LazyLock<Regex> = LazyLock::new(|| regex(r"\breferencing\b"));
    let head = head_of(definition);
    if REFERENCING.is_match(&head) {
        return Err("a trigger with transition tables takes no list of columns");
    }
    let update = any_column(&head).ok_or("its definition cannot be read")?;
    let (before, after) = definition.split_at(update + "update".len());
    Ok(format!("{before} OF {}{after}", target.table.quoted_all(columns)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trigger_with_a_list_of_columns_or_a_condition_on_some_is_left_alone() {
        let runs = |definition: &str| has_no_columns(definition);
        assert!(runs("CREATE TRIGGER t BEFORE UPDATE ON public.payments FOR EACH ROW EXECUTE FUNCTION f()"));
        assert!(runs("CREATE TRIGGER t AFTER INSERT OR UPDATE OR TRUNCATE ON payments EXECUTE FUNCTION f()"));
        assert!(runs("create trigger t after update\non payments begin update log set n = n + 1; end"));
        let whole = "CREATE TRIGGER t BEFORE UPDATE ON p FOR EACH ROW WHEN ((old.* IS DISTINCT FROM new.*)) EXECUTE FUNCTION f()";
        assert!(runs(whole));
        assert!(runs("CREATE TRIGGER t AFTER UPDATE ON p WHEN NEW.active BEGIN DELETE FROM q WHERE id = OLD.id; END"));
        assert!(!runs("CREATE TRIGGER t BEFORE UPDATE OF amount ON p FOR EACH ROW EXECUTE FUNCTION f()"));
        assert!(!runs("CREATE TRIGGER t AFTER INSERT ON p BEGIN SELECT 1; END"));
        assert!(!runs("CREATE TRIGGER t AFTER UPDATE ON p WHEN old.\"amount\" IS NOT NEW.amount BEGIN SELECT 1; END"));
        assert!(!runs(
            "CREATE TRIGGER t BEFORE UPDATE ON p FOR EACH ROW WHEN ((old.amount <> new.amount)) EXECUTE FUNCTION f()"
        ));
    }

    #[test]
    fn words_in_quotes_and_comments_of_a_head_are_masked_where_they_are() {
        let text = "CREATE TRIGGER \"update on é\" AFTER UPDATE/* of\na */ ON `begin` -- update or\nBEGIN";
        let head = head_of(text);
        assert_eq!(head.len(), text.rfind("BEGIN").expect("it has a body"));
        assert_eq!(any_column(&head), text.find("UPDATE"));
        assert_eq!(head.find("on xx"), text.find("ON `begin`"));
    }

    #[test]
    fn a_statement_that_compares_with_the_old_row_is_left_alone() {
        assert!(compares_nothing("SET NEW.updated_at = NOW()"));
        assert!(compares_nothing("INSERT INTO audit VALUES (OLD.id, NEW.amount)"));
        assert!(!compares_nothing("SET NEW.updated_at = IF(NEW.amount <=> OLD.amount, OLD.updated_at, NOW())"));
        assert!(!compares_nothing("BEGIN IF OLD.`amount` <> NEW.amount THEN SET NEW.n = 1; END IF; END"));
        let keeps = |column, statement: &str| is_kept(column, &[("t".to_owned(), statement.to_owned())]);
        let compares = "SET NEW.`updated_at` = IF(NEW.amount <=> OLD.amount, OLD.updated_at, NEW.updated_at)";
        assert!(keeps("updated_at", compares));
        assert!(!keeps("updated", compares));
        assert!(!keeps("updated_at", "SET NEW.updated_at = NOW()"));
    }
}
