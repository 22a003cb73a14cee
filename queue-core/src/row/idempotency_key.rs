//! The key for external calls: the same for all attempts of an occasion, and different for every other occasion.

use sha2::{Digest, Sha256};

use super::details::Details;
use super::row_key::{RowKey, escaped, hex_of};

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

#[cfg(test)]
mod tests {
    use super::*;

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
