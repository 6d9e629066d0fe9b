//! Placeholders, and what is put in their place. Pure.

use std::fmt::Write as _;

use drupe_extension_api::Fault;

/// A secret that may go to the host of a request.
#[derive(Clone, Copy)]
pub struct BoundValue<'a> {
    pub name: &'a str,
    /// It is never shown: not in a fault either.
    pub value: &'a str,
}

/// A bound secret, where it has a value, and the hosts that it is bound to.
pub type BoundHosts<'a> = (Option<BoundValue<'a>>, &'a [String]);

/// How a value is written where it is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Within {
    /// A header, or a body of no form that is known here.
    Plain,
    /// Text within a body of JSON.
    Json,
    /// The query of an address, or a form.
    Form,
    /// A part of one segment of a path.
    Segment,
}

impl Within {
    /// By the type that a request says its body is of.
    pub(crate) fn body(content_type: Option<&str>) -> Self {
        let kind = content_type.unwrap_or_default().split(';').next().unwrap_or_default();
        match kind.trim().to_ascii_lowercase().as_str() {
            "application/x-www-form-urlencoded" => Self::Form,
            "application/json" => Self::Json,
            other if other.ends_with("+json") => Self::Json,
            _ => Self::Plain,
        }
    }

    fn write(self, value: &str, to: &mut String) {
        match self {
            Self::Plain => to.push_str(value),
            Self::Json => {
                let quoted = serde_json::Value::from(value).to_string();
                to.push_str(&quoted[1..quoted.len() - 1]);
            }
            Self::Form | Self::Segment => {
                // Tokens in paths have colons, which some servers know only as they are.
                let plain: &[u8] = if self == Self::Segment { b"-._~:" } else { b"-._~" };
                for byte in value.bytes() {
                    if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
                        to.push(char::from(byte));
                    } else {
                        let _ = write!(to, "%{byte:02X}");
                    }
                }
            }
        }
    }
}

/// A text with values in the place of placeholders, of at most so many bytes. `$${` stands for `${`, and what has no name of a variable between its braces is no
/// placeholder.
pub(crate) fn filled(
    text: &str,
    within: Within,
    values: &[BoundValue<'_>],
    longest: usize,
) -> Result<String, Fault> {
    let long = || Fault::invalid(format!("a part of the request is longer than {longest} bytes"));
    let mut output = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, after) = (&rest[..start], &rest[start + 2..]);
        if let Some(escaped) = before.strip_suffix('$') {
            output.push_str(escaped);
            output.push_str("${");
            rest = after;
            continue;
        }
        output.push_str(before);
        let Some((name, behind)) = after.split_once('}').filter(|(name, _)| is_variable(name)) else {
            output.push_str("${");
            rest = after;
            continue;
        };
        let Some(bound) = values.iter().find(|bound| bound.name == name) else {
            let message = format!("no secret `{name}` is bound to the host of this request");
            return Err(Fault::invalid(message).help(
                "name it and the host under `bound_secrets` of the manifest; `$${` stands for a plain `${`",
            ));
        };
        within.write(bound.value, &mut output);
        // A small text may name a long secret many times.
        if output.len() > longest {
            return Err(long());
        }
        rest = behind;
    }
    output.push_str(rest);
    if output.len() > longest { Err(long()) } else { Ok(output) }
}

fn is_variable(name: &str) -> bool {
    name.len() <= 128
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: [BoundValue<'_>; 2] = [
        BoundValue { name: "KEY", value: "s\"e&c r%t" },
        // What is filled in is not looked at again.
        BoundValue { name: "NEXT", value: "${KEY}" },
    ];

    #[test]
    fn values_are_written_as_the_place_wants_them_and_nothing_is_filled_twice() {
        for (text, within, expected) in [
            ("Bearer ${KEY}", Within::Plain, "Bearer s\"e&c r%t"),
            (r#"{"key": "${KEY}"}"#, Within::Json, r#"{"key": "s\"e&c r%t"}"#),
            ("a=1&key=${KEY}&b=${KEY}", Within::Form, "a=1&key=s%22e%26c%20r%25t&b=s%22e%26c%20r%25t"),
            ("/bot${KEY}:${KEY}/x", Within::Segment, "/bots%22e%26c%20r%25t:s%22e%26c%20r%25t/x"),
            ("${NEXT}", Within::Plain, "${KEY}"),
            ("$${KEY} ${} ${a.b} ${ KEY} ${", Within::Plain, "${KEY} ${} ${a.b} ${ KEY} ${"),
            ("${A${KEY}}", Within::Plain, "${As\"e&c r%t}"),
            ("nothing", Within::Json, "nothing"),
        ] {
            assert_eq!(filled(text, within, &VALUES, 99).expect(text), expected);
        }
        let fault = filled("${OTHER}", Within::Plain, &VALUES, 99).expect_err("it is not bound");
        assert!(fault.message.contains("`OTHER`") && !fault.message.contains("s\"e"), "{fault}");
        for long in ["${KEY}${KEY}".to_owned(), "x".repeat(20)] {
            let fault = filled(&long, Within::Plain, &VALUES, 17).expect_err("it is long");
            assert!(fault.message.contains("longer than 17 bytes"), "{fault}");
        }
    }

    #[test]
    fn the_type_of_a_body_says_how_values_are_written_in_it() {
        for (said, within) in [
            (Some("application/json; charset=utf-8"), Within::Json),
            (Some("application/vnd.api+json"), Within::Json),
            (Some("Application/X-WWW-Form-Urlencoded"), Within::Form),
            (Some("text/plain"), Within::Plain),
            (None, Within::Plain),
        ] {
            assert_eq!(Within::body(said), within, "{said:?}");
        }
    }
}
