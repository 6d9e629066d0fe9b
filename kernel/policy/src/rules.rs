//! What the configuration, the manifests and the labels of a tool say of a call: one pure function.
//!
//! Authority only narrows: a call is looked at once for each agent from the root of the turn to the one that calls, as if
//! that agent called, and the strictest of all is what holds. So nobody gets by way of another what it would not get itself.

use drupe_config::{AgentApprovals, ApprovalMode, ApprovalRule, ApprovalsConfig, RuleVerdict, ToolLabel};
use drupe_extension_api::{AgentId, ToolAnnotations, ToolSpec};
use serde_json::Value;

use crate::{
    scope::is_compound,
    texts::{all_readings, any_reading},
};

/// A call, as rules see it.
#[derive(Clone, Copy)]
pub struct CallFacts<'a> {
    /// The tool that is called.
    pub spec: &'a ToolSpec,
    /// The parameters, as the text of their JSON.
    pub params: &'a str,
    /// The agents from the root of the turn to the one that calls, and before them who handed the conversation to the root.
    pub path: &'a [AgentId],
    /// What set the turn off.
    pub origin: &'a str,
    /// By which tool text of strangers came into the conversation.
    pub tainted_by: Option<&'a str>,
}

/// What becomes of a call, and what decided it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// Whether it runs, and whether a person is asked.
    pub verdict: RuleVerdict,
    /// What decided, in words that name where it stands or what is the matter.
    pub by: String,
    /// Whether it is asked about for what strangers wrote, so that what was allowed before does not hold.
    pub for_taint: bool,
    /// Whether a rule decided, and not the mode.
    pub by_rule: bool,
}

/// What holds of a call by `config`, and by what the manifests of the agents on its path add, which `own` gives.
pub fn ruling<'a>(
    config: &ApprovalsConfig,
    own: impl Fn(&AgentId) -> Option<&'a AgentApprovals>,
    facts: CallFacts<'_>,
) -> Ruling {
    let params = Params::new(facts.params);
    let of_agent = |agent: &AgentId| {
        let general = general(config, facts, agent, &params);
        let Some(own) = own(agent) else { return general };
        [general, narrower(own, facts, agent, &params)].into_iter().reduce(stricter).unwrap_or_else(refuse)
    };
    let ruling = facts.path.iter().map(of_agent).reduce(stricter).unwrap_or_else(refuse);
    match ruling.verdict {
        // There is nothing that it could run with.
        RuleVerdict::Allow if facts.spec.annotations.needs_input => Ruling {
            verdict: RuleVerdict::Ask,
            by: format!("`{}` needs something that a person fills in", facts.spec.name),
            for_taint: false,
            by_rule: false,
        },
        _ => ruling,
    }
}

/// A call of nobody cannot be.
fn refuse() -> Ruling {
    Ruling { verdict: RuleVerdict::Deny, by: "no agent calls it".into(), for_taint: false, by_rule: false }
}

/// The stricter of two; of equal ones that for which less of what was allowed before holds, and then the first.
fn stricter(one: Ruling, other: Ruling) -> Ruling {
    let rank = |ruling: &Ruling| (ruling.verdict, ruling.for_taint);
    if rank(&other) > rank(&one) { other } else { one }
}

fn general(config: &ApprovalsConfig, facts: CallFacts<'_>, agent: &AgentId, params: &Params) -> Ruling {
    let labels = &facts.spec.annotations;
    let found = config.rules.iter().enumerate().find(|(_, rule)| holds(rule, facts, agent, params));
    let (ruling, may_taint) = match found {
        Some((index, rule)) => {
            let by = format!("`approvals.rules[{index}]`{}", says(rule.then));
            (Ruling { verdict: rule.then, by, for_taint: false, by_rule: true }, rule.tainted)
        }
        None => (by_mode(config.mode, facts.spec, params), false),
    };
    let runs_first = config.mode == ApprovalMode::OnFailure && is_confined(labels, params);
    let reaches = (labels.outward || labels.destructive) && !runs_first || labels.remembers;
    // What a rule allows in spite of it, and what is refused anyway.
    let is_settled = ruling.verdict == RuleVerdict::Deny || may_taint && ruling.verdict == RuleVerdict::Allow;
    match facts.tainted_by {
        Some(source) if config.taint && reaches && !is_settled => {
            for_strangers(config.mode, ruling, facts.spec, source)
        }
        _ => ruling,
    }
}

/// A call that reaches out, destroys or remembers where strangers were read: asked about, whatever was allowed before.
fn for_strangers(mode: ApprovalMode, ruling: Ruling, spec: &ToolSpec, source: &str) -> Ruling {
    let why = match ruling.verdict {
        RuleVerdict::Ask => ruling.by,
        _ if spec.annotations.destructive => format!("`{}` may destroy what cannot be restored", spec.name),
        _ if spec.annotations.remembers => {
            format!("`{}` keeps what other conversations are given", spec.name)
        }
        _ => format!("`{}` reaches beyond this machine", spec.name),
    };
    let by = format!("{why}, and this conversation holds what strangers wrote, which `{source}` gave");
    let verdict = match mode {
        ApprovalMode::Never => RuleVerdict::Deny,
        _ => RuleVerdict::Ask,
    };
    Ruling { verdict, by, for_taint: true, by_rule: false }
}

/// What an agent's own manifest adds.
fn narrower(own: &AgentApprovals, facts: CallFacts<'_>, agent: &AgentId, params: &Params) -> Ruling {
    let found = own.rules.iter().enumerate().find(|(_, rule)| holds(rule, facts, agent, params));
    match (found, own.mode) {
        (Some((index, rule)), _) => {
            let by = format!("`agent.approvals.rules[{index}]` of `{agent}`{}", says(rule.then));
            Ruling { verdict: rule.then, by, for_taint: false, by_rule: true }
        }
        (None, Some(mode)) => by_mode(mode, facts.spec, params),
        (None, None) => {
            Ruling { verdict: RuleVerdict::Allow, by: String::new(), for_taint: false, by_rule: false }
        }
    }
}

fn by_mode(mode: ApprovalMode, spec: &ToolSpec, params: &Params) -> Ruling {
    let name = &spec.name;
    let ToolAnnotations { read_only, destructive, needs_approval, .. } = spec.annotations;
    let need = if needs_approval {
        Some(format!("`{name}` declares that each of its calls needs approval"))
    } else if destructive {
        Some(format!("`{name}` may destroy what cannot be restored"))
    } else {
        None
    };
    let mode_itself = || format!("`approvals.mode` is `{}`", mode.name());
    let (verdict, by) = match (mode, need) {
        (ApprovalMode::FullAccess, _)
        | (ApprovalMode::OnRequest | ApprovalMode::OnFailure | ApprovalMode::Never, None) => {
            (RuleVerdict::Allow, mode.name().to_owned())
        }
        (ApprovalMode::OnFailure, Some(_)) if is_confined(&spec.annotations, params) => {
            (RuleVerdict::Allow, format!("{}: the system confines this call of `{name}`", mode.name()))
        }
        (ApprovalMode::Never, Some(need)) => (RuleVerdict::Deny, format!("{need}, and {}", mode_itself())),
        (_, Some(need)) => (RuleVerdict::Ask, need),
        (ApprovalMode::Untrusted, None) if read_only => (RuleVerdict::Allow, mode.name().to_owned()),
        (ApprovalMode::Untrusted, None) => {
            (RuleVerdict::Ask, format!("{}, and `{name}` does more than read", mode_itself()))
        }
    };
    Ruling { verdict, by, for_taint: false, by_rule: false }
}

/// Whether the system confines what a call does, and the call asks for no more than that.
fn is_confined(annotations: &ToolAnnotations, params: &Params) -> bool {
    let asks_more = |name: &String| params.get(name).is_some_and(|value| value != "false");
    annotations.confined_without.as_ref().is_some_and(|more| !more.iter().any(asks_more))
}

/// What a rule does, behind its place.
fn says(verdict: RuleVerdict) -> &'static str {
    match verdict {
        RuleVerdict::Allow => "",
        RuleVerdict::Ask => " has such calls asked about",
        RuleVerdict::Deny => " forbids it",
    }
}

fn holds(rule: &ApprovalRule, facts: CallFacts<'_>, agent: &AgentId, params: &Params) -> bool {
    let ApprovalRule { tool, label, agent: whose, origin, params: wanted, tainted: _, then } = rule;
    let is = |pattern: &Option<String>, text: &str| {
        pattern.as_ref().is_none_or(|pattern| any_reading(pattern, text))
    };
    is(tool, facts.spec.name.as_str())
        && label.is_none_or(|label| has(&facts.spec.annotations, label))
        && is(whose, agent.as_str())
        && is(origin, facts.origin)
        && wanted.iter().all(|(name, pattern)| {
            params.get(name).is_some_and(|text| match then {
                // What is allowed must be so however it is read; what is not need be so but one way.
                RuleVerdict::Allow => all_readings(pattern, &text) && !is_compound(facts.spec, name, &text),
                RuleVerdict::Ask | RuleVerdict::Deny => any_reading(pattern, &text),
            })
        })
}

fn has(annotations: &ToolAnnotations, label: ToolLabel) -> bool {
    match label {
        ToolLabel::ReadOnly => annotations.read_only,
        ToolLabel::Destructive => annotations.destructive,
        ToolLabel::Outward => annotations.outward,
        ToolLabel::ReadsUntrusted => annotations.reads_untrusted,
        ToolLabel::NeedsApproval => annotations.needs_approval,
        ToolLabel::Remembers => annotations.remembers,
    }
}

/// Parameters, read when a rule asks for one.
pub(crate) struct Params(Value);

impl Params {
    pub(crate) fn new(json: &str) -> Self {
        // They have passed the tool's schema, so they are JSON.
        Self(serde_json::from_str(json).unwrap_or_default())
    }

    /// The one of a name, which may have those of maps around it before it; what is no text as its JSON.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let value = name.split('.').try_fold(&self.0, |value, key| value.get(key))?;
        match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
