//! A line that a person types.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A line with a cursor in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Input {
    before: String,
    /// What stands after the cursor.
    after: String,
}

impl Input {
    pub(super) fn new(text: &str) -> Self {
        Input { before: text.to_owned(), after: String::new() }
    }

    pub(super) fn text(&self) -> String {
        format!("{}{}", self.before, self.after)
    }

    /// Returns what stands before the cursor, and after it.
    pub(super) fn parts(&self) -> (&str, &str) {
        (&self.before, &self.after)
    }

    pub(super) fn key(&mut self, key: KeyEvent) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('a') if control => self.home(),
            KeyCode::Char('e') if control => self.end(),
            KeyCode::Char('u') if control => self.before.clear(),
            KeyCode::Char('k') if control => self.after.clear(),
            KeyCode::Char('w') if control => {
                let word = self.before.trim_end().rfind(' ').map_or(0, |at| at + 1);
                self.before.truncate(word);
            }
            KeyCode::Char(c) if !control && !c.is_control() => self.before.push(c),
            KeyCode::Backspace => drop(self.before.pop()),
            KeyCode::Delete => drop(take_first(&mut self.after)),
            KeyCode::Left => {
                if let Some(c) = self.before.pop() {
                    self.after.insert(0, c);
                }
            }
            KeyCode::Right => self.before.extend(take_first(&mut self.after)),
            KeyCode::Home => self.home(),
            KeyCode::End => self.end(),
            _ => {}
        }
    }

    fn home(&mut self) {
        *self = Input { before: String::new(), after: self.text() };
    }

    fn end(&mut self) {
        *self = Input::new(&self.text());
    }
}

fn take_first(text: &mut String) -> Option<char> {
    let first = text.chars().next()?;
    text.drain(..first.len_utf8());
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &[KeyCode]) -> Input {
        let mut input = Input::new("größe = 1");
        keys.iter().for_each(|key| input.key(KeyEvent::from(*key)));
        input
    }

    #[test]
    fn a_line_is_edited_at_the_cursor() {
        use KeyCode::{Backspace, Char, Delete, End, Home, Left, Right};
        assert_eq!(typed(&[Char('2')]).text(), "größe = 12");
        assert_eq!(typed(&[Left, Left, Char('<')]).text(), "größe =< 1");
        assert_eq!(typed(&[Home, Delete, Right, Right, Delete]).parts(), ("rö", "e = 1"));
        assert_eq!(typed(&[Home, Char('g'), End, Backspace]).text(), "ggröße = ");
        assert_eq!(typed(&[Home, Backspace, Left]).text(), "größe = 1");
        assert_eq!(typed(&[Delete, Right]).text(), "größe = 1");
    }

    #[test]
    fn control_keys_remove_words_and_lines() {
        let mut input = Input::new("company_id = 3345");
        input.key(KeyEvent::new(KeyCode::Char('w'), KeyModifiers::CONTROL));
        assert_eq!(input.text(), "company_id = ");
        input.key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
        assert_eq!(input.text(), "");
    }
}
