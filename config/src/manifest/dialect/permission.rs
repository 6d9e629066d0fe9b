//! opencode's `permissions`, and what came before them, the maps `permission` and `tools`: which tools an agent has, and which it
//! is asked about.
//!
//! The last rule that fits a tool decides there, and so it does here.

use super::{NO_HELP, left_out};
use crate::{
    Diagnostics,
    source::At,
    tree::{Entry, Node, Yaml, shorten},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Allow,
    Ask,
    Deny,
}

pub(super) struct Rule {
    /// A tool's name, in which `*` stands for any characters.
    pub name: String,
    pub action: Action,
    pub at: At,
}

#[derive(Default)]
pub(super) struct Rules {
    all: Vec<Rule>,
    agents: Vec<(String, At)>,
}

/// Tools that change files: there one permission, `edit`, is that of all of them.
const EDITING: [&str; 3] = ["write", "patch", "multiedit"];

impl Rules {
    /// `tools`, a map of names with `true` or `false`.
    pub fn of_tools(&mut self, entries: &[Entry], faults: &mut Diagnostics) {
        for entry in entries {
            match entry.value.value {
                Yaml::Bool(yes) => {
                    let action = if yes { Action::Allow } else { Action::Deny };
                    self.push(&entry.key, action, &entry.key_at);
                }
                _ => unclear(entry, "`true` or `false`", faults),
            }
        }
    }

    /// `permission`: one word for all, or a map of tools, each with a word or with words for patterns.
    pub fn of_permission(&mut self, entry: &Entry, faults: &mut Diagnostics) {
        match &entry.value.value {
            Yaml::Text(_) => match action(&entry.value) {
                Some(action) => self.push("*", action, &entry.key_at),
                None => unclear(entry, "`allow`, `ask` or `deny`", faults),
            },
            Yaml::Map(entries) => entries.iter().for_each(|one| self.of_one(one, faults)),
            _ => unclear(entry, "a map, or `allow`, `ask` or `deny`", faults),
        }
    }

    fn of_one(&mut self, entry: &Entry, faults: &mut Diagnostics) {
        let Yaml::Map(patterns) = &entry.value.value else {
            match action(&entry.value) {
                Some(action) => self.push(&entry.key, action, &entry.key_at),
                None => unclear(entry, "`allow`, `ask` or `deny`, or a map of patterns", faults),
            }
            return;
        };
        let mut actions = Vec::new();
        for pattern in patterns {
            match action(&pattern.value) {
                Some(action) => actions.push(action),
                None => return unclear(pattern, "`allow`, `ask` or `deny`", faults),
            }
        }
        if entry.key == "task" {
            // Here an agent is called where it is named, and no other one.
            let named = patterns
                .iter()
                .zip(&actions)
                .filter(|(pattern, action)| **action != Action::Deny && !pattern.key.contains(['*', '?']));
            self.agents.extend(named.map(|(pattern, _)| (pattern.key.clone(), pattern.key_at.clone())));
            return;
        }
        self.push_all(&entry.key, &actions, entry, faults);
    }

    /// `permissions`: a list of rules, each with an `action`, a `resource` and an `effect`.
    pub fn of_rules(&mut self, entry: &Entry, faults: &mut Diagnostics) {
        let Yaml::List(list) = &entry.value.value else {
            return unclear(entry, "a list of rules", faults);
        };
        // What the rules of one action say since one of them was of all that it can be about.
        let mut parts: Vec<(String, Vec<Action>)> = Vec::new();
        for rule in list {
            let text = |key: &str| rule.get(key).and_then(Node::text);
            let effect = rule.get("effect").and_then(action);
            let (Some(name), Some(resource), Some(effect)) = (text("action"), text("resource"), effect)
            else {
                return unclear(entry, "rules with `action`, `resource` and `effect`", faults);
            };
            if name == "subagent" {
                if effect != Action::Deny && !resource.contains(['*', '?']) {
                    self.agents.push((resource.to_owned(), rule.at.clone()));
                }
            } else if name.contains(['*', '?']) {
                for (name, actions) in parts.drain(..) {
                    self.push_all(&name, &actions, entry, faults);
                }
                // One that is of a part of many tools is of all that they can do, unless it allows.
                if resource == "*" || effect != Action::Allow {
                    self.push(name, effect, &rule.at);
                }
            } else {
                match parts.iter_mut().find(|(known, _)| known == name) {
                    Some((_, actions)) if resource == "*" => *actions = vec![effect],
                    Some((_, actions)) => actions.push(effect),
                    // Where no rule is, people are asked there.
                    None if resource == "*" => parts.push((name.to_owned(), vec![effect])),
                    None => parts.push((name.to_owned(), vec![Action::Ask, effect])),
                }
            }
        }
        for (name, actions) in parts {
            self.push_all(&name, &actions, entry, faults);
        }
    }

    /// What several rules of one tool come to as a whole.
    fn push_all(&mut self, name: &str, actions: &[Action], entry: &Entry, faults: &mut Diagnostics) {
        let denies = actions.contains(&Action::Deny);
        if denies && actions.iter().any(|action| *action != Action::Deny) {
            let message = format!(
                "`{}` is denied by patterns, which have no counterpart here, and is not given at all",
                shorten(name)
            );
            left_out(entry, &message, NO_HELP, faults);
        }
        let action = match () {
            () if denies => Action::Deny,
            () if actions.iter().all(|action| *action == Action::Allow) => Action::Allow,
            () => Action::Ask,
        };
        self.push(name, action, &entry.key_at);
    }

    fn push(&mut self, name: &str, action: Action, at: &At) {
        let name = if EDITING.contains(&name) { "edit" } else { name };
        self.all.push(Rule { name: name.to_owned(), action, at: at.clone() });
    }

    /// Those that name one tool and do not deny it.
    pub fn named(&self) -> impl Iterator<Item = &Rule> {
        self.all.iter().filter(|rule| !rule.name.contains(['*', '?']) && rule.action != Action::Deny)
    }

    /// What becomes of a tool in the end.
    pub fn of(&self, tool: &str) -> Option<Action> {
        self.all.iter().rev().find(|rule| fits(&rule.name, tool)).map(|rule| rule.action)
    }

    pub fn agents(&self) -> impl Iterator<Item = (String, At)> + '_ {
        self.agents.iter().cloned()
    }
}

fn action(node: &Node) -> Option<Action> {
    match node.text()? {
        "allow" => Some(Action::Allow),
        "ask" => Some(Action::Ask),
        "deny" => Some(Action::Deny),
        _ => None,
    }
}

/// Whether a name fits a pattern: only the last `*` is tried again, so that none takes long.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match (pattern.get(p), star) {
            (Some(b'*'), _) => {
                star = Some((p, n));
                p += 1;
            }
            (Some(byte), _) if *byte == name[n] || *byte == b'?' => (p, n) = (p + 1, n + 1),
            (_, Some((place, taken))) => {
                star = Some((place, taken + 1));
                (p, n) = (place + 1, taken + 1);
            }
            (_, None) => return false,
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

fn unclear(entry: &Entry, expected: &str, faults: &mut Diagnostics) {
    let message = format!("`{}`: expected {expected}, found {}", entry.key, entry.value.describe());
    faults
        .error("wrong_type", &entry.value.at, &entry.key, message)
        .help("what may not be used is denied: write `deny`");
}
