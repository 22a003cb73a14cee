//! What is drawn.

use std::fmt::Write;
use std::time::Duration;

use insta::assert_snapshot;
use queue_core::internals::by_name::Operate;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;

use super::super::ask::{Change, News, Paragraph, Target};
use super::super::dialog::Dialog;
use super::super::view::{Theme, View};
use super::*;

fn drawn(model: &Model, (width, height): (u16, u16), is_coloured: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a buffer");
    let mut view = View::new(Theme { is_coloured });
    terminal.draw(|frame| _ = view.draw(frame, model)).expect("it can be drawn");
    terminal.backend().buffer().clone()
}

/// The lines of a screen of 80x24.
fn lines(model: &Model) -> String {
    text(&drawn(model, (80, 24), true))
}

fn text(buffer: &Buffer) -> String {
    let rows = buffer.content.chunks(usize::from(buffer.area.width).max(1));
    let rows =
        rows.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned() + "\n");
    rows.collect()
}

/// The lines with the styles of their parts: `{red bold:text}`.
fn painted(buffer: &Buffer) -> String {
    let mut text = String::new();
    for row in buffer.content.chunks(usize::from(buffer.area.width).max(1)) {
        let style = |cell: &ratatui::buffer::Cell| (cell.fg, cell.modifier);
        let mut line = String::new();
        for part in row.chunk_by(|one, other| style(one) == style(other)) {
            let symbols: String = part.iter().map(ratatui::buffer::Cell::symbol).collect();
            let (color, modifier) = style(&part[0]);
            let names = match (color, modifier.is_empty()) {
                (Color::Reset, true) => String::new(),
                (Color::Reset, false) => format!("{modifier:?}"),
                (_, true) => color.to_string(),
                (_, false) => format!("{color} {modifier:?}"),
            };
            match names.is_empty() {
                true => line.push_str(&symbols),
                false => write!(line, "{{{names}:{symbols}}}").expect("a text"),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[test]
fn queues() {
    assert_snapshot!("queues_80x24", lines(&full()));
    assert_snapshot!("queues_200x50", text(&drawn(&full(), (200, 50), true)));
    assert_snapshot!("queues_with_colours", painted(&drawn(&full(), (80, 24), true)));
    let plain = drawn(&full(), (80, 24), false);
    assert_snapshot!("queues_without_colours", painted(&plain));
    assert!(plain.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    // Colours are no part of what is said.
    assert_eq!(text(&plain), lines(&full()));
}

#[test]
fn a_rate_that_nobody_counts_is_not_shown_as_zero() {
    let mut model = full();
    let rate_of_mails = |model: &Model| {
        let screen = lines(model);
        let line = screen.lines().find(|line| line.contains("mails")).expect("the queue is there");
        line.split_whitespace().filter(|value| *value == "0").count()
    };
    let counted = rate_of_mails(&model);
    model.queues[1].done = Vec::new();
    assert_eq!(rate_of_mails(&model), counted - 1, "{}", lines(&model));
}

#[test]
fn before_anything_was_read() {
    assert_snapshot!("before_anything_was_read", lines(&fresh()));
}

#[test]
fn a_queue_that_cannot_be_read() {
    let mut model = full();
    let mut queues = super::queues();
    queues[1].backlog = Err("no such table: mails\n- the table `mails` is missing".to_owned());
    model.told(News::Read(Box::new(Snapshot { queues: Some(queues), ..snapshot() })));
    assert_snapshot!("a_queue_that_cannot_be_read", lines(&model));
}

#[test]
fn the_other_tabs() {
    let mut model = full();
    press(&mut model, "2");
    assert_snapshot!("running", lines(&model));
    press(&mut model, "3");
    assert_snapshot!("errors", lines(&model));
    press(&mut model, "5");
    assert_snapshot!("pollers", lines(&model));
    assert_snapshot!("rows", lines(&with_rows()));
    assert_snapshot!("rows_200x50", text(&drawn(&with_rows(), (200, 50), true)));
}

#[test]
fn nobody_registers() {
    let mut model = full();
    model.told(News::Read(Box::new(Snapshot { pollers: Some(None), ..snapshot() })));
    press(&mut model, "2");
    assert_snapshot!("nobody_registers", lines(&model));
}

#[test]
fn a_row_and_a_group_of_errors() {
    let mut model = with_rows();
    press(&mut model, "\n");
    let long = "a sentence with words ".repeat(12);
    let text = vec![
        Paragraph::text("failed for good after 3 tries: card declined"),
        Paragraph::text(""),
        Paragraph::named("id", "17"),
        Paragraph { is_dim: true, ..Paragraph::named("api_token", "[hidden]") },
        Paragraph::named("note", "\u{1b}]0;owned\u{7}"),
        Paragraph::named("last_attempt_error_message", format!("card declined\n{long}")),
    ];
    model.told(News::Explained(place("17"), Some(text)));
    assert_snapshot!("a_row", lines(&model));
    let mut model = full();
    press(&mut model, "3\n");
    assert_snapshot!("a_group_of_errors", lines(&model));
}

#[test]
fn the_help() {
    let mut model = full();
    press(&mut model, "?");
    assert_snapshot!("help", lines(&model));
    model.read_only = true;
    assert_snapshot!("help_of_a_read_only_screen", lines(&model));
}

#[test]
fn questions() {
    let mut model = with_rows();
    press(&mut model, "/company_id = 3345 and amount = 'x'\n");
    assert_snapshot!("a_filter_that_was_refused", lines(&model));
    press(&mut model, "\u{1b}p");
    assert_snapshot!("a_reason", lines(&model));
    let change =
        Change { operate: Operate::RetryNow, target: Target::Group { queue: 0, pattern: "card declined: <n>".into() } };
    model.dialog = Dialog::Confirming(change, found(412, None));
    assert_snapshot!("a_question", lines(&model));
    press(&mut model, "y");
    model.told(News::Progress { done: 200, of: 412 });
    assert_snapshot!("a_change_at_work", lines(&model));
}

#[test]
fn a_long_filter_is_seen_at_its_end_and_its_fault_is_marked() {
    let mut model = with_rows();
    let long = "company_id = 1 and ".repeat(8);
    press(&mut model, &format!("/{long}nonsense = 1\n"));
    assert_snapshot!("a_long_filter_that_was_refused", lines(&model));
}

#[test]
fn without_a_connection() {
    let mut model = full();
    model.now += chrono::Duration::seconds(65);
    model.told(News::Lost {
        why: "cannot connect to postgres://shop@db/shop: refused".into(),
        pause: Duration::from_secs(4),
    });
    model.now += chrono::Duration::seconds(1);
    assert_snapshot!("without_a_connection", lines(&model));
    let mut model = full();
    model.told(News::Busy(true));
    model.now += chrono::Duration::seconds(5);
    assert!(lines(&model).contains("the database has not answered for 5s"));
    model.now += chrono::Duration::seconds(40);
    assert!(lines(&model).contains("no answer for 45s: r connects anew"));
}

#[test]
fn a_small_terminal_is_told_so() {
    for size in [(59, 24), (80, 14), (20, 4), (1, 1), (5, 0)] {
        let screen = text(&drawn(&full(), size, true));
        assert!(size.0 < 20 || screen.contains("too small"), "{screen}");
    }
    assert!(lines(&full()).contains("payments"));
    // The smallest one shows the queues, and a question beside them.
    let mut model = full();
    press(&mut model, "p");
    let screen = text(&drawn(&model, (60, 15), true));
    assert!(screen.contains("payments") && screen.contains("because"), "{screen}");
}

#[test]
fn nothing_of_a_row_is_obeyed() {
    let hostile = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}');
    let mut model = with_rows();
    for keys in ["1", "2", "3", "3\n", "4", "5"] {
        press(&mut model, keys);
        let screen = lines(&model);
        assert!(!screen.lines().any(|line| line.contains(hostile)), "{screen}");
    }
}
