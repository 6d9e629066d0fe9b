//! An agent's rules: the first that matches acts.
//!
//! `when` looks at the task and applies only right after it was given; `after` applies only right after the named
//! tool succeeded. A tool that failed is reported and not built upon. What a template names comes from the
//! transcript alone (the latest task that some `when` matches, and the last result), so that a run which continues
//! in another process goes on as it would have.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use drupe_agent::{ModelFault, ModelRequest, prompt::task_of};
use drupe_extension_api::{FailureClass, Message, OfflineAction, OfflineRule, OfflineTrigger, ToolStatus};
use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use super::{Reply, texts};

/// Bytes of one text that a rule makes: a template that names the task often could multiply it without end.
const LONGEST: usize = 256 * 1024;

/// Compiled expressions kept; when there are more, all are made again.
const KEPT_PATTERNS: usize = 64;

/// The most memory that a compiled expression may take, in bytes: as in manifests. Code that runs an agent names its rules
/// without one.
const LARGEST_PATTERN: usize = 1 << 20;

/// Compiled expressions by their text.
#[derive(Default)]
pub(super) struct Patterns(Mutex<HashMap<String, Arc<Regex>>>);

impl Patterns {
    fn get(&self, pattern: &str, agent: &str) -> Result<Arc<Regex>, ModelFault> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(regex) = kept.get(pattern) {
            return Ok(Arc::clone(regex));
        }
        let compiled = RegexBuilder::new(pattern).size_limit(LARGEST_PATTERN).build();
        let regex = Arc::new(compiled.map_err(|e| {
            ModelFault::fatal(
                FailureClass::Config,
                format!("an offline rule of agent `{agent}` has a wrong expression: {e}"),
            )
        })?);
        if kept.len() >= KEPT_PATTERNS {
            kept.clear();
        }
        kept.insert(pattern.to_owned(), Arc::clone(&regex));
        Ok(regex)
    }
}

/// What the rules say to do, if one of them matches.
pub(super) fn apply(request: &ModelRequest, patterns: &Patterns) -> Result<Option<Reply>, ModelFault> {
    let rules = &request.agent.offline;
    if rules.is_empty() {
        return Ok(None);
    }
    match request.messages.last().map(|m| &**m) {
        Some(Message::User { content }) => {
            let task = task_of(content);
            let matched = captures(rules, task, request, patterns)?;
            Ok(matched.map(|(rule, groups)| act(rule, &Values { task, groups, result: None })))
        }
        Some(Message::Tool { name, status: ToolStatus::Ok, content, .. }) if texts::succeeded(content) => {
            let follows =
                |rule: &&OfflineRule| matches!(&rule.trigger, OfflineTrigger::After(tool) if tool == name);
            let Some(rule) = rules.iter().find(follows) else { return Ok(None) };
            let (task, groups) = latest_task(rules, request, patterns)?;
            Ok(Some(act(rule, &Values { task, groups, result: Some(texts::readable(content)) })))
        }
        _ => Ok(None),
    }
}

type Groups = HashMap<String, String>;

fn captures<'a>(
    rules: &'a [OfflineRule],
    task: &str,
    request: &ModelRequest,
    patterns: &Patterns,
) -> Result<Option<(&'a OfflineRule, Groups)>, ModelFault> {
    for rule in rules {
        let OfflineTrigger::When(pattern) = &rule.trigger else { continue };
        let regex = patterns.get(pattern, request.agent.id.as_str())?;
        if let Some(found) = regex.captures(task) {
            let text = |name: &str| found.name(name).map_or(String::new(), |m| m.as_str().to_owned());
            return Ok(Some((
                rule,
                regex.capture_names().flatten().map(|name| (name.to_owned(), text(name))).collect(),
            )));
        }
    }
    Ok(None)
}

/// The task that the run is about, with its groups: the kernel may have said something since.
fn latest_task<'a>(
    rules: &[OfflineRule],
    request: &'a ModelRequest,
    patterns: &Patterns,
) -> Result<(&'a str, Groups), ModelFault> {
    let tasks = || {
        request.messages.iter().rev().filter_map(|m| match &**m {
            Message::User { content } => Some(task_of(content)),
            _ => None,
        })
    };
    for task in tasks() {
        if let Some((_, groups)) = captures(rules, task, request, patterns)? {
            return Ok((task, groups));
        }
    }
    Ok((tasks().next().unwrap_or_default(), Groups::new()))
}

struct Values<'a> {
    task: &'a str,
    groups: Groups,
    result: Option<String>,
}

impl Values<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        match name {
            "task" => Some(self.task),
            "result" => self.result.as_deref(),
            name => self.groups.get(name).map(String::as_str),
        }
    }

    /// Replaces in one pass, so that braces in a value stay what they are. A name that there is not stays too: it
    /// shows the author what is wrong. What is beyond [`LONGEST`] is left out.
    fn fill(&self, template: &str) -> String {
        let mut out = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once("{{").filter(|_| out.len() < LONGEST) {
            out.push_str(before);
            match after.split_once("}}").map(|(name, tail)| (self.get(name.trim()), tail)) {
                Some((Some(value), tail)) => {
                    out.push_str(&value[..value.floor_char_boundary(LONGEST)]);
                    rest = tail;
                }
                _ => {
                    out.push_str("{{");
                    rest = after;
                }
            }
        }
        out.push_str(rest);
        if out.len() > LONGEST {
            out.truncate(out.floor_char_boundary(LONGEST));
            out.push_str(" … (cut)");
        }
        out
    }

    fn fill_all(&self, value: &Value) -> Value {
        match value {
            Value::String(template) => Value::String(self.fill(template)),
            Value::Array(items) => items.iter().map(|item| self.fill_all(item)).collect(),
            Value::Object(map) => Value::Object(self.fill_map(map)),
            other => other.clone(),
        }
    }

    fn fill_map(&self, map: &Map<String, Value>) -> Map<String, Value> {
        map.iter().map(|(key, value)| (key.clone(), self.fill_all(value))).collect()
    }
}

fn act(rule: &OfflineRule, values: &Values<'_>) -> Reply {
    match &rule.action {
        OfflineAction::Say(template) => Reply::Said(values.fill(template)),
        OfflineAction::Call { tool, with } => {
            Reply::Call { tool: tool.clone(), arguments: values.fill_map(with) }
        }
    }
}
