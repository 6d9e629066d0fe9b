//! Names and ids. Each constructor checks its form; nothing else makes one.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A name or id that does not have the form it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidId {
    pub found: String,
    /// The form that is needed, for people.
    pub expected: &'static str,
}

impl fmt::Display for InvalidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not valid here: expected {}", self.found, self.expected)
    }
}

impl std::error::Error for InvalidId {}

/// Reads a text without an allocation of its own.
struct Text<T>(fn(&str) -> Result<T, InvalidId>);

impl<T> serde::de::Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<T, E> {
        (self.0)(value).map_err(E::custom)
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $expected:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            #[doc = concat!("Takes ", $expected, ".")]
            pub fn new(value: impl AsRef<str>) -> Result<Self, InvalidId> {
                let value = value.as_ref();
                let check: fn(&str) -> bool = $check;
                if check(value) {
                    Ok(Self(value.into()))
                } else {
                    Err(InvalidId { found: value.chars().take(80).collect(), expected: $expected })
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(value: &str) -> Result<Self, InvalidId> {
                Self::new(value)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text(|value| Self::new(value)))
            }
        }
    };
}

/// `^[a-z0-9][a-z0-9_-]{0,47}$`: tool names made of it fit the 64 characters that model providers allow.
fn slug(value: &str) -> bool {
    let bytes = value.as_bytes();
    matches!(bytes.first(), Some(b'a'..=b'z' | b'0'..=b'9'))
        && bytes.len() <= 48
        && bytes.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

fn tool_name(value: &str) -> bool {
    (1..=64).contains(&value.len())
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

fn opaque(value: &str) -> bool {
    (1..=96).contains(&value.len())
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b':'))
}

/// The form of [`is_model_name`], for people.
pub const MODEL_NAME: &str =
    "an alias, a provider or `provider/model`: up to 256 bytes of letters, digits and signs, without spaces";

/// Whether a text can name a model. Providers choose the names of their models, so any letter and any sign of ASCII may
/// stand there; what shows nothing, or ends a line, may not, since such names stand in messages. The path of a script, which
/// is the operator's to name, may hold spaces and be as long as a path.
pub fn is_model_name(text: &str) -> bool {
    // Letters, by Unicode, that show nothing.
    let filler = |letter| matches!(letter, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}');
    let shows = |letter: char| letter.is_ascii_graphic() || (letter.is_alphanumeric() && !filler(letter));
    match text.strip_prefix("scripted:") {
        Some(path) => (1..=4096).contains(&path.len()) && path.chars().all(|c| c == ' ' || shows(c)),
        None => (1..=256).contains(&text.len()) && text.chars().all(shows),
    }
}

id!(
    /// The id of an extension: its folder's name.
    ExtensionId,
    "a lower-case letter or digit, then up to 47 of a-z, 0-9, `_` and `-`",
    slug
);
id!(
    /// The id of an agent. An extension that is an agent gives it its own id.
    AgentId,
    "a lower-case letter or digit, then up to 47 of a-z, 0-9, `_` and `-`",
    slug
);
id!(
    /// The name under which a tool is offered to models.
    ToolName,
    "1 to 64 letters, digits, `_`, `.` and `-`",
    tool_name
);
id!(
    /// One conversation.
    SessionId,
    "1 to 96 letters, digits, `_`, `.`, `-` and `:`",
    opaque
);

impl SessionId {
    /// What stands behind a name that this session has or begins with, without the `:` between them: empty for the session of
    /// that name. None for a session that is not below it.
    pub fn below(&self, name: &str) -> Option<&str> {
        let rest = self.as_str().strip_prefix(name)?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix(':') }
    }
}

id!(
    /// What one inbound message sets off, until its final answer.
    TurnId,
    "1 to 96 letters, digits, `_`, `.`, `-` and `:`",
    opaque
);
id!(
    /// One run of an agent within a turn.
    InvocationId,
    "1 to 96 letters, digits, `_`, `.`, `-` and `:`",
    opaque
);
id!(
    /// One tool call that was meant to happen; a repetition of it bears the same id.
    EffectId,
    "1 to 96 letters, digits, `_`, `.`, `-` and `:`",
    opaque
);
id!(
    /// Links everything that one turn sets off, over agents and extensions.
    CorrelationId,
    "1 to 96 letters, digits, `_`, `.`, `-` and `:`",
    opaque
);

impl From<ExtensionId> for AgentId {
    fn from(id: ExtensionId) -> Self {
        Self(id.0)
    }
}

impl From<AgentId> for ExtensionId {
    fn from(id: AgentId) -> Self {
        Self(id.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_name_shows_whole_and_on_one_line() {
        for name in [
            "default",
            "gpt-4o",
            "openrouter/meta-llama/Llama-3.1-8B-Instruct:free",
            "@cf/meta/llama-3-8b",
            "claude-3-5-sonnet@20240620",
            "arn:aws:bedrock:us-east-1:1:inference-profile/a.b-v1:0",
            "hf.co/one/Two-GGUF:Q4_K_M",
            "local/通义千问",
            "scripted:/a folder/script.yaml",
            &"x".repeat(256),
        ] {
            assert!(is_model_name(name), "{name}");
        }
        for name in [
            "",
            " a",
            "a b",
            "a\nb",
            "a\u{1b}[2J",
            "a\u{202e}b",
            "a\u{200b}b",
            "a\u{3164}b",
            "a\u{2028}",
            "scripted:",
            "scripted:/a\nb",
            &"x".repeat(257),
        ] {
            assert!(!is_model_name(name), "{name:?}");
        }
    }

    #[test]
    fn an_extension_id_has_the_documented_form() {
        for good in ["a", "0", "builder_agent", "a-b", &"x".repeat(48)] {
            assert!(ExtensionId::new(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "_a", "-a", "a b", "a/b", "..", "ä", &"x".repeat(49)] {
            assert!(ExtensionId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_deserialised_id_passes_the_same_check() {
        assert!(serde_json::from_str::<ToolName>("\"kv_get\"").is_ok());
        assert!(serde_json::from_str::<ToolName>("\"kv get\"").is_err());
    }
}
