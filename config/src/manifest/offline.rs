//! `agent.offline`: rules for the offline model, compiled and with their templates checked.

use std::collections::BTreeSet;

use super::read::each_text;
use crate::{
    Diagnostics,
    fields::Field,
    forms,
    shape::{Key, Shape, Table, suggestion},
    source::At,
};
use drupe_extension_api::{OfflineAction, OfflineRule, OfflineTrigger};
use drupe_json_schema::Expressions;

pub(super) static OFFLINE: Table = Table {
    name: "the offline rule",
    keys: &[
        Key::new(
            "when",
            "applies where the task matches this regular expression",
            Shape::Text(&forms::NON_EMPTY),
        ),
        Key::new("after", "applies after this tool has run", Shape::Text(&forms::TOOL_NAME)),
        Key::new("call", "calls this tool", Shape::Text(&forms::TOOL_NAME)),
        Key::new("with", "the parameters of the call; texts in it are templates", Shape::Open),
        Key::new("say", "answers with this template", Shape::Text(&forms::ANY)),
    ],
    rest: None,
};

pub(super) fn read(
    agent: &Field<'_>,
    expressions: &mut Expressions,
    faults: &mut Diagnostics,
) -> Vec<OfflineRule> {
    // A rule after a tool may use what the rule that called it has captured.
    let mut captured = BTreeSet::new();
    let mut rules = Vec::new();
    for rule in agent.items("offline") {
        let trigger = trigger(&rule, expressions, faults);
        let known = trigger.as_ref().map(|(trigger, groups)| names(trigger, groups, &mut captured));
        let action = action(&rule, &known, faults);
        if let (Some((trigger, _)), Some(action)) = (trigger, action) {
            rules.push(OfflineRule { trigger, action });
        }
    }
    rules
}

/// When a rule applies, and the names that its expression captures.
fn trigger(
    rule: &Field<'_>,
    expressions: &mut Expressions,
    faults: &mut Diagnostics,
) -> Option<(OfflineTrigger, Vec<String>)> {
    match (rule.get("when"), rule.get("after")) {
        (Some(when), None) => {
            let text = when.node.text()?;
            match expressions.compile(text) {
                Ok(regex) => {
                    let groups = regex.capture_names().flatten().map(str::to_owned).collect();
                    Some((OfflineTrigger::When(text.to_owned()), groups))
                }
                Err(refused) => {
                    let message = format!("`{}` is not a regular expression: {refused}", when.path);
                    faults.error("invalid_regex", &when.node.at, &when.path, message).help(
                        "quote it with '…', so that YAML leaves backslashes alone; a group is `(?P<name>…)`",
                    );
                    None
                }
            }
        }
        (None, Some(after)) => {
            after.node.text().map(|tool| (OfflineTrigger::After(tool.to_owned()), Vec::new()))
        }
        (when, _) => {
            let found = if when.is_some() { "both" } else { "neither" };
            let message = format!("a rule has either `when` or `after`, this one has {found}");
            faults
                .error("invalid_rule", &rule.node.at, &rule.path, message)
                .help("`when: REGEX` looks at the task, `after: TOOL` at the tool that ran last");
            None
        }
    }
}

/// The names that a template of this rule may use.
fn names(trigger: &OfflineTrigger, groups: &[String], captured: &mut BTreeSet<String>) -> BTreeSet<String> {
    let mut known = BTreeSet::from(["task".to_owned()]);
    match trigger {
        OfflineTrigger::When(_) => {
            known.extend(groups.iter().cloned());
            captured.extend(groups.iter().cloned());
        }
        OfflineTrigger::After(_) => {
            known.insert("result".to_owned());
            known.extend(captured.iter().cloned());
        }
    }
    known
}

fn action(
    rule: &Field<'_>,
    known: &Option<BTreeSet<String>>,
    faults: &mut Diagnostics,
) -> Option<OfflineAction> {
    let (call, with, say) = (rule.get("call"), rule.get("with"), rule.get("say"));
    let mut check = |text: &str, at: &At, path: &str| {
        if let Some(known) = known {
            check_template(text, known, at, path, faults);
        }
    };
    for field in [&with, &say].into_iter().flatten() {
        each_text(field.node, &field.path, &mut check);
    }
    match (call, say) {
        (Some(call), None) => Some(OfflineAction::Call {
            tool: call.node.text()?.to_owned(),
            with: with.map(|with| with.node.to_json_map()).unwrap_or_default(),
        }),
        (None, Some(say)) => {
            if let Some(with) = with {
                faults
                    .error(
                        "invalid_rule",
                        &with.node.at,
                        &with.path,
                        "`with` belongs to `call`, this rule has `say`",
                    )
                    .help("remove it");
            }
            Some(OfflineAction::Say(say.node.text()?.to_owned()))
        }
        (call, _) => {
            let found = if call.is_some() { "both" } else { "neither" };
            let message = format!("a rule has either `call` or `say`, this one has {found}");
            faults
                .error("invalid_rule", &rule.node.at, &rule.path, message)
                .help("`call: TOOL` with its parameters under `with`, or `say: TEMPLATE`");
            None
        }
    }
}

fn check_template(text: &str, known: &BTreeSet<String>, at: &At, path: &str, faults: &mut Diagnostics) {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("{{").filter(|_| !faults.is_full()) {
        let Some((name, tail)) = after.split_once("}}") else {
            faults.error("bad_template", at, path, "`{{` is never closed").help("write `{{name}}`");
            return;
        };
        rest = tail;
        if known.contains(name) {
            continue;
        }
        let help = if known.contains(name.trim()) {
            format!("write `{{{{{}}}}}`, without spaces", name.trim())
        } else {
            suggestion(name, known.iter().map(String::as_str)).unwrap_or_else(|| {
                format!("known here: {}", known.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
            })
        };
        let shown = crate::tree::shorten(name);
        faults.error("unknown_name", at, path, format!("`{{{{{shown}}}}}` names nothing here")).help(help);
    }
}
