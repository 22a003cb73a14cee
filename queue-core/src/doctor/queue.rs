//! Examines one queue: its table, the account's rights on it, and its rows.

use diesel::result::QueryResult;

use super::database::what;
use super::rows::examine_rows;
use super::{add, is_lost};
use crate::attempt::ComparesSchema;
use crate::backend::{Target, explain_rights, literal};
use crate::control::name_of;
use crate::entity::Entity;
use crate::error::Finding;
use crate::ill::{Ill, IllKind, Severity};

/// Examines the queue of an entity, see [`Queueable::examine`](crate::Queueable::examine).
pub(crate) fn examine_queue<Q: Entity, C: ComparesSchema<Q>>(connection: &mut C) -> QueryResult<Vec<Ill>> {
    let queue = C::queue_of();
    let (target, name) = (queue.target()?, name_of(queue.sql)?);
    let mut ills = Vec::new();
    let schema = connection.bounded(|connection| {
        let findings = connection.check(&target)?;
        Ok((findings, connection.index_findings(&target).unwrap_or_default()))
    });
    let has_index = match schema {
        Ok((findings, of_indexes)) => {
            let schema = schema_ills::<Q, C>(connection, &target, findings, &of_indexes);
            add::<C>(&mut ills, "the schema", schema)?;
            of_indexes.is_empty()
        }
        Err(error) if is_lost::<C>(&error) => return Err(error),
        Err(error) => {
            ills.push(Ill::unread("the schema", &error));
            false
        }
    };
    let names = names_of(&target, &C::index_names(&target));
    for check in C::OF_TABLE {
        let found = check.run(connection, &names);
        add::<C>(&mut ills, what(check), found)?;
    }
    let found = connection.bounded(|connection| triggers(connection, &target));
    add::<C>(&mut ills, "the triggers", found)?;
    // Without its index, each look at the rows would read the whole table.
    if has_index {
        examine_rows(queue, connection, &name, &mut ills)?;
    }
    for ill in &mut ills {
        ill.queue = Some(name.clone());
    }
    ills.sort();
    Ok(ills)
}

/// Returns what the names in the checks of a queue's table stand for. `indexes`: the names of the queue's.
pub(super) fn names_of(target: &Target, indexes: &[String]) -> Vec<(&'static str, String)> {
    let literals = |names: &mut dyn Iterator<Item = &str>| names.map(literal).collect::<Vec<_>>().join(", ");
    let table = &target.table;
    vec![
        ("{table}", table.to_string()),
        ("{literal}", literal(&table.to_string())),
        ("{name}", literal(&table.name)),
        ("{schema}", table.schema.as_deref().map_or_else(|| "NULL".to_owned(), literal)),
        ("{columns}", literals(&mut target.columns.all().into_iter())),
        ("{indexes}", literals(&mut indexes.iter().map(String::as_str))),
    ]
}

/// Makes ills of the findings about the live table, and finds the rights that the account lacks.
fn schema_ills<Q: Entity, C: ComparesSchema<Q>>(
    connection: &mut C,
    target: &Target,
    mut findings: Vec<Finding>,
    of_indexes: &[Finding],
) -> QueryResult<Vec<Ill>> {
    let mut rights = if C::EXPLAINS_RIGHTS { explain_rights(connection, target)? } else { Vec::new() };
    // That the session may only read is no right. Neither is what the table lacks, but MySQL hides what the account may not use.
    rights.retain(|right| !right.is_read_only && (right.is_denied || findings.is_empty()));
    if rights.is_empty() {
        for finding in connection.bounded(|connection| connection.differences(target, &C::declared()?))? {
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
    } else {
        findings.clear();
    }
    let ill = |kind, Finding { problem, mend, .. }| Ill::new(kind, Severity::Error, problem, mend);
    let of_findings = findings.into_iter().map(|finding| {
        let kind = if of_indexes.contains(&finding) { IllKind::Index } else { IllKind::Schema };
        ill(kind, finding)
    });
    Ok(rights.into_iter().map(|right| ill(IllKind::Rights, right.finding)).chain(of_findings).collect())
}

/// Finds what each write of the queue sets off.
fn triggers<Q: Entity, C: ComparesSchema<Q>>(connection: &mut C, target: &Target) -> QueryResult<Vec<Ill>> {
    let migration = connection.trigger_migration(target)?;
    let note = |problem, mend: String| Ill::new(IllKind::Trigger, Severity::Note, problem, mend);
    let table = &target.table;
    let mut ills = Vec::new();
    if !migration.up.is_empty() {
        let problem = format!("each write of the queue to {table} sets off triggers or columns of the application");
        ills.push(note(problem, migration.up));
    }
    ills.extend(migration.skipped.into_iter().map(|(trigger, why)| {
        let problem = format!("each write of the queue to {table} runs the trigger {trigger}: {why}");
        note(problem, format!("let the trigger {trigger} ignore the queue's columns"))
    }));
    Ok(ills)
}
