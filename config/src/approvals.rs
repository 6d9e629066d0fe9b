//! Rules about tool calls: `approvals` of the configuration, and of an agent, whose own can only be stricter.
//!
//! What a call must be like for a rule to hold of it is read here as it is written; the kernel's policy gives it meaning.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Diagnostics,
    declare::keys,
    fields::Field,
    forms,
    shape::{EMPTY, Shape, each_its_own},
    tree::Yaml,
};

/// Rules that one list may have: each is looked at for each call.
pub(crate) const MOST_RULES: usize = 100;

keys! {
    /// A rule about tool calls. It holds of a call for which all that it names holds; the first such rule decides.
    #[derive(PartialEq, Eq)]
    #[serde(default)]
    pub struct ApprovalRule in RULE("the rule") {
        /// The tool's name; `*` stands for any characters.
        tool (skip_serializing_if = "Option::is_none"): Option<String> => Shape::Text(&forms::PATTERN);
        /// What the tool says of itself.
        label (skip_serializing_if = "Option::is_none"): Option<ToolLabel> => Shape::choice(&["read_only", "destructive", "outward", "reads_untrusted", "needs_approval", "remembers"]);
        /// The agent that calls, or on whose behalf another one does; `*` stands for any characters.
        agent (skip_serializing_if = "Option::is_none"): Option<String> => Shape::Text(&forms::PATTERN);
        /// What set the turn off: `operator`, `token:NAME`, `extension:ID`, `topic:AGENT` or `schedule:ID`; `*` stands for any characters.
        origin (skip_serializing_if = "Option::is_none"): Option<String> => Shape::Text(&forms::PATTERN);
        /// Parameters by name, each with what it must be; `*` stands for any characters.
        params: BTreeMap<String, String> = each_its_own() =>
            Shape::Map { key: &forms::PARAMETER, value: &Shape::Text(&forms::PATTERN) };
        /// For `allow`: whether it also holds where strangers' text was read.
        tainted: bool = false => Shape::Bool;
        /// What becomes of such a call.
        then: RuleVerdict = "ask" => Shape::choice(&["allow", "ask", "deny"]), required;
    }
}

impl Default for ApprovalRule {
    fn default() -> Self {
        Self {
            tool: None,
            label: None,
            agent: None,
            origin: None,
            params: BTreeMap::new(),
            tainted: false,
            then: RuleVerdict::Ask,
        }
    }
}

keys! {
    /// What an agent's calls are asked about, beyond what the configuration says.
    #[derive(PartialEq, Eq, Default)]
    #[serde(default)]
    pub struct AgentApprovals in AGENT_APPROVALS("`agent.approvals`") {
        /// Which calls a person is asked about where no rule says it.
        mode: Option<ApprovalMode> => Shape::choice(&["on-request", "untrusted", "never"]);
        /// The first rule that holds decides; none may allow.
        rules: Vec<ApprovalRule> = EMPTY => Shape::AtMost(MOST_RULES, &Shape::List(&Shape::Record(&RULE)));
    }
}

/// Which calls a person is asked about where no rule says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalMode {
    /// Those of tools that declare a need, or may destroy what cannot be restored.
    #[default]
    OnRequest,
    /// The same, but for calls that the system confines: they run, and what they are denied can be asked for.
    OnFailure,
    /// All but those of tools that only read.
    Untrusted,
    /// Nobody is asked: what would be asked about is refused.
    Never,
    /// Nobody is asked: all calls run.
    FullAccess,
}

impl ApprovalMode {
    /// As the files have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnRequest => "on-request",
            Self::OnFailure => "on-failure",
            Self::Untrusted => "untrusted",
            Self::Never => "never",
            Self::FullAccess => "full-access",
        }
    }
}

/// What a tool says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolLabel {
    ReadOnly,
    Destructive,
    Outward,
    ReadsUntrusted,
    NeedsApproval,
    Remembers,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleVerdict {
    Allow,
    Ask,
    Deny,
}

/// Refuses rules that can mean nothing, or too much.
pub(crate) fn check_rules(section: &Field<'_>, may_allow: bool, faults: &mut Diagnostics) {
    for rule in section.items("rules") {
        let says = |key: &str| rule.get(key).and_then(|field| field.node.text().map(str::to_owned));
        let allows = says("then").as_deref() == Some("allow");
        let at = |key: &str| {
            rule.get(key).map_or((&rule.node.at, rule.path.clone()), |field| (&field.node.at, field.path))
        };
        if allows && !may_allow {
            let (place, path) = at("then");
            faults
                .error("allow_in_manifest", place, &path, "an agent's own rules can only be stricter")
                .help("write `ask` or `deny`; the operator allows in `approvals.rules` of drupe.yaml");
        }
        let tainted = rule.get("tainted").is_some_and(|field| matches!(field.node.value, Yaml::Bool(true)));
        if tainted && !allows {
            let (place, path) = at("tainted");
            faults
                .error("tainted_without_allow", place, &path, "`tainted` is for rules with `then: allow`")
                .help("leave it out: `ask` and `deny` hold in any case");
        }
    }
}
