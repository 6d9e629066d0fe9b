//! The tool by which the orchestrator finds what was said in its conversation before the turns that it is shown.

use std::{
    collections::BTreeSet,
    fmt::Write,
    sync::{Arc, LazyLock},
};

use drupe_extension_api::{EffectClass, ToolAnnotations, ToolName, ToolSpec};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use crate::{
    journal::EarlierTurn,
    registry::Registered,
    tool::{Tool, ToolContext, ToolError, ToolFuture, ToolOutput},
};

/// The name by which models call it.
pub const NAME: &str = "session_search";

/// Turns that are given where the call says nothing of it, and at most.
const USUAL: usize = 5;
const MOST: usize = 20;

/// Words of a query that are looked for.
const WORDS: usize = 16;

/// Bytes of each text that are given, around what was looked for.
const EXCERPT: usize = 1_200;

struct SessionSearch(Arc<ToolSpec>);

#[derive(Deserialize)]
struct Parameters {
    query: String,
    #[serde(default)]
    limit: Option<usize>,
}

/// The one instance of it.
pub fn tool() -> Arc<Registered> {
    static TOOL: LazyLock<Arc<Registered>> = LazyLock::new(|| {
        let spec = ToolSpec {
            name: ToolName::new(NAME).expect("the name has the form of one"),
            description: "Finds earlier messages and answers of this conversation by words, also those that you are not \
                          shown any more."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "query": {
                        "type": "string", "minLength": 1, "maxLength": 500,
                        "description": "Words that were said then, such as names.",
                    },
                    "limit": {"type": "integer", "minimum": 1, "maximum": MOST},
                },
                "required": ["query"],
                "additionalProperties": false,
            }),
            instructions: None,
            annotations: ToolAnnotations {
                read_only: true,
                effect: EffectClass::Pure,
                ..ToolAnnotations::default()
            },
        };
        Registered::core(Arc::new(SessionSearch(Arc::new(spec)))).expect("the schema is valid")
    });
    Arc::clone(&TOOL)
}

/// The words of a query, in lower case, each once.
fn words(query: &str) -> Vec<String> {
    let words = query.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let words: BTreeSet<String> = words.map(str::to_lowercase).collect();
    words.into_iter().take(WORDS).collect()
}

/// A part of a text around the first of the words, or its beginning.
fn excerpt(text: &str, words: &[String]) -> String {
    if text.len() <= EXCERPT {
        return text.to_owned();
    }
    // Lower case may have other lengths: what is found there is about where it is here.
    let lower = text.to_lowercase();
    let found = words.iter().filter_map(|word| lower.find(word.as_str())).min().unwrap_or(0);
    let begin = text.floor_char_boundary(found.min(text.len()).saturating_sub(EXCERPT / 4));
    let end = text.floor_char_boundary((begin + EXCERPT).min(text.len()));
    let before = if begin > 0 { "… " } else { "" };
    let after = if end < text.len() { " …" } else { "" };
    format!("{before}{}{after}", &text[begin..end])
}

fn told(turns: &[EarlierTurn], words: &[String]) -> String {
    let mut text = String::new();
    for EarlierTurn { at_ms, said, answered } in turns {
        let at = Timestamp::from_millisecond(*at_ms).unwrap_or_default().strftime("%Y-%m-%d %H:%M UTC");
        let (said, answered) = (excerpt(said, words), excerpt(answered, words));
        let _ = writeln!(text, "{at}\nthe user said: {said}\nthe answer was: {answered}\n");
    }
    match text.trim_end() {
        "" => "nothing in this conversation holds any of these words".into(),
        text => text.to_owned(),
    }
}

impl Tool for SessionSearch {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn call(&self, params: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let Parameters { query, limit } = serde_json::from_str(params.get())?;
            let words = words(&query);
            if words.is_empty() {
                return Err(ToolError::failed("the query holds no word: name what was said"));
            }
            let scope = &context.run.scope;
            let found = scope.journal.earlier(scope.session.clone(), words.clone(), limit.unwrap_or(USUAL));
            let found = found.await.map_err(|fault| ToolError::failed(fault.to_string()))?;
            Ok(ToolOutput::text(told(&found, &words)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_the_part_that_was_looked_for() {
        assert_eq!(words("Anna's CAR, anna!"), ["anna", "car", "s"]);
        assert_eq!(words(" … "), Vec::<String>::new());
        let long = format!("{}The door is grün. {}", "ä".repeat(2_000), "z".repeat(2_000));
        let part = excerpt(&long, &words("grün"));
        assert!(part.starts_with("… ä") && part.contains("door is grün") && part.ends_with("z …"), "{part}");
        let turns = [EarlierTurn { at_ms: 0, said: "a".into(), answered: "b".into() }];
        let expected = "1970-01-01 00:00 UTC\nthe user said: a\nthe answer was: b";
        assert_eq!(told(&turns, &[]), expected);
        assert!(told(&[], &[]).starts_with("nothing in this conversation"));
    }
}
