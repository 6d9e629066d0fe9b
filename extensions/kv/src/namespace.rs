//! One namespace: keys with values, within bounds. Knows no disk.

use std::collections::{BTreeMap, BTreeSet};

use drupe_extension_api::Fault;
use serde_json::Value;

/// The longest key, in bytes: long enough for a path or a URL, short enough for a list of a thousand.
const KEY_BYTES: usize = 256;

/// What a namespace may hold.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes of one value, as JSON.
    pub value_bytes: usize,
    /// Number of keys.
    pub keys: usize,
    /// Bytes of all keys and values.
    pub bytes: usize,
}

/// Values by their keys.
pub type Values = BTreeMap<String, Value>;

/// Keys whose values were stored where text of strangers was read.
pub type Marks = BTreeSet<String>;

/// Keys with values, how much they take, and which of them strangers may have written.
#[derive(Debug, Default)]
pub struct Namespace {
    values: Values,
    bytes: usize,
    strangers: Marks,
}

impl Namespace {
    pub fn new(values: Values, strangers: Marks) -> Self {
        let bytes = values.iter().map(|(key, value)| size(key, value)).sum();
        Self { values, bytes, strangers }
    }

    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Whether strangers may have written what stands under a key.
    pub fn is_of_strangers(&self, key: &str) -> bool {
        self.strangers.contains(key)
    }

    pub fn marks(&self) -> &Marks {
        &self.strangers
    }

    /// Says whether strangers may have written what stands under a key, or will; gives what was said before.
    pub fn mark(&mut self, key: &str, strangers: bool) -> bool {
        match strangers {
            true => !self.strangers.insert(key.to_owned()),
            false => self.strangers.remove(key),
        }
    }

    /// Puts a value under a key, or takes it away; gives what was there.
    pub fn put(&mut self, key: &str, value: Option<Value>) -> Option<Value> {
        self.bytes += value.as_ref().map_or(0, |value| size(key, value));
        let old = match value {
            Some(value) => self.values.insert(key.to_owned(), value),
            None => self.values.remove(key),
        };
        self.bytes -= old.as_ref().map_or(0, |old| size(key, old));
        old
    }

    /// Whether a value may be put under a key.
    pub fn admit(&self, key: &str, value: &Value, bounds: Bounds) -> Result<(), Fault> {
        let length = value.to_string().len();
        if !(1..=KEY_BYTES).contains(&key.len()) {
            return Err(Fault::invalid(format!("a key has 1 to {KEY_BYTES} bytes, this one {}", key.len())));
        }
        if length > bounds.value_bytes {
            let message =
                format!("the value of `{key}` has {length} bytes, the limit is {}", bounds.value_bytes);
            return Err(Fault::invalid(message).help("keep documents in files, and only their paths here"));
        }
        let old = self.values.get(key);
        if old.is_none() && self.values.len() >= bounds.keys {
            let message = format!("`{key}` would be one key more than the limit of {}", bounds.keys);
            return Err(Fault::invalid(message).help("delete keys that are not needed"));
        }
        let bytes = self.bytes + key.len() + length - old.map_or(0, |old| size(key, old));
        if bytes > bounds.bytes {
            let message =
                format!("with `{key}` the store would hold {bytes} bytes, the limit is {}", bounds.bytes);
            return Err(Fault::invalid(message).help("delete keys that are not needed"));
        }
        Ok(())
    }
}

fn size(key: &str, value: &Value) -> usize {
    key.len() + value.to_string().len()
}

/// Whether `text` has the form of `pattern`, in which `*` stands for any text.
///
/// Takes time in proportion to the product of the lengths at most, whatever the pattern: on a mismatch only
/// the last `*` is tried again.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            p += 1;
            t += 1;
        } else if let Some((place, taken)) = star {
            star = Some((place, taken + 1));
            p = place + 1;
            t = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}
