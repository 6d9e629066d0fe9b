//! The keys at the head of a `SKILL.md`, which must be those that its server lists. Pure.

use serde_json::{Map, Value};

use crate::definition::NotOffered;

/// The lines between which the keys stand.
const FENCE: &str = "---";

/// How deep keys may be nested, and how many of the parser's events they may take.
const DEPTH: usize = 32;
const EVENTS: usize = 20_000;

/// Divides a file into its keys and its instructions; the fault is the end of a sentence.
pub fn split(text: &str) -> Result<(&str, &str), NotOffered> {
    let missing = || NotOffered("no keys stand between two lines `---` at its beginning".to_owned());
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let first = text.split_inclusive('\n').next().unwrap_or_default();
    if first.trim_end() != FENCE {
        return Err(missing());
    }
    let rest = &text[first.len()..];
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == FENCE {
            return Ok((&rest[..end], &rest[end + line.len()..]));
        }
        end += line.len();
    }
    Err(missing())
}

/// The keys, as JSON. Anchors stand for little, and nothing is deep: whoever wrote them may wish harm.
pub fn read(yaml: &str) -> Result<Value, NotOffered> {
    let budget = serde_yaml::budget! {
        max_events: EVENTS,
        max_aliases: 64,
        max_anchors: 64,
        max_recorded_anchor_events: EVENTS,
        max_recorded_anchor_bytes: 1 << 20,
        flow_nesting_limit: DEPTH,
        max_depth: DEPTH,
    };
    let options = serde_yaml::options! { budget: budget, strict_booleans: true };
    let keys: Map<String, Value> = serde_yaml::from_str_with_options(yaml, options)
        .map_err(|_| NotOffered("the keys cannot be read as YAML".to_owned()))?;
    Ok(Value::Object(keys))
}

/// The first key that two heads do not have in common.
pub fn difference(listed: &Value, told: &Value) -> Option<String> {
    let (Value::Object(listed), Value::Object(told)) = (listed, told) else { return Some(String::new()) };
    let keys = listed.keys().chain(told.keys());
    keys.into_iter()
        .find(|key| !listed.get(*key).zip(told.get(*key)).is_some_and(|(one, other)| is_same(one, other)))
        .cloned()
}

/// Whether two values are the same. A number is what it amounts to: JavaScript writes 1.0 as 1.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, one)| other.get(key).is_some_and(|other| is_same(one, other)))
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_and_instructions_are_divided_as_other_readers_do() {
        for text in ["---\nname: a\n---\nDo.\n", "\u{feff}---  \r\nname: a\r\n---\r\nDo.\n"] {
            let (head, body) = split(text).expect("it has a head");
            assert_eq!((read(head), body), (Ok(json!({"name": "a"})), "Do.\n"), "{text:?}");
        }
        for text in ["", "name: a", "---\nname: a\n", "text\n---\nname: a\n---\n", "----\na: b\n----\n"] {
            assert!(split(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn heads_are_the_same_by_what_they_amount_to() {
        let told =
            read("name: a\nmetadata:\n  version: 1.0\n  n: 3\n  on: yes\n  list: [x, ~]\n").expect("YAML");
        let listed =
            json!({"name": "a", "metadata": {"version": 1, "n": 3, "on": "yes", "list": ["x", null]}});
        assert_eq!(difference(&listed, &told), None);
        for (other, key) in [
            (json!({"name": "b", "metadata": listed["metadata"]}), "name"),
            (json!({"name": "a"}), "metadata"),
            (json!({"name": "a", "metadata": listed["metadata"], "more": 1}), "more"),
            (json!({"name": "a", "metadata": {"version": "1"}}), "metadata"),
        ] {
            assert_eq!(difference(&other, &told).as_deref(), Some(key));
        }
    }

    #[test]
    fn what_would_not_end_or_is_no_map_is_refused() {
        let deep = format!("a: {}{}", "[".repeat(5000), "]".repeat(5000));
        let nested: String = (0..2000).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let inner = format!("*a{}", level - 1);
            bomb += &format!("a{level}: &a{level} [{}]\n", vec![inner; 10].join(", "));
        }
        for yaml in [deep.as_str(), &nested, &bomb, "- a", "text", "a: 1\na: 2", "a: b: c", "? {a: b}\n: c"] {
            assert!(read(yaml).is_err(), "{}", &yaml[..yaml.len().min(40)]);
        }
    }
}
