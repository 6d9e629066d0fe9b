//! What a question asks a person to fill in, read at the terminal line by line. A secret is typed unseen or comes by standard
//! input, never as an argument: other processes see those, and shells keep them.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use serde_json::{Map, Number, Value};

use super::{
    console::plain,
    failure::{Failure, status},
    secret,
};

/// The longest line that is read, in bytes.
const LINE: u64 = 64 << 10;

/// What is filled in for the properties of a JSON Schema of one flat object: what `given` has as `NAME=VALUE`, and for the
/// rest what is typed.
///
/// # Errors
/// A value that does not fit its property, one that is not asked for, and one that is needed and cannot be asked for.
pub fn filled(input: &Value, given: &[String]) -> Result<Map<String, Value>, Failure> {
    let none = Map::new();
    let properties = input.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let mut values = Map::new();
    for pair in given {
        let (name, text) =
            pair.split_once('=').ok_or_else(|| wrong(format!("`{}` is not NAME=VALUE", plain(pair))))?;
        let property =
            properties.get(name).ok_or_else(|| wrong(format!("`{}` is not asked for", plain(name))))?;
        if is_secret(property) {
            return Err(wrong(format!("`{name}` is a secret, which is no argument"))
                .help("leave it out: it is asked for, or read from standard input"));
        }
        values.insert(name.to_owned(), read(name, property, text)?);
    }
    for (name, property) in
        properties.iter().filter(|(name, _)| !values.contains_key(*name)).collect::<Vec<_>>()
    {
        let required = input["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
        if let Some(value) = ask(name, property, required, "--value")? {
            values.insert(name.clone(), value);
        }
    }
    Ok(values)
}

/// What is typed for one property, by default where that has one. `option` is what takes its place where nobody types.
///
/// # Errors
/// It is needed and cannot be asked for.
pub fn needed(name: &str, property: &Value, option: &str) -> Result<Value, Failure> {
    ask(name, property, true, option).map(Option::unwrap_or_default)
}

fn ask(name: &str, property: &Value, required: bool, option: &str) -> Result<Option<Value>, Failure> {
    if is_secret(property) {
        return secret::value(name).map(|value| Some(value.into()));
    }
    if !io::stdin().is_terminal() {
        return match (property.get("default"), required) {
            (Some(default), _) => Ok(Some(default.clone())),
            (None, false) => Ok(None),
            (None, true) => Err(wrong(format!("`{}` is needed", plain(name))).help(match option {
                "--value" => format!("give `--value {}=…`", plain(name)),
                option => format!("give `{option}`"),
            })),
        };
    }
    loop {
        let _ = write!(io::stderr(), "{}", prompt(name, property, required));
        let mut line = String::new();
        let read_line = io::Read::take(io::stdin().lock(), LINE).read_line(&mut line);
        if read_line.map_err(|error| wrong(format!("nothing can be read: {error}")))? == 0 {
            return Err(wrong("nothing was filled in; the question still waits"));
        }
        let line = line.trim_end_matches(['\n', '\r']);
        match (line.is_empty(), property.get("default")) {
            (true, Some(default)) => return Ok(Some(default.clone())),
            (true, None) if !required => return Ok(None),
            _ => {}
        }
        match read(name, property, line) {
            Ok(value) => return Ok(Some(value)),
            Err(failure) => {
                let _ = writeln!(io::stderr(), "{failure}");
            }
        }
    }
}

/// What is asked, on one line. All of it may have been written by strangers.
fn prompt(name: &str, property: &Value, required: bool) -> String {
    let text = |key: &str| property.get(key).and_then(Value::as_str).map(plain);
    let mut prompt = text("title").unwrap_or_else(|| plain(name));
    if let Some(description) = text("description") {
        prompt += &format!(" ({description})");
    }
    let choices = choices(property);
    if !choices.is_empty() {
        let several = if property["type"] == "array" { ", several with commas" } else { "" };
        prompt +=
            &format!(" [{}{several}]", choices.iter().map(|one| plain(one)).collect::<Vec<_>>().join(" | "));
    } else if property["type"] == "boolean" {
        prompt += " [yes | no]";
    }
    match property.get("default") {
        Some(default) => prompt += &format!(" (if left empty: {})", plain(&default.to_string())),
        None if !required => prompt += " (may be left empty)",
        None => {}
    }
    prompt + ": "
}

/// A text as the value that its property takes. Whether it fits in full, the daemon says.
fn read(name: &str, property: &Value, text: &str) -> Result<Value, Failure> {
    let kind = property.get("type").and_then(Value::as_str).unwrap_or_default();
    let not = |what: &str| wrong(format!("`{}` is {what}", plain(name)));
    Ok(match kind {
        "integer" => text.trim().parse::<i64>().map_err(|_| not("a whole number"))?.into(),
        "number" => {
            let number: f64 = text.trim().parse().map_err(|_| not("a number"))?;
            Number::from_f64(number).ok_or_else(|| not("a number"))?.into()
        }
        "boolean" => match text.trim().to_ascii_lowercase().as_str() {
            "yes" | "y" | "true" => true.into(),
            "no" | "n" | "false" => false.into(),
            _ => return Err(not("`yes` or `no`")),
        },
        "array" => text.split(',').map(str::trim).filter(|one| !one.is_empty()).map(Value::from).collect(),
        _ => text.into(),
    })
}

/// The texts among which one chooses; none where it is no choice.
fn choices(property: &Value) -> Vec<String> {
    let of = if property["type"] == "array" { &property["items"] } else { property };
    let texts = |key: &str| of.get(key).and_then(Value::as_array).into_iter().flatten();
    let plain = texts("enum").filter_map(Value::as_str);
    let titled = texts("oneOf").chain(texts("anyOf")).filter_map(|one| one["const"].as_str());
    plain.chain(titled).map(str::to_owned).collect()
}

fn is_secret(property: &Value) -> bool {
    property["writeOnly"] == Value::Bool(true)
}

fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(status::FAILED, message.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_become_what_their_property_takes() {
        let input = json!({"type": "object", "required": ["days"], "properties": {
            "days": {"type": "integer"}, "share": {"type": "number"}, "loud": {"type": "boolean"},
            "who": {"type": "string", "oneOf": [{"const": "a", "title": "Anna"}, {"const": "b"}]},
            "all": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}},
            "KEY": {"type": "string", "writeOnly": true},
        }});
        let good = ["days=3", "share=0.5", "loud=yes", "who=a", "all=x, y"].map(String::from);
        let mut without = input.clone();
        without["properties"].as_object_mut().expect("an object").remove("KEY");
        let values = filled(&without, &good).expect("all of it fits");
        let expected = json!({"days": 3, "share": 0.5, "loud": true, "who": "a", "all": ["x", "y"]});
        assert_eq!(Value::Object(values), expected);
        for bad in ["days=three", "share=x", "loud=perhaps", "other=1", "days", "KEY=hunter2"] {
            let refused = filled(&input, &[bad.to_owned()]).expect_err("it does not fit").to_string();
            assert!(!refused.contains("hunter2"), "{refused}");
        }
        assert_eq!(prompt("who", &input["properties"]["who"], true), "who [a | b]: ");
    }
}
