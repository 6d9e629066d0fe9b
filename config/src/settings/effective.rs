//! The effective configuration, for people: every value with who set it, and no secret.

use drupe_redact::names_a_secret;
use serde_json::{Value, json};

use super::{Config, EffectiveValue, ValueOrigin};
use crate::tree::join;

/// Whether a text is the name of one variable, and nothing that could be a secret itself.
fn is_a_placeholder(written: &Value) -> bool {
    let name = written.as_str().and_then(|text| text.strip_prefix("${")?.strip_suffix('}'));
    name.is_some_and(|name| !name.contains(['$', '{', '}']))
}

impl Config {
    /// Every value by its dotted key, sorted. Lists are one value each.
    pub fn effective(&self) -> Vec<EffectiveValue> {
        let mut values = Vec::new();
        let all = serde_json::to_value(self).expect("every declared key has a form in JSON");
        self.flatten("", all, &mut values);
        values.sort_by(|a, b| a.key.cmp(&b.key));
        values
    }

    fn flatten(&self, path: &str, value: Value, out: &mut Vec<EffectiveValue>) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                for (key, value) in map {
                    self.flatten(&join(path, &key), value, out);
                }
            }
            Value::Null => {}
            value => {
                // What was written with placeholders may resolve to a secret; masked values stay masked.
                let masked = value == json!("***");
                let kept =
                    path.strip_prefix("extensions.").is_some_and(|path| path.split('.').any(names_a_secret));
                let value = match self.written.get(path) {
                    Some(written) if !masked && (!kept || is_a_placeholder(written)) => written.clone(),
                    _ if kept => json!("***"),
                    _ => value,
                };
                let origin = self.origins.get(path).cloned().unwrap_or(ValueOrigin::Default);
                out.push(EffectiveValue { key: path.to_owned(), value, origin });
            }
        }
    }
}
