//! Texts of other assistants as JSON: JSON with comments, and TOML; and agents in them as prompts with frontmatter.

use serde_json::{Map, Value};
use toml_edit::{DocumentMut, Item};

use super::gather::NotImported;

/// JSON with comments and commas behind the last of a list, as editors write it.
pub fn json(text: &str) -> Result<Value, NotImported> {
    serde_json::from_str(&without_comments(text))
        .map_err(|error| NotImported(format!("it is no JSON: {error}")))
}

/// The same length, so that places in errors are those of the file.
fn without_comments(text: &str) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut quoted = false;
    while let Some(letter) = rest.next() {
        match (quoted, letter, rest.peek()) {
            (true, '\\', Some(_)) => {
                out.push(letter);
                out.extend(rest.next());
            }
            (_, '"', _) => {
                quoted = !quoted;
                out.push(letter);
            }
            (false, '/', Some('/')) => {
                out.push(' ');
                while let Some(letter) = rest.next_if(|letter| *letter != '\n') {
                    out.push(if letter.is_ascii() { ' ' } else { '\u{a0}' });
                }
            }
            (false, '/', Some('*')) => {
                let mut last = ' ';
                rest.next();
                out.push_str("  ");
                for letter in rest.by_ref() {
                    out.push(if letter == '\n' { '\n' } else { ' ' });
                    if last == '*' && letter == '/' {
                        break;
                    }
                    last = letter;
                }
            }
            (false, ']' | '}', _) => {
                let kept = out.trim_end().len();
                if out[..kept].ends_with(',') {
                    out.replace_range(kept - 1..kept, " ");
                }
                out.push(letter);
            }
            _ => out.push(letter),
        }
    }
    // What stands for letters of comments is white space to people, and not to JSON.
    out.replace('\u{a0}', " ")
}

/// A TOML file. The parser bounds how deep it goes.
pub fn toml(text: &str) -> Result<Map<String, Value>, NotImported> {
    let document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        NotImported(format!("it is no TOML: {}", error.message().lines().next().unwrap_or_default()))
    })?;
    Ok(table(document.iter()))
}

fn table<'a>(entries: impl Iterator<Item = (&'a str, &'a Item)>) -> Map<String, Value> {
    entries.map(|(key, item)| (key.to_owned(), of_item(item))).collect()
}

fn of_item(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => of_value(value),
        Item::Table(inner) => table(inner.iter()).into(),
        Item::ArrayOfTables(all) => all.iter().map(|inner| Value::from(table(inner.iter()))).collect(),
    }
}

fn of_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => text.value().as_str().into(),
        toml_edit::Value::Integer(number) => (*number.value()).into(),
        toml_edit::Value::Float(number) => (*number.value()).into(),
        toml_edit::Value::Boolean(yes) => (*yes.value()).into(),
        toml_edit::Value::Datetime(time) => time.value().to_string().into(),
        toml_edit::Value::Array(list) => list.iter().map(of_value).collect(),
        toml_edit::Value::InlineTable(inner) => {
            let entries = inner.iter().map(|(key, value)| (key.to_owned(), of_value(value)));
            entries.collect::<Map<String, Value>>().into()
        }
    }
}

/// Keys of an agent as the frontmatter of a file without a text below it: each value is JSON, which is YAML.
pub fn frontmatter(keys: &Map<String, Value>) -> String {
    let mut text = "---\n".to_owned();
    for (key, value) in keys {
        let line = format!("{}: {value}\n", Value::from(key.as_str()));
        for letter in line.chars() {
            match letter {
                '\n' => text.push(letter),
                // JSON may have them as they are within a text, and YAML may not.
                letter if drupe_config::acts(letter) || letter == '\u{feff}' => {
                    text += &format!("\\u{:04x}", u32::from(letter));
                }
                letter => text.push(letter),
            }
        }
    }
    text + "---\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn comments_and_last_commas_are_passed_over_and_nothing_of_a_text_is() {
        let text = "\u{feff}{ // é, a \"comment\"\n \"a\": \"// no \\\" comment /* */, ]\", /* more\n */ \"b\": [1, 2, ],\n}";
        assert_eq!(json(text), Ok(json!({"a": "// no \" comment /* */, ]", "b": [1, 2]})));
        assert!(json("{\"a\": 1 /* without an end").is_err());
    }

    #[test]
    fn toml_becomes_json_or_is_refused_by_name() {
        let text = "a = 1\nb = [true, 2.5]\nc = {d = \"x\"}\ne = 2026-11-27\n[f.g]\nh = '''two\nlines'''\n[[i]]\nj = 1\n";
        let expected = json!({"a": 1, "b": [true, 2.5], "c": {"d": "x"}, "e": "2026-11-27",
            "f": {"g": {"h": "two\nlines"}}, "i": [{"j": 1}]});
        assert_eq!(toml(text).map(Value::from), Ok(expected));
        for not in ["a = ", "a = 1\na = 2", &format!("a = {}", "[".repeat(100_000))] {
            assert!(toml(not).is_err_and(|why| why.0.starts_with("it is no TOML: ")), "{}", &not[..5]);
        }
    }

    #[test]
    fn a_key_and_a_value_of_any_text_stay_what_they_are() {
        let keys = json!({"a: b": "c: d\n---\n# e", "f": ["\u{1}\u{7f}", null, {"g": "'"}]});
        let text = frontmatter(keys.as_object().expect("a map"));
        let inner =
            text.strip_prefix("---\n").and_then(|text| text.strip_suffix("---\n")).expect("frontmatter");
        assert_eq!(serde_yaml::from_str::<Value>(inner).expect("YAML"), keys);
    }
}
