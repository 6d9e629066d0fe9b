//! What says of itself that it is a secret.

use serde_json::Value;

/// How names end that say so.
const ENDS: [&str; 7] = ["authorization", "cookie", "key", "passphrase", "password", "secret", "token"];

/// Whether a key, a header or a variable says that it holds a secret, as `api_key`, `Authorization` and `GITHUB_TOKEN` do.
pub fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ENDS.iter().any(|end| name.ends_with(end))
}

/// All texts that are secret or have such a name, with those below them.
pub fn collect<'a>(value: &'a Value, secret: bool, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) if secret => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect(item, secret, found)),
        Value::Object(map) => {
            map.iter().for_each(|(name, item)| collect(item, secret || names_a_secret(name), found));
        }
        _ => {}
    }
}
