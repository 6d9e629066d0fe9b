//! The shapes that the text of an answer has on the wire.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use crate::wire::text::Text;

/// A delta's content: text for most, a list of typed parts for Mistral's models that reason.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) reasoning: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Part<'a> {
    text: Option<Text<'a>>,
    thinking: Option<Content<'a>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Shape)
    }
}

struct Shape;

impl<'de> Visitor<'de> for Shape {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or a list of parts")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Content { text: Cow::Borrowed(text), ..Content::default() })
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Content { text: Cow::Owned(text.to_owned()), ..Content::default() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let mut content = Content::default();
        while let Some(part) = parts.next_element::<Part<'_>>()? {
            content.text.to_mut().push_str(&part.text.unwrap_or_default());
            content.reasoning.to_mut().push_str(&part.thinking.unwrap_or_default().text);
        }
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_read_in_both_shapes() {
        for (json, text, reasoning) in [
            (r#""plain""#, "plain", ""),
            (r#""es\ncaped""#, "es\ncaped", ""),
            (r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#, "ab", ""),
            (
                r#"[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"a"}]"#,
                "a",
                "hm",
            ),
        ] {
            let expected = Content { text: text.into(), reasoning: reasoning.into() };
            assert_eq!(serde_json::from_str::<Content>(json).ok(), Some(expected), "{json}");
        }
    }
}
