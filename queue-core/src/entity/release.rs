//! The migrations of one release of an application, as folders with SQL files.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use chrono::{DateTime, TimeDelta, Utc};

use crate::backend::Step;

/// The beginning of the line in `up.sql` by which a step is known as written. Its mark and a colon follow.
const MARKED: &str = "-- queueable ";

const ABOUT: &str =
    "-- Written by queueable. It knows by the lines with a number what it has written; the SQL may be edited.\n";

/// How many tables or steps a folder's name has.
const NAMED: usize = 3;

/// How many bytes of each of them. File systems take names of 255 bytes.
const NAME_LENGTH: usize = 30;

/// A step that is to be written.
struct ToWrite {
    table: String,
    mark: u64,
    step: Step,
}

/// The steps of one release that no earlier one has written.
pub(crate) struct Release {
    directory: PathBuf,
    /// The versions of the folders that are there, as Diesel reads them.
    versions: HashSet<String>,
    /// The marks of the steps that are written, and of those that are to be written.
    marks: HashSet<u64>,
    steps: Vec<ToWrite>,
}

impl Release {
    /// Reads what was written into the directory.
    pub(crate) fn begun_in(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let directory = directory.to_owned();
        let mut release = Release { directory, versions: HashSet::new(), marks: HashSet::new(), steps: Vec::new() };
        for entry in fs::read_dir(&release.directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') {
                // Half a folder, whose call was interrupted.
                continue;
            }
            release.versions.insert(version_of_folder(&name));
            match fs::read(entry.path().join("up.sql")) {
                Ok(sql) => release.marks.extend(marks_in(&String::from_utf8_lossy(&sql))),
                // A file, or a folder of something else.
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(release)
    }

    /// Adds a step, unless it is written.
    pub(crate) fn add(&mut self, table: &str, mark: u64, step: Step) {
        if self.marks.insert(mark) {
            self.steps.push(ToWrite { table: table.to_owned(), mark, step });
        }
    }

    /// Writes the folders: one for the steps that run in a transaction, one for those that do not, and then one for each
    /// step that the database takes only alone.
    pub(crate) fn write(mut self) -> io::Result<Vec<PathBuf>> {
        let (alone, together): (Vec<_>, Vec<_>) = self.steps.drain(..).partition(|to_write| to_write.step.alone);
        let (inside, outside) = together.into_iter().partition(|to_write| to_write.step.in_transaction);
        let folders = [inside, outside].into_iter().chain(alone.into_iter().map(|to_write| vec![to_write]));
        let mut version = Utc::now();
        let folders = folders.filter(|steps: &Vec<_>| !steps.is_empty());
        folders.map(|steps| self.write_folder(&mut version, &steps)).collect()
    }

    fn write_folder(&mut self, version: &mut DateTime<Utc>, steps: &[ToWrite]) -> io::Result<PathBuf> {
        // Diesel knows a migration by its version alone, and removes the dashes from it.
        while !self.versions.insert(version.format("%Y%m%d%H%M%S").to_string()) {
            *version += TimeDelta::seconds(1);
        }
        let name = format!("{}_{}", version.format("%Y-%m-%d-%H%M%S"), title(steps));
        // Diesel passes over a name with a dot, so nobody sees half a folder.
        let (unfinished, folder) = (self.directory.join(format!(".{name}")), self.directory.join(&name));
        fs::create_dir_all(&unfinished)?;
        let up: Vec<_> = steps.iter().map(up).collect();
        fs::write(unfinished.join("up.sql"), ABOUT.to_owned() + &up.join("\n"))?;
        let down: String = steps.iter().rev().map(|to_write| script(&to_write.step.down)).collect();
        fs::write(unfinished.join("down.sql"), down)?;
        if steps.iter().any(|to_write| !to_write.step.in_transaction) {
            fs::write(unfinished.join("metadata.toml"), "run_in_transaction = false\n")?;
        }
        fs::rename(unfinished, &folder)?;
        Ok(folder)
    }
}

/// Writes a step with the line by which it is known.
fn up(ToWrite { table, mark, step }: &ToWrite) -> String {
    // The comment ends with the line, whatever the name contains.
    let table = table.replace(char::is_control, " ");
    format!("{MARKED}{mark:016x}: {} of {table}\n{}", step.name, script(&step.up))
}

fn script(statements: &[String]) -> String {
    statements.iter().map(|statement| format!("{statement};\n")).collect()
}

/// Returns the marks of the steps in an `up.sql`.
fn marks_in(sql: &str) -> impl Iterator<Item = u64> {
    sql.lines().filter_map(|line| {
        let (mark, _) = line.trim_start().strip_prefix(MARKED)?.split_once(':')?;
        u64::from_str_radix(mark.trim(), 16).ok()
    })
}

fn version_of_folder(folder: &str) -> String {
    folder.split('_').next().unwrap_or_default().replace('-', "")
}

/// Says in a folder's name what it adds: `queue_of_payments_and_invoices`, `queue_priority_of_payments`.
fn title(steps: &[ToWrite]) -> String {
    let is_queue = |to_write: &ToWrite| to_write.step.name == "columns";
    let what = match steps.iter().any(is_queue) {
        true => String::new(),
        false => "_".to_owned() + &listed(steps.iter().map(|to_write| to_write.step.name)),
    };
    format!("queue{what}_of_{}", listed(steps.iter().map(|to_write| to_write.table.as_str())))
}

/// Writes a list of names, each once: `a_b_and_c`, or `a_b_c_and_6_more`.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut each: Vec<String> = Vec::new();
    for name in names {
        let kept = name.char_indices().take_while(|(at, c)| at + c.len_utf8() <= NAME_LENGTH);
        let name = kept.map(|(_, c)| if c.is_alphanumeric() { c } else { '_' }).collect();
        if !each.contains(&name) {
            each.push(name);
        }
    }
    let more = each.len().saturating_sub(NAMED);
    if more > 0 {
        each.truncate(NAMED);
        each.push(format!("{more}_more"));
    }
    match each.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{}_and_{last}", others.join("_")),
        _ => each.join("_"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_names_is_short() {
        assert_eq!(listed(["a", "a"].into_iter()), "a");
        assert_eq!(listed(["a", "b c"].into_iter()), "a_and_b_c");
        assert_eq!(listed(["a", "b", "c"].into_iter()), "a_b_and_c");
        assert_eq!(listed(["a", "b", "c", "d", "e"].into_iter()), "a_b_c_and_2_more");
        assert_eq!(
            listed(["a".to_owned() + &"ä".repeat(100)].iter().map(String::as_str)),
            "a".to_owned() + &"ä".repeat(14)
        );
    }

    #[test]
    fn marks_are_read_from_edited_files() {
        let sql =
            "-- queueable 00000000000000ff: columns of payments\r\nSELECT 1;\n  -- queueable 1: x\n-- queueable: y\n";
        assert_eq!(marks_in(sql).collect::<Vec<_>>(), [255, 1]);
    }
}
