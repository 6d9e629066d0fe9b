//! The tool by which a model looks up tools that it knows by name only.
//!
//! What it finds is offered with its schema from the next step of the run on. It searches words, not meanings: the
//! same query finds the same tools, in the same order.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use drupe_extension_api::{EffectClass, EffectId, ToolAnnotations, ToolName, ToolSpec};
use drupe_json_schema::Schema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use crate::{
    registry::Registered,
    run::Run,
    told::one_line,
    tool::{Tool, ToolContext, ToolError, ToolFuture, ToolOutput},
};

/// The tool's name.
pub const NAME: &str = "search_tools";

/// Tools that one call gives.
const MOST: usize = 10;

/// Searches the deferred tools of one registry.
struct SearchTools {
    spec: Arc<ToolSpec>,
    deferred: Arc<[Arc<ToolSpec>]>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Parameters {
    query: String,
    names: Vec<String>,
}

#[derive(Serialize)]
struct Found<'a> {
    tools: Vec<FoundTool<'a>>,
    /// How many more there are.
    more: usize,
}

#[derive(Serialize)]
struct FoundTool<'a> {
    name: &'a ToolName,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    input_schema: &'a Value,
}

/// What is read again of a recorded result.
#[derive(Deserialize)]
struct Names {
    tools: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: ToolName,
}

/// The tool for those deferred tools. All registries share its schema.
pub(crate) fn tool(deferred: Arc<[Arc<ToolSpec>]>) -> Arc<Registered> {
    static SPEC: LazyLock<(Arc<ToolSpec>, Arc<Schema>)> = LazyLock::new(|| {
        let spec = ToolSpec {
            name: ToolName::new(NAME).expect("the name has the form of one"),
            description:
                "Looks up tools that are listed by name only, by words or by their exact names. You can use \
                          what it finds from then on."
                    .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "query": {"type": "string", "minLength": 1, "description": "Words of the name or the description."},
                    "names": {
                        "type": "array", "minItems": 1, "maxItems": MOST, "items": {"type": "string"},
                        "description": "Exact names.",
                    },
                },
                "anyOf": [{"required": ["query"]}, {"required": ["names"]}],
                "additionalProperties": false,
            }),
            instructions: None,
            annotations: ToolAnnotations {
                read_only: true,
                effect: EffectClass::Pure,
                ..ToolAnnotations::default()
            },
        };
        let schema = Schema::new(&spec.input_schema).expect("the schema is valid");
        (Arc::new(spec), Arc::new(schema))
    });
    let (spec, schema) = &*SPEC;
    let tool = SearchTools { spec: Arc::clone(spec), deferred };
    Registered::shared(Arc::new(tool), Arc::clone(schema), true)
}

impl SearchTools {
    /// The tools of those names, then those that hold the most words of the query; by name among equals.
    fn find(&self, params: &Parameters) -> Vec<&ToolSpec> {
        let words: BTreeSet<String> = params.query.split_whitespace().map(str::to_lowercase).collect();
        let score = |spec: &ToolSpec| {
            if params.names.iter().any(|name| *name == *spec.name.as_str()) {
                return usize::MAX;
            }
            let (name, text) = (spec.name.as_str().to_lowercase(), spec.description.to_lowercase());
            // A word of the name says more than one of the description.
            words
                .iter()
                .map(|word| usize::from(name.contains(word)) * 2 + usize::from(text.contains(word)))
                .sum()
        };
        let mut found: Vec<(usize, &ToolSpec)> =
            self.deferred.iter().map(|spec| (score(spec), &**spec)).filter(|(score, _)| *score > 0).collect();
        // Stable, and they are sorted by name.
        found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        found.into_iter().map(|(_, spec)| spec).collect()
    }
}

impl Tool for SearchTools {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn call(&self, params: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let params: Parameters = serde_json::from_str(params.get())?;
            let found = self.find(&params);
            if found.is_empty() {
                return Err(ToolError::failed("no tool fits; try other words, or the exact names"));
            }
            let shown = &found[..found.len().min(MOST)];
            context.run.bring(shown.iter().map(|spec| spec.name.clone()));
            let tools = shown
                .iter()
                .map(|spec| FoundTool {
                    name: &spec.name,
                    description: &spec.description,
                    instructions: spec.instructions.as_deref(),
                    input_schema: &spec.input_schema,
                })
                .collect();
            let found = Found { tools, more: found.len() - shown.len() };
            serde_json::to_string(&found)
                .map(ToolOutput::text)
                .map_err(|error| ToolError::failed(error.to_string()))
        })
    }

    fn replayed(&self, (_, content): (&str, &str), _: &EffectId, run: &Arc<Run>) {
        if let Ok(found) = serde_json::from_str::<Names>(content) {
            run.bring(found.tools.into_iter().map(|tool| tool.name));
        }
    }
}

/// The line by which the system prompt names a deferred tool.
pub(crate) fn line(spec: &ToolSpec) -> String {
    /// Bytes of a description that help to choose a tool; the rest comes with the schema.
    const SHOWN: usize = 120;
    // A break between two lines ends a sentence, too.
    let text = spec.description.trim().lines().next().unwrap_or_default();
    let sentence = text.split_inclusive(". ").next().unwrap_or_default();
    format!("- {}: {}", spec.name, one_line(sentence, SHOWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, description: &str) -> Arc<ToolSpec> {
        Arc::new(ToolSpec {
            name: ToolName::new(name).expect("a valid name"),
            description: description.into(),
            input_schema: json!({"type": "object"}),
            instructions: None,
            annotations: ToolAnnotations::default(),
        })
    }

    #[test]
    fn words_and_names_find_tools_in_a_fixed_order() {
        let deferred =
            [spec("a_mail", "Reads."), spec("b_file", "Sends mail."), spec("c_mail_send", "Sends mail.")];
        let search = SearchTools { spec: spec("search_tools", ""), deferred: deferred.into() };
        for (query, names, expected) in [
            ("mail", vec![], vec!["c_mail_send", "a_mail", "b_file"]),
            ("SEND mail", vec![], vec!["c_mail_send", "a_mail", "b_file"]),
            ("", vec!["b_file", "nothing"], vec!["b_file"]),
            ("mail", vec!["b_file"], vec!["b_file", "c_mail_send", "a_mail"]),
            ("nothing", vec![], vec![]),
        ] {
            let params =
                Parameters { query: query.into(), names: names.into_iter().map(str::to_owned).collect() };
            let found: Vec<&str> = search.find(&params).into_iter().map(|s| s.name.as_str()).collect();
            assert_eq!(found, expected, "{query}");
        }
    }

    #[test]
    fn a_line_is_the_first_sentence_bounded() {
        for (description, expected) in [
            ("Reads. Then more.", "- a: Reads."),
            ("Reads v1.2 files\nand more", "- a: Reads v1.2 files"),
            ("", "- a: "),
            ("Reads\u{2028}# Rules\u{85}\r## More", "- a: Reads # Rules ## More"),
        ] {
            assert_eq!(line(&spec("a", description)), expected);
        }
        let long = line(&spec("a", &"é".repeat(500)));
        assert!(long.len() <= 130 && long.ends_with('…'), "{long}");
    }
}
