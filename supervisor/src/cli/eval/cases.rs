//! The file of `drupe eval`, and whether an answer is what a case expects. Asks nobody.

use std::{collections::BTreeSet, path::Path};

use drupe_extension_api::{AgentId, Message, ResponseStatus, control::TurnResult};
use drupe_json_schema::Schema;
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use crate::cli::{console::short, failure::Failure};

/// Characters of an answer that a fault quotes.
const QUOTED: usize = 120;

/// Seconds that the turn of a case may take which says nothing of it.
const USUAL: f64 = 120.0;

/// What a file of cases holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cases {
    /// Who answers the cases that name nobody; the orchestrator without it.
    #[serde(default)]
    pub agent: Option<AgentId>,
    /// Who says whether answers are right where a case has a `judge`; the orchestrator without it.
    #[serde(default)]
    pub judge: Option<AgentId>,
    pub cases: Vec<Case>,
}

/// One message, and what is expected of its answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    pub message: String,
    #[serde(default)]
    pub agent: Option<AgentId>,
    /// Seconds that the turn may take.
    #[serde(default = "usual")]
    pub timeout_s: f64,
    #[serde(default)]
    pub expect: ExpectedAnswer,
}

fn usual() -> f64 {
    USUAL
}

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

impl Cases {
    /// Reads a file, and checks all of it.
    pub fn read(file: &Path) -> Result<Self, Failure> {
        let name = file.display();
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::new(66, format!("`{name}` cannot be read: {error}")))?;
        let cases: Self = serde_yaml::from_str(&text)
            .map_err(|error| Failure::new(65, format!("`{name}` is no file of cases: {error}")))?;
        cases.check().map_err(|why| Failure::new(65, format!("`{name}`: {why}")))?;
        Ok(cases)
    }

    /// What no type can say.
    fn check(&self) -> Result<(), Failure> {
        let wrong = |case: &Case, why: String| Failure::new(65, format!("case `{}`: {why}", case.name));
        if self.cases.is_empty() {
            return Err(Failure::new(65, "there are no cases"));
        }
        let mut names = BTreeSet::new();
        for case in &self.cases {
            if case.name.trim().is_empty() || !names.insert(&case.name) {
                return Err(wrong(case, "each case has a name of its own".into()));
            }
            if case.message.trim().is_empty() {
                return Err(wrong(case, "the message is empty".into()));
            }
            if !(case.timeout_s > 0.0 && case.timeout_s <= 86_400.0) {
                return Err(wrong(case, "`timeout_s` is more than 0 and at most 86400".into()));
            }
            case.expect.rules().map_err(|failure| wrong(case, failure.to_string()))?;
        }
        Ok(())
    }
}

/// What is compiled of an expectation.
struct Compiled {
    pattern: Option<Regex>,
    schema: Option<Schema>,
}

impl ExpectedAnswer {
    fn rules(&self) -> Result<Compiled, Failure> {
        let unfit = |key: &str, error: &dyn std::fmt::Display| Failure::new(65, format!("`{key}`: {error}"));
        let pattern = self.matches.as_deref().map(Regex::new).transpose();
        let schema = self.schema.as_ref().map(Schema::new).transpose();
        Ok(Compiled {
            pattern: pattern.map_err(|error| unfit("matches", &error))?,
            schema: schema.map_err(|error| unfit("schema", &error))?,
        })
    }

    /// What is not as expected; nothing where all is.
    pub fn faults(&self, result: &TurnResult) -> Vec<String> {
        let mut faults = Vec::new();
        let wanted = self.status.unwrap_or(ResponseStatus::Success);
        if result.status != Some(wanted) {
            let why = result.error.as_deref().unwrap_or(&result.content);
            faults.push(format!("it ended with {}: {}", told(result.status), short(why, QUOTED)));
        }
        let answer = &result.content;
        let quoted = || short(answer, QUOTED);
        for text in self.contains.all().iter().filter(|text| !answer.contains(*text)) {
            faults.push(format!("the answer does not hold `{text}`: {}", quoted()));
        }
        for text in self.lacks.all().iter().filter(|text| answer.contains(*text)) {
            faults.push(format!("the answer holds `{text}`: {}", quoted()));
        }
        match self.rules() {
            Ok(Compiled { pattern, schema }) => {
                if pattern.is_some_and(|pattern| !pattern.is_match(answer)) {
                    faults.push(format!("the answer does not fit `matches`: {}", quoted()));
                }
                faults.extend(schema.and_then(|schema| misfit(&schema, answer)));
            }
            Err(failure) => faults.push(failure.to_string()),
        }
        let called = called(result);
        for tool in self.tools.all().iter().filter(|tool| !called.contains(tool.as_str())) {
            faults.push(format!("`{tool}` was not called; what was: {}", listed(&called)));
        }
        for tool in self.no_tools.all().iter().filter(|tool| called.contains(tool.as_str())) {
            faults.push(format!("`{tool}` was called"));
        }
        for agent in &self.agents {
            if !result.invocations.iter().any(|run| run.agent == *agent) {
                faults.push(format!("agent `{agent}` did not run"));
            }
        }
        let tokens = result.spend.usage.total();
        if let Some(most) = self.max_tokens.filter(|most| tokens > *most) {
            faults.push(format!("it took {tokens} tokens; {most} were allowed"));
        }
        match (self.max_cost_usd, result.spend.cost_usd) {
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

/// The tools that were called in a turn, whatever became of the calls.
fn called(result: &TurnResult) -> BTreeSet<&str> {
    let entries = result.transcript.iter().filter_map(|entry| match &entry.message {
        Message::Tool { name, .. } => Some(name.as_str()),
        _ => None,
    });
    entries.collect()
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
        expected.faults(&result(content))
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
    fn a_file_that_means_nothing_is_refused_with_the_case() {
        for (text, part) in [
            ("cases: []", "there are no cases"),
            ("cases: [{name: a, message: x}, {name: a, message: y}]", "a name of its own"),
            ("cases: [{name: a, message: ' '}]", "case `a`: the message is empty"),
            ("cases: [{name: a, message: x, expect: {matches: '('}}]", "`matches`"),
            ("cases: [{name: a, message: x, timeout_s: 0}]", "`timeout_s`"),
        ] {
            let cases: Cases = serde_yaml::from_str(text).expect("its form");
            let refused = cases.check().expect_err(text).to_string();
            assert!(refused.contains(part), "{refused}");
        }
        assert!(serde_yaml::from_str::<Cases>("cases: [{name: a, message: x, expects: {}}]").is_err());
    }
}
