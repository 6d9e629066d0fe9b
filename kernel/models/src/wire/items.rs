//! What a provider wants to get back with its answer: reasoning that it signed or sealed, signatures of calls.
//!
//! The record of an answer holds its text and its calls in order; an item says before which of these parts it came,
//! so that the answer can be written again as it was. Items go back to the model that they came from and to no other,
//! by its kind, provider and name: a seal is of one model, and another account cannot open it.

use drupe_extension_api::{Message, ProviderItems};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Where an item belongs: before the text is 0, before the n-th call is n, counted from 1.
const AT: &str = "at";

/// Puts an item, which is an object, in its place.
pub(crate) fn place(mut item: Value, at: usize) -> Value {
    if let Value::Object(object) = &mut item {
        object.insert(AT.to_owned(), at.into());
    }
    item
}

/// Bytes of the texts in an item.
pub(crate) fn bytes(item: &Value) -> usize {
    match item {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + bytes(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}

/// The items of an answer that go back to the model of `origin`.
pub(crate) fn of<'a>(message: &'a Message, origin: &str) -> &'a [Value] {
    match message {
        Message::Assistant {
            provider_items: Some(ProviderItems { kind: theirs, items: Value::Array(list) }),
            ..
        } if theirs == origin => list,
        _ => &[],
    }
}

/// An item as it was before it was put in its place.
pub(crate) struct Unplaced<'a>(pub(crate) &'a Value);

impl Serialize for Unplaced<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let item = self.0.as_object().into_iter().flatten();
        serializer.collect_map(item.filter(|(key, _)| *key != AT))
    }
}

pub(crate) fn place_of(item: &Value) -> Option<usize> {
    usize::try_from(item.get(AT)?.as_u64()?).ok()
}

/// Those of them that belong before part `at`.
pub(crate) fn before(items: &[Value], at: usize) -> impl Iterator<Item = &Value> {
    items.iter().filter(move |item| place_of(item) == Some(at))
}
