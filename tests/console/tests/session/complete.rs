//! The page of the console leaves nothing out: commands, names of the JSON, reasons, exit codes.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::shell::Shell;

/// Commands whose JSON has all names that a database of this moment can show.
const COMMANDS: &str = "console status; console why; console explain payments 50311 50312 42500 99; console show invoices north,3
    console list payments --limit 2; console backlog; console backlog payments --by company_id; console errors payments
    console errors payments --by company_id; console statistics payments --since 6h; console statistics payments --by company_id
    console retry payments --failed --dry-run; console retry payments --failed --yes
    console pause payments --where 'company_id = 7' --for 1h; console pause invoices --stage send; console backlog
    console why; console status; console unpause payments; console limits payments --workers 1; console limits; console backlog
    console limits payments --end; console pollers; console audit --limit 2; console environment
    console environment --adopt staging --yes; console doctor; console migrate list; console migrate run --yes; console migrate write files
    console migrate check; console status --bogus; console retry payments --where 'x = 1'";

/// Under these names stand names that the application or a setting has.
const NAMES_OF_OTHERS: [&str; 4] = ["row", "some", "figures", "settings"];

fn read(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                names.insert(name.clone());
                if !NAMES_OF_OTHERS.contains(&&**name) {
                    collect(value, names);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, names)),
        _ => {}
    }
}

/// Whether the page has a name in backquotes, or among names in backquotes. What is in its blocks does not count.
fn has(page: &str, name: &str) -> bool {
    let prose: String = page.split("\n```").step_by(2).collect();
    let mut code = prose.split('`').skip(1).step_by(2);
    code.any(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name))
}

#[test]
fn every_name_of_the_json_is_in_the_page() {
    let shell = Shell::new("shop");
    let commands = COMMANDS.replace("; console", "\n console");
    let commands: Vec<_> = commands.lines().map(|command| format!("{} --json", command.trim())).collect();
    let answers = shell.run_all(&commands);
    let objects = answers.lines().filter(|line| line.starts_with('{'));
    let mut names = BTreeSet::new();
    for object in objects {
        collect(&serde_json::from_str(object).unwrap_or_else(|error| panic!("{error}: {object}")), &mut names);
    }
    assert!(names.len() > 70, "{names:?}\n{answers}");
    let page = read("docs/console.md");
    let (_, page) = page.split_once("### JSON").expect("the page has a section about JSON");
    let missing: Vec<_> = names.iter().filter(|name| !has(page, name)).collect();
    assert!(missing.is_empty(), "docs/console.md does not name {missing:?}");
}

#[test]
fn every_reason_is_in_the_page() {
    let source = read("queue-core/src/queue/report/explanation.rs");
    let (_, variants) = source.split_once("pub enum Explanation {").expect("the reasons are there");
    let (variants, _) = variants.split_once("\n}\n").expect("the enum ends");
    let variant = |line: &str| {
        line.strip_prefix("    ").filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase())).map(snake)
    };
    let reasons: Vec<String> = variants.lines().filter_map(variant).collect();
    assert!(reasons.len() > 15, "{reasons:?}");
    let page = read("docs/console.md");
    let missing: Vec<_> = reasons.iter().filter(|reason| !has(&page, reason)).collect();
    assert!(missing.is_empty(), "docs/console.md does not name {missing:?}");
}

/// The name of a variant as serde writes it.
fn snake(line: &str) -> String {
    let name = line.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

#[test]
fn every_command_is_in_the_page() {
    let help = Shell::new("shop").run_all(&["console --help".to_owned()]);
    let (_, commands) = help.split_once("Commands:\n").expect("the help lists the commands");
    let commands = commands.lines().map_while(|line| line.trim().split(' ').next().filter(|name| !name.is_empty()));
    let page = read("docs/console.md");
    let commands: Vec<_> = commands.filter(|name| *name != "help").collect();
    assert!(commands.len() > 25, "{commands:?}");
    let missing: Vec<_> = commands.iter().filter(|name| !has(&page, name)).collect();
    assert!(missing.is_empty(), "docs/console.md does not name {missing:?}");
}

/// The commands that a page has within its sentences, its tables and its scripts. What runs in its sessions is not among them.
fn commands(page: &str) -> Vec<String> {
    let blocks: Vec<_> = page.split("\n```").collect();
    let prose: String = blocks.iter().step_by(2).copied().collect();
    let spans = prose.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " "));
    let scripts = blocks.iter().skip(1).step_by(2).filter(|block| block.starts_with("sh\n"));
    let lines = scripts.flat_map(|script| script.lines().map(str::to_owned));
    let command = |text: String| {
        let (before, command) = text.split_once("console ")?;
        let mut quoted = false;
        let ends = command.find(|c: char| {
            quoted ^= c == '"';
            !quoted && ";|>#".contains(c)
        });
        let command = &command[..ends.unwrap_or(command.len())];
        let is_command = before.is_empty() || before.ends_with(' ') && before.contains('*');
        (is_command && !command.starts_with("help ")).then(|| command.trim().to_owned())
    };
    spans.chain(lines).filter_map(command).collect()
}

#[test]
fn every_command_of_the_pages_has_these_options() {
    for (page, least) in [("docs/console.md", 3), ("docs/runbook.md", 20), ("docs/faq.md", 1)] {
        let commands = commands(&read(page));
        assert!(commands.len() >= least, "{page}: {commands:?}");
        // With `--help` an option that is wrong is refused, and one that lacks is not.
        let helped = commands.iter().map(|command| {
            let command = command.replace("..", "'id = 1'").replace("DIRECTORY", "files");
            format!("console {command} --help >/dev/null || echo refused")
        });
        let answers = Shell::new("shop").run_all(&helped.collect::<Vec<_>>());
        assert!(!answers.lines().any(|line| line.starts_with("error") || line == "refused"), "{page}:\n{answers}");
    }
}
