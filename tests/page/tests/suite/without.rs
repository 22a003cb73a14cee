//! The same for people who have switched off scripts, and for those who use no mouse.

use super::operation::watch_and_stop;
use super::whole_way::{Hand, go_the_whole_way};
use crate::browser::Browser;

#[test]
fn a_person_without_scripts_does_the_same() {
    go_the_whole_way(Browser::without_scripts(), Hand::Mouse);
}

#[test]
fn a_person_without_a_mouse_does_the_same() {
    go_the_whole_way(Browser::new(), Hand::Keyboard);
}

#[test]
fn an_operation_is_watched_and_stopped_without_scripts() {
    watch_and_stop(&Browser::without_scripts());
}
