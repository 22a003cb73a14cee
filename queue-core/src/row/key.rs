//! The primary key of a row, with a text that tells it from every other key: the database's text, and never that of
//! `Debug`. Keys and times as SQL literals. And the key for external calls: the same for all attempts of an occasion, and different for every other one.

use std::any::{Any, type_name};
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use chrono::{DateTime, Datelike, Timelike, Utc};
use sha2::{Digest, Sha256};

use super::details::Details;
use super::time::Instant;

/// A primary key: its value, and the text that the database gives for it. Keys are compared by their texts, so a type
/// whose `Debug` masks a part of the value still has as many keys as it has rows.
///
/// The text is printable ASCII without spaces. `%`, `:` and `,` and all other bytes are written as `%` and two
/// hexadecimal digits. Commas separate the parts of a key of several columns. Bytes that are not UTF-8 begin with `0x`.
#[derive(Clone)]
pub struct RowKey<K> {
    value: K,
    text: Arc<str>,
    /// The database's text as it is, if keys of this type may read as one that the database tells apart.
    stored: Option<Arc<str>>,
}

impl<K> RowKey<K> {
    /// Makes the key with this value and this text.
    pub fn new(value: K, text: impl Into<Arc<str>>) -> Self {
        RowKey { value, text: text.into(), stored: None }
    }

    /// Makes the key of a row that is named by its value, for statements that find it by that alone.
    pub(crate) fn of(value: K) -> Self {
        RowKey::new(value, "")
    }

    /// Makes the same key of the one row whose key has this text in the database, of all rows whose keys read as this value.
    pub(crate) fn stored_as(self, stored: &str) -> Self {
        RowKey { stored: Some(stored.into()), ..self }
    }

    /// Returns the text.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Returns the value.
    pub fn value(&self) -> &K {
        &self.value
    }

    /// Returns the text by which the database tells its row from others whose keys read as the same value.
    pub(crate) fn stored(&self) -> Option<&Arc<str>> {
        self.stored.as_ref()
    }

    /// Returns what no other key has: SQLite's number `1` and text `'1'` have the same text.
    pub(crate) fn identity(&self) -> &Arc<str> {
        self.stored.as_ref().unwrap_or(&self.text)
    }
}

impl<K> Deref for RowKey<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.value
    }
}

impl<K> PartialEq for RowKey<K> {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl<K> Eq for RowKey<K> {}

impl<K> PartialOrd for RowKey<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for RowKey<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.identity().cmp(other.identity())
    }
}

impl<K> Hash for RowKey<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl<K> fmt::Debug for RowKey<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<K> fmt::Display for RowKey<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The application chooses the crate, so its type is recognized by name. Its text is checked all the same.
pub(crate) const UUID: &str = "uuid::Uuid";

/// Returns the text of a key that is a whole number.
pub(crate) fn integer_text(key: &dyn Any) -> Option<String> {
    let text = key.downcast_ref::<i64>().map(i64::to_string);
    text.or_else(|| key.downcast_ref::<i32>().map(i32::to_string))
        .or_else(|| key.downcast_ref::<i16>().map(i16::to_string))
}

/// Returns the value as an SQL literal, if it is a whole number, a UUID or a plain word. Everywhere else statements bind their
/// values: a text with several statements takes no binds, and is one round trip.
pub(crate) fn literal<K: Any>(key: &RowKey<K>) -> Option<String> {
    let value: &dyn Any = key.value();
    if let Some(number) = integer_text(value) {
        return Some(number);
    }
    let word = match value.downcast_ref::<String>() {
        Some(word) => word.clone(),
        None if type_name::<K>() == UUID => key.text().to_string(),
        None => return None,
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/' | '@');
    word.chars().all(is_plain).then(|| format!("'{word}'"))
}

/// Returns the time as an SQL literal, with the microseconds that the databases store. `zone`: how the database writes that it
/// is UTC. `None`: the databases write such a year in ways of their own.
pub(crate) fn time_literal(time: Instant, zone: &str) -> Option<String> {
    let time = DateTime::<Utc>::from(time);
    // Every message has such a time, and this costs a third of reading a format.
    (1..=9999).contains(&time.year()).then(|| {
        format!(
            "'{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:06}{zone}'",
            time.year(),
            time.month(),
            time.day(),
            time.hour(),
            time.minute(),
            time.second(),
            time.timestamp_subsec_micros()
        )
    })
}

/// How a database gives the text of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextForm {
    /// As it is. In a key of several parts, each part has `%` and `,` written as `%25` and `%2C`.
    Text,
    /// The bytes in hexadecimal.
    Hex,
    /// An SQL literal of the value in hexadecimal, which distinguishes a number from a text and from bytes.
    HexOfLiteral,
}

impl TextForm {
    /// Stands in a statement for null: no value has this text.
    pub(crate) const NULL: &'static str = "%";

    /// Tells whether the database may store a value of any type in a column, so that its text says of which.
    pub(crate) fn tells_types(self) -> bool {
        self == TextForm::HexOfLiteral
    }

    /// Reads the text of a value that may be null, as this database returned it.
    pub(crate) fn read_value(self, given: &str) -> Option<String> {
        // SQLite has a literal for null, too.
        let is_null = given == Self::NULL || (self == TextForm::HexOfLiteral && given == "4E554C4C");
        (!is_null).then(|| self.read_part(given))
    }

    /// Reads the text of a key with `parts` parts, as this database returned it.
    pub(crate) fn read_key(self, given: &str, parts: usize) -> String {
        if self == TextForm::Text && parts == 1 {
            return escaped(given.as_bytes());
        }
        given.split(',').map(|part| self.read_part(part)).collect::<Vec<_>>().join(",")
    }

    /// Reads the text of one of several parts, as this database returned it.
    pub(crate) fn read_part(self, given: &str) -> String {
        match self {
            TextForm::Text => escaped(given.replace("%2C", ",").replace("%25", "%").as_bytes()),
            TextForm::Hex => bytes_of(given).map_or_else(|| escaped(given.as_bytes()), |bytes| text_or_bytes(&bytes)),
            TextForm::HexOfLiteral => {
                bytes_of(given).map_or_else(|| escaped(given.as_bytes()), |literal| literal_text(&literal))
            }
        }
    }
}

/// The largest length of a key in bytes. Services accept 255 characters or more.
const LONGEST: usize = 255;

/// How much of a queue's name stands before a digest of the whole key. The rest of [`LONGEST`] is for the digest.
const LONGEST_NAME: usize = 180;

/// Returns the name of a queue in its keys: its table, with the schema that `table!` names, and its status column.
pub(crate) fn queue_name(schema: Option<&str>, table: &str, status: &str) -> String {
    let name = |name: &str| escaped(name.as_bytes()).replace('.', "%2E");
    let names = schema.into_iter().chain([table, status]).map(name);
    names.collect::<Vec<_>>().join(".")
}

/// Makes the key of a row's current occasion. Its format never changes between releases, because a service may have
/// stored a key.
///
/// It leaves out what an entity does not have, and counts of 0, so that a row keeps its key when its entity begins to
/// ask for such a column.
pub(crate) fn idempotency_key<K>(queue: &str, key: &RowKey<K>, details: &Details) -> String {
    let mut parts = String::new();
    let mut part = |name: &str, value: &str| {
        parts.push(':');
        parts.push_str(name);
        parts.push('=');
        parts.push_str(value);
    };
    if let Some(stage) = &details.stage {
        part("stage", &escaped(stage.as_bytes()));
    }
    if let Some(version) = &details.version {
        part("version", version);
    }
    if let Some(content) = details.change_count.filter(|count| *count != 0) {
        part("content", &content.to_string());
    }
    if let Some(occasion) = details.occasion.filter(|count| *count != 0) {
        part("occasion", &occasion.to_string());
    }
    let whole = format!("{queue}:{key}{parts}");
    if whole.len() <= LONGEST {
        return whole;
    }
    // The parts are more useful to a reader of the key than a long text.
    let readable = format!("{queue}:{}{parts}", digest(key.text()));
    if readable.len() <= LONGEST {
        return readable;
    }
    // This cannot equal a key whose text is such a digest, because that text holds no colon.
    format!("{}:{}", &queue[..queue.len().min(LONGEST_NAME)], digest(&whole))
}

fn digest(text: &str) -> String {
    format!("sha256-{}", hex_of(&Sha256::digest(text.as_bytes())))
}

/// Returns the bytes that a hexadecimal text stands for.
pub(crate) fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        hex.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| (byte << 4) | digit)).collect())
}

/// Writes bytes as hexadecimal digits.
fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Returns the text of bytes that are UTF-8, or else the bytes in hexadecimal.
fn text_or_bytes(bytes: &[u8]) -> String {
    if std::str::from_utf8(bytes).is_ok() { escaped(bytes) } else { format!("0x{}", hex_of(bytes)) }
}

/// Reads a literal as SQLite writes it: a text between quotes, bytes in hexadecimal after an X, or a number.
fn literal_text(literal: &[u8]) -> String {
    match literal {
        [b'\'', text @ .., b'\''] => {
            let mut bytes = Vec::with_capacity(text.len());
            let mut rest = text.iter().copied().peekable();
            while let Some(byte) = rest.next() {
                // A quote inside the text is doubled.
                if byte == b'\'' && rest.peek() == Some(&b'\'') {
                    rest.next();
                }
                bytes.push(byte);
            }
            text_or_bytes(&bytes)
        }
        [b'X', b'\'', hex @ .., b'\''] => format!("0x{}", String::from_utf8_lossy(hex).to_ascii_lowercase()),
        number => escaped(number),
    }
}

/// Writes bytes as printable ASCII, without spaces, separators and anything that could be read as something else. No
/// two sequences of bytes have the same text.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for (place, byte) in bytes.iter().enumerate() {
        // Bytes that are not UTF-8, and digests, have prefixes of their own, so a text must not begin with one.
        let misleads = place == 0 && (bytes.starts_with(b"0x") || bytes.starts_with(b"sha256-"));
        if byte.is_ascii_graphic() && !matches!(byte, b'%' | b':' | b',') && !misleads {
            text.push(char::from(*byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_its_microseconds_in_every_century() {
        for (time, expected) in [
            ("2026-01-02T03:04:05.000007Z", Some("'2026-01-02 03:04:05.000007+00'")),
            ("0099-12-31T23:59:59.999999Z", Some("'0099-12-31 23:59:59.999999+00'")),
            ("+12026-01-02T03:04:05Z", None),
            ("0000-01-02T03:04:05Z", None),
        ] {
            let time: DateTime<Utc> = time.parse().expect("a time");
            assert_eq!(time_literal(time.into(), "+00").as_deref(), expected);
        }
    }

    #[test]
    fn numbers_and_plain_words_are_literals_and_nothing_else_is() {
        fn literal<K: Any + Clone>(value: &K) -> Option<String> {
            super::literal(&RowKey::new(value.clone(), "its text"))
        }
        assert_eq!(literal(&-42_i64).as_deref(), Some("-42"));
        assert_eq!(literal(&i32::MIN).as_deref(), Some("-2147483648"));
        assert_eq!(literal(&7_i16).as_deref(), Some("7"));
        assert_eq!(literal(&"INV-7/2026".to_owned()).as_deref(), Some("'INV-7/2026'"));
        for doubtful in ["it's", "a\\b", "ä", "a b", "x;y", "$1"] {
            assert_eq!(literal(&doubtful.to_owned()), None, "{doubtful}");
        }
        assert_eq!(literal(&(1_i64, 2_i64)), None);
        assert_eq!(literal(&vec![1_u8]), None);
    }

    #[test]
    fn every_database_gives_one_text_for_a_key() {
        let hex = |text: &str| hex_of(text.as_bytes()).to_uppercase();
        assert_eq!(TextForm::Text.read_key("42", 1), "42");
        assert_eq!(TextForm::Hex.read_key(&hex("42"), 1), "42");
        assert_eq!(TextForm::HexOfLiteral.read_key(&hex("42"), 1), "42");
        assert_eq!(TextForm::Text.read_key("it's", 1), "it's");
        assert_eq!(TextForm::Hex.read_key(&hex("it's"), 1), "it's");
        assert_eq!(TextForm::HexOfLiteral.read_key(&hex("'it''s'"), 1), "it's");
        assert_eq!(TextForm::Text.read_key("a%2Cb,c%25", 2), "a%2Cb,c%25");
        assert_eq!(TextForm::Hex.read_key(&format!("{},{}", hex("a,b"), hex("c%")), 2), "a%2Cb,c%25");
        assert_eq!(TextForm::Hex.read_key("FF00", 1), "0xff00");
        assert_eq!(TextForm::HexOfLiteral.read_key(&hex("X'FF00'"), 1), "0xff00");
        assert_eq!(TextForm::HexOfLiteral.read_value(&hex("NULL")), None);
        assert_eq!(TextForm::HexOfLiteral.read_value(&hex("'NULL'")).as_deref(), Some("NULL"));
        assert_eq!(TextForm::Text.read_value("%"), None);
        assert_eq!(TextForm::Text.read_value("%25").as_deref(), Some("%25"));
    }

    #[test]
    fn no_two_keys_have_one_text() {
        assert_eq!(escaped(b"a b:c,d%"), "a%20b%3Ac%2Cd%25");
        assert_eq!(escaped("ä".as_bytes()), "%C3%A4");
        assert_eq!(escaped(b"0xff"), "%30xff");
        assert_eq!(escaped(b"sha256-00"), "%73ha256-00");
        // One part with a comma, and two parts.
        assert_ne!(TextForm::Text.read_key("a,b", 1), TextForm::Text.read_key("a,b", 2));
    }

    #[test]
    fn keys_are_known_by_their_texts() {
        struct Masked;
        let key = |text: &str| RowKey::new(Masked, text);
        assert!(key("1") == key("1") && key("1") != key("2") && key("1") < key("2"));
        assert_eq!(format!("{} {:?}", key("1"), key("2")), "1 2");
    }

    #[test]
    fn hexadecimal_text_is_read() {
        assert_eq!(bytes_of("3133").as_deref(), Some(&b"13"[..]));
        assert_eq!(bytes_of("").as_deref(), Some(&b""[..]));
        assert_eq!(bytes_of("zz"), None);
        assert_eq!(bytes_of("123"), None);
    }

    fn key(queue: &str, text: &str, details: &Details) -> String {
        let key = idempotency_key(queue, &RowKey::new((), text), details);
        assert!(key.len() <= LONGEST && key.bytes().all(|byte| byte.is_ascii_graphic()), "{key}");
        key
    }

    #[test]
    fn a_key_names_the_queue_the_row_and_the_occasion() {
        let none = Details::default();
        assert_eq!(key("payments.status", "42", &none), "payments.status:42");
        let all = Details {
            stage: Some("Send it".to_owned()),
            version: Some("7".to_owned()),
            change_count: Some(3),
            occasion: Some(2),
            ..none
        };
        assert_eq!(
            key("payments.status", "42", &all),
            "payments.status:42:stage=Send%20it:version=7:content=3:occasion=2"
        );
        let zero = Details { change_count: Some(0), occasion: Some(0), ..Details::default() };
        assert_eq!(key("payments.status", "42", &zero), "payments.status:42");
    }

    #[test]
    fn a_long_key_bears_a_digest_and_still_says_what_it_can() {
        let occasion = Details { occasion: Some(2), ..Details::default() };
        let long = "k".repeat(300);
        let of_text = key("payments.status", &long, &occasion);
        assert!(of_text.starts_with("payments.status:sha256-") && of_text.ends_with(":occasion=2"), "{of_text}");
        assert_eq!(of_text.len(), "payments.status:sha256-:occasion=2".len() + 64);
        let other = "k".repeat(299) + "j";
        assert_ne!(of_text, key("payments.status", &other, &occasion));
        let stage = Details { stage: Some("s".repeat(300)), ..Details::default() };
        let of_all = key("payments.status", "42", &stage);
        assert!(of_all.starts_with("payments.status:sha256-") && of_all.len() == "payments.status:sha256-".len() + 64);
        assert_ne!(of_all, key("payments.status", "43", &stage));
        assert_eq!(key(&"q".repeat(400), "42", &stage).len(), LONGEST_NAME + 1 + "sha256-".len() + 64);
    }

    #[test]
    fn a_queue_has_one_name() {
        assert_eq!(queue_name(None, "payments", "status"), "payments.status");
        assert_eq!(queue_name(Some("shop"), "payments", "q_status"), "shop.payments.q_status");
        assert_ne!(queue_name(Some("a"), "b", "c"), queue_name(None, "a.b", "c"));
        assert_eq!(queue_name(None, "Überweisung en", "status"), "%C3%9Cberweisung%20en.status");
    }
}
