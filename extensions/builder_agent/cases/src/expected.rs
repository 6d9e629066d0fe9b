//! What is expected of an answer, and what of an answer is not so.

use std::{collections::BTreeSet, fmt};

use drupe_extension_api::{AgentId, Message, ResponseStatus, control::TurnResult};
use drupe_json_schema::Schema;
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

/// Characters of an answer that a fault quotes.
const QUOTED: usize = 120;

/// What an answer must be like: all of it that is said.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExpectedAnswer {
    /// How the turn ends; `success` without it.
    pub status: Option<ResponseStatus>,
    /// Texts that the answer holds.
    pub contains: Texts,
    /// Texts that it does not hold.
    pub lacks: Texts,
    /// A regular expression that it fits.
    pub matches: Option<String>,
    /// A JSON Schema that it fits, as JSON.
    pub schema: Option<Value>,
    /// Tools that were called, by whichever agent.
    pub tools: Texts,
    /// Tools that nobody may have called.
    pub no_tools: Texts,
    /// Agents that ran for it.
    pub agents: Vec<AgentId>,
    pub max_tokens: Option<u64>,
    pub max_cost_usd: Option<f64>,
    /// What another agent is asked about the answer, so that it can say yes or no.
    pub judge: Option<String>,
}

/// One text, or several of them.
#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
pub enum Texts {
    #[default]
    None,
    One(String),
    Several(Vec<String>),
}

impl Texts {
    fn all(&self) -> &[String] {
        match self {
            Self::None => &[],
            Self::One(text) => std::slice::from_ref(text),
            Self::Several(texts) => texts,
        }
    }
}

/// What became of a case, as far as anything can be expected of it.
#[derive(Debug)]
pub struct CaseAnswer<'a> {
    /// How it ended; none where it has not.
    pub status: Option<ResponseStatus>,
    pub content: &'a str,
    /// Why it did not succeed.
    pub error: Option<&'a str>,
    /// The tools that were called, whatever became of the calls.
    pub tools: BTreeSet<&'a str>,
    /// The agents that ran for it.
    pub agents: BTreeSet<&'a str>,
    pub tokens: u64,
    /// Absent where a price is unknown.
    pub cost_usd: Option<f64>,
}

impl<'a> From<&'a TurnResult> for CaseAnswer<'a> {
    fn from(result: &'a TurnResult) -> Self {
        let tools = result.transcript.iter().filter_map(|entry| match &entry.message {
            Message::Tool { name, .. } => Some(name.as_str()),
            _ => None,
        });
        Self {
            status: result.status,
            content: &result.content,
            error: result.error.as_deref(),
            tools: tools.collect(),
            agents: result.invocations.iter().map(|run| run.agent.as_str()).collect(),
            tokens: result.spend.usage.total(),
            cost_usd: result.spend.cost_usd,
        }
    }
}

/// A key of an expectation whose value means nothing.
#[derive(Debug, thiserror::Error)]
#[error("`{key}`: {why}")]
pub struct UnfitExpectation {
    key: &'static str,
    why: String,
}

/// What is compiled of an expectation.
struct Compiled {
    pattern: Option<Regex>,
    schema: Option<Schema>,
}

impl ExpectedAnswer {
    pub(crate) fn check(&self) -> Result<(), UnfitExpectation> {
        self.compiled().map(drop)
    }

    fn compiled(&self) -> Result<Compiled, UnfitExpectation> {
        let unfit = |key, error: &dyn fmt::Display| UnfitExpectation { key, why: error.to_string() };
        let pattern = self.matches.as_deref().map(Regex::new).transpose();
        let schema = self.schema.as_ref().map(Schema::new).transpose();
        Ok(Compiled {
            pattern: pattern.map_err(|error| unfit("matches", &error))?,
            schema: schema.map_err(|error| unfit("schema", &error))?,
        })
    }

    /// What is not as expected; nothing where all is. What a judge is asked for is not looked at.
    pub fn faults(&self, given: &CaseAnswer<'_>) -> Vec<String> {
        let mut faults = Vec::new();
        let wanted = self.status.unwrap_or(ResponseStatus::Success);
        let answer = given.content;
        if given.status != Some(wanted) {
            let why = given.error.unwrap_or(answer);
            faults.push(format!("it ended with {}: {}", told(given.status), quoted(why)));
        }
        for text in self.contains.all().iter().filter(|text| !answer.contains(*text)) {
            faults.push(format!("the answer does not hold `{text}`: {}", quoted(answer)));
        }
        for text in self.lacks.all().iter().filter(|text| answer.contains(*text)) {
            faults.push(format!("the answer holds `{text}`: {}", quoted(answer)));
        }
        match self.compiled() {
            Ok(Compiled { pattern, schema }) => {
                if pattern.is_some_and(|pattern| !pattern.is_match(answer)) {
                    faults.push(format!("the answer does not fit `matches`: {}", quoted(answer)));
                }
                faults.extend(schema.and_then(|schema| misfit(&schema, answer)));
            }
            Err(unfit) => faults.push(unfit.to_string()),
        }
        for tool in self.tools.all().iter().filter(|tool| !given.tools.contains(tool.as_str())) {
            faults.push(format!("`{tool}` was not called; what was: {}", listed(&given.tools)));
        }
        for tool in self.no_tools.all().iter().filter(|tool| given.tools.contains(tool.as_str())) {
            faults.push(format!("`{tool}` was called"));
        }
        for agent in self.agents.iter().filter(|agent| !given.agents.contains(agent.as_str())) {
            faults.push(format!("agent `{agent}` did not run"));
        }
        let tokens = given.tokens;
        if let Some(most) = self.max_tokens.filter(|most| tokens > *most) {
            faults.push(format!("it took {tokens} tokens; {most} were allowed"));
        }
        match (self.max_cost_usd, given.cost_usd) {
            (Some(most), Some(cost)) if cost > most => {
                faults.push(format!("it cost {cost} USD; {most} were allowed"))
            }
            (Some(_), None) => faults.push("its cost is not known: the model has no price".into()),
            _ => {}
        }
        faults
    }
}

/// Why an answer does not fit a schema.
fn misfit(schema: &Schema, answer: &str) -> Option<String> {
    match serde_json::from_str(answer) {
        Ok(value) => schema.refusal(&value).map(|why| format!("the answer does not fit `schema`: {why}")),
        Err(error) => Some(format!("the answer is no JSON: {error}")),
    }
}

fn listed(names: &BTreeSet<&str>) -> String {
    if names.is_empty() { "nothing".into() } else { names.iter().copied().collect::<Vec<_>>().join(", ") }
}

fn told(status: Option<ResponseStatus>) -> &'static str {
    match status {
        Some(ResponseStatus::Success) => "success",
        Some(ResponseStatus::Error) => "an error",
        Some(ResponseStatus::Refused) => "a refusal",
        None => "nothing",
    }
}

/// The beginning of a text on one line.
fn quoted(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(content: &str) -> TurnResult {
        let run = json!({"id": "i-0", "agent": "haiku", "parent": null, "depth": 0, "status": "success", "usage": {},
            "turns_used": 1, "tokens_used": 7});
        let tool = json!({"invocation": "i-0", "agent": "haiku", "role": "tool", "call_id": "c", "name": "kv_get",
            "status": "ok", "content": "x"});
        let spend = json!({"usage": {"input_tokens": 5, "output_tokens": 2}, "turns": 1, "tool_calls": 1, "invocations": 1,
            "elapsed_ms": 3});
        serde_json::from_value(json!({
            "session": "s", "turn": "t", "status": "success", "content": content, "input": "x", "spend": spend,
            "invocations": [run], "transcript": [tool], "diagnostics": [], "trace": "t", "client_calls": [],
        }))
        .expect("a result")
    }

    fn faults(expected: Value, content: &str) -> Vec<String> {
        let expected: ExpectedAnswer = serde_json::from_value(expected).expect("an expectation");
        expected.faults(&CaseAnswer::from(&result(content)))
    }

    #[test]
    fn each_expectation_holds_or_says_what_is_amiss() {
        for (expected, content, fault) in [
            (json!({}), "x", None),
            (json!({"status": "refused"}), "x", Some("it ended with success")),
            (json!({"contains": "crab"}), "a crab", None),
            (json!({"contains": ["crab", "rust"]}), "a crab", Some("does not hold `rust`")),
            (json!({"lacks": "crab"}), "a crab", Some("holds `crab`")),
            (json!({"matches": "^a .rab$"}), "a crab", None),
            (json!({"matches": "^crab"}), "a crab", Some("does not fit `matches`")),
            (json!({"schema": {"type": "object", "required": ["a"]}}), "{\"a\": 1}", None),
            (json!({"schema": {"type": "object", "required": ["a"]}}), "{}", Some("does not fit `schema`")),
            (json!({"schema": {}}), "a crab", Some("is no JSON")),
            (json!({"tools": "kv_get", "no_tools": ["kv_set"]}), "x", None),
            (json!({"tools": ["kv_set"]}), "x", Some("`kv_set` was not called; what was: kv_get")),
            (json!({"no_tools": "kv_get"}), "x", Some("`kv_get` was called")),
            (json!({"agents": ["haiku"]}), "x", None),
            (json!({"agents": ["poet"]}), "x", Some("`poet` did not run")),
            (json!({"max_tokens": 7}), "x", None),
            (json!({"max_tokens": 6}), "x", Some("it took 7 tokens")),
            (json!({"max_cost_usd": 1}), "x", Some("cost is not known")),
        ] {
            let found = faults(expected.clone(), content);
            match fault {
                None => assert!(found.is_empty(), "{expected}: {found:?}"),
                Some(fault) => assert!(found.len() == 1 && found[0].contains(fault), "{expected}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_fault_quotes_the_beginning_of_an_answer_on_one_line() {
        let found = faults(json!({"contains": "crab"}), &"ß\n".repeat(500));
        assert!(found[0].ends_with("ß …") && found[0].chars().count() < 200, "{found:?}");
    }
}
