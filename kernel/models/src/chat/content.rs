//! The shapes that the text of an answer has on the wire.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

/// A delta's content: text for most, a list of typed parts for Mistral's models that reason.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) text: String,
    pub(super) reasoning: String,
}

#[derive(Deserialize)]
struct Part {
    text: Option<String>,
    thinking: Option<Content>,
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Shape)
    }
}

struct Shape;

impl<'de> Visitor<'de> for Shape {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or a list of parts")
    }

    fn visit_str<E>(self, text: &str) -> Result<Content, E> {
        Ok(Content { text: text.to_owned(), reasoning: String::new() })
    }

    fn visit_string<E>(self, text: String) -> Result<Content, E> {
        Ok(Content { text, reasoning: String::new() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Content, A::Error> {
        let mut content = Content::default();
        while let Some(part) = parts.next_element::<Part>()? {
            content.text.push_str(&part.text.unwrap_or_default());
            content.reasoning.push_str(&part.thinking.unwrap_or_default().text);
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
            (r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#, "ab", ""),
            (
                r#"[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"a"}]"#,
                "a",
                "hm",
            ),
        ] {
            let expected = Content { text: text.to_owned(), reasoning: reasoning.to_owned() };
            assert_eq!(serde_json::from_str::<Content>(json).ok(), Some(expected), "{json}");
        }
    }
}
