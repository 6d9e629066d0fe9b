//! JSON: each text and each key by itself, so that what is taken out never takes a quotation mark along.

use std::borrow::Cow;

use serde_json::Value;

use crate::mask::Mask;

pub fn apply<'a>(mask: &Mask, body: &'a [u8]) -> Cow<'a, [u8]> {
    if mask.is_empty() {
        return Cow::Borrowed(body);
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(mut value) => {
            let mut found = false;
            clean(mask, &mut value, &mut found);
            if found { Cow::Owned(value.to_string().into_bytes()) } else { Cow::Borrowed(body) }
        }
        Err(_) => match String::from_utf8_lossy(body) {
            text if mask.apply(&text) == text => Cow::Borrowed(body),
            text => Cow::Owned(mask.apply(&text).into_owned().into_bytes()),
        },
    }
}

fn clean(mask: &Mask, value: &mut Value, found: &mut bool) {
    match value {
        Value::String(text) => {
            let shown = mask.apply(text);
            if shown != *text {
                *found = true;
                *text = shown.into_owned();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| clean(mask, item, found)),
        Value::Object(map) => {
            map.values_mut().for_each(|item| clean(mask, item, found));
            if map.keys().any(|key| mask.apply(key) != *key) {
                *found = true;
                let named = std::mem::take(map).into_iter();
                *map = named.map(|(key, item)| (mask.apply(&key).into_owned(), item)).collect();
            }
        }
        _ => {}
    }
}
