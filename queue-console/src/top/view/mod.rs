//! Draws the model.

mod grid;
mod lines;
mod lists;
mod over;
mod theme;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;

use self::grid::Grid;
pub(super) use self::theme::Theme;
use super::dialog::Dialog;
use super::model::{Drawn, Model, Tab};

/// A terminal smaller than this shows nothing useful.
const NARROWEST: u16 = 60;
const LOWEST: u16 = 15;

/// Draws, and remembers how far each list is scrolled.
pub(super) struct View {
    theme: Theme,
    first: [usize; Tab::ALL.len()],
}

impl View {
    pub(super) fn new(theme: Theme) -> Self {
        View { theme, first: Default::default() }
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, model: &Model) -> Drawn {
        let area = frame.area();
        if area.width < NARROWEST || area.height < LOWEST {
            let (width, height) = (area.width, area.height);
            let told = format!("{width}x{height} is too small: {NARROWEST}x{LOWEST} is needed; q quits");
            put(frame, area, &over::wrapped(&told, area.width).into_iter().map(Line::from).collect::<Vec<_>>());
            return model.drawn;
        }
        let theme = self.theme;
        let dialog = lines::dialog(model, theme, area.width);
        let status = lines::status(model, theme, area.width);
        let [head, tabs, body, dialog_area, status_area, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(u16::try_from(dialog.len()).unwrap_or(0)),
            Constraint::Length(u16::try_from(status.len()).unwrap_or(0)),
            Constraint::Length(1),
        ])
        .areas(area);
        put(frame, head, &[lines::head(model, theme, area.width)]);
        put(frame, tabs, &[lines::tabs(model, theme)]);
        put(frame, dialog_area, &dialog);
        put(frame, status_area, &status);
        put(frame, keys, &[lines::keys(model, theme)]);
        if let (Dialog::Typing(_, input, _), Some(row)) = (&model.dialog, dialog_area.bottom().checked_sub(1)) {
            frame.set_cursor_position((lines::cursor(input, area.width), row));
        }
        match &model.over {
            Some(over) => over::draw(frame, body, model, over, theme),
            None => self.list(frame, body, model),
        }
    }

    /// Draws the list of the tab, with what is known of the chosen queue below.
    fn list(&mut self, frame: &mut Frame<'_>, body: Rect, model: &Model) -> Drawn {
        let theme = self.theme;
        let below = match model.tab {
            Tab::Queues if body.height > 14 => lists::below_queues(model, theme, body.width),
            _ => Vec::new(),
        };
        // Half of the lines are for the list at least.
        let most = usize::from(body.height / 2);
        let below = &below[..below.len().min(most)];
        let [title, list, below_area] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(u16::try_from(below.len()).unwrap_or(0)),
        ])
        .areas(body);
        put(frame, title, &[Line::styled(grid::clipped(&lists::title(model), body.width), theme.dim())]);
        put(frame, below_area, below);
        let drawn = match lists::refused(model, body.width) {
            Some(lines) => {
                let lines: Vec<_> = lines.into_iter().map(|line| Line::styled(line, theme.bad())).collect();
                put(frame, list, &lines);
                usize::from(list.height)
            }
            None => {
                let grid: Grid = lists::grid(model, theme);
                let first = &mut self.first[model.tab as usize];
                grid.draw(frame, list, model.line(), first, theme)
            }
        };
        Drawn { page: drawn, most: 0, from: 0 }
    }
}

/// Writes lines into an area. What does not fit is cut.
fn put(frame: &mut Frame<'_>, area: Rect, lines: &[Line<'_>]) {
    for (line, row) in lines.iter().zip(area.rows()) {
        frame.render_widget(line, row);
    }
}
