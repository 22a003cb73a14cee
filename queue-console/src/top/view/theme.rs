//! Colours and marks. Nothing is said by a colour alone.

use ratatui::style::{Color, Modifier, Style};

#[derive(Debug, Clone, Copy)]
pub(in crate::top) struct Theme {
    pub(in crate::top) is_coloured: bool,
}

impl Theme {
    pub(super) fn bad(self) -> Style {
        self.of(Color::Red, Modifier::BOLD)
    }

    pub(super) fn warns(self) -> Style {
        self.of(Color::Yellow, Modifier::empty())
    }

    pub(super) fn good(self) -> Style {
        self.of(Color::Green, Modifier::empty())
    }

    pub(super) fn dim(self) -> Style {
        self.of(Color::DarkGray, Modifier::empty())
    }

    pub(super) fn title(self) -> Style {
        self.of(Color::Cyan, Modifier::BOLD)
    }

    pub(super) fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn of(self, color: Color, modifier: Modifier) -> Style {
        let style = Style::new().add_modifier(modifier);
        if self.is_coloured { style.fg(color) } else { style }
    }
}
