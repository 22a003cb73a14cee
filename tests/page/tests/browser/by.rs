//! How a test names what it looks for: as a person would, by what is written there.

use std::fmt;

use fantoccini::Locator;

/// Something on a page.
#[derive(Debug, Clone, Copy)]
pub(crate) enum By<'a> {
    /// A link by its text.
    Link(&'a str),
    /// A button by its text.
    Button(&'a str),
    /// A field of a form by its label.
    Field(&'a str),
    /// A heading by its text.
    Heading(&'a str),
    /// For what has no words.
    Css(&'a str),
}

/// A search as the driver takes it.
pub(super) enum Search {
    Css(String),
    XPath(String),
}

impl Search {
    pub(super) fn locator(&self) -> Locator<'_> {
        match self {
            Search::Css(selector) => Locator::Css(selector),
            Search::XPath(path) => Locator::XPath(path),
        }
    }
}

impl By<'_> {
    pub(super) fn search(self) -> Search {
        let says = |what: &str, text: &str| format!("{what}[normalize-space(.) = {}]", literal(text));
        match self {
            By::Link(text) => Search::XPath(says("//a[@href]", text)),
            By::Button(text) => Search::XPath(format!(
                "{} | //input[@type = 'submit'][@value = {}]",
                says("//button", text),
                literal(text)
            )),
            By::Field(label) => Search::XPath(format!(
                "//*[self::input or self::select or self::textarea][@id = {label}/@for] | {label}//*[self::input or self::select or \
                 self::textarea] | //*[self::input or self::select or self::textarea][normalize-space(@aria-label) = {text}]",
                label = says("//label", label),
                text = literal(label)
            )),
            By::Heading(text) => Search::XPath(says("//*[self::h1 or self::h2 or self::h3 or self::h4]", text)),
            By::Css(selector) => Search::Css(selector.to_owned()),
        }
    }
}

impl fmt::Display for By<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            By::Link(text) => write!(f, "the link {text:?}"),
            By::Button(text) => write!(f, "the button {text:?}"),
            By::Field(label) => write!(f, "the field {label:?}"),
            By::Heading(text) => write!(f, "the heading {text:?}"),
            By::Css(selector) => write!(f, "`{selector}`"),
        }
    }
}

/// A text in XPath, which has no escapes.
fn literal(text: &str) -> String {
    if !text.contains('\'') {
        return format!("'{text}'");
    }
    let parts: Vec<_> = text.split('\'').map(|part| format!("'{part}'")).collect();
    format!("concat({})", parts.join(", \"'\", "))
}
