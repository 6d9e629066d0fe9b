//! `subscribe`: messages upon which an agent is run.
//!
//! Whether anybody emits such a topic is not known here, and may change while the daemon runs.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{
    keys::SUBSCRIPTION,
    read::{Form, Reader},
};
use crate::{
    fields::{Fields, bounded_items},
    tree,
};

/// More than that is a program, which follows topics in code.
const MAX: usize = 32;

/// A topic, and what the agent does on each of its messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Subscription {
    /// `<id>.<topic>` as an extension emits it, or `agent_invoked`, `agent_result` or `agent_error`.
    pub topic: String,
    /// The task of each run; never empty.
    pub task: String,
}

impl Reader<'_> {
    pub(super) fn subscriptions(&mut self, fields: &Fields<'_>) -> Vec<Subscription> {
        if let Some(field) = fields.get("subscribe")
            && matches!(self.form, Form::Folder)
            && fields.get("agent").is_none()
        {
            self.faults
                .error(
                    "subscribe_without_agent",
                    &field.node.at,
                    "subscribe",
                    "`subscribe` runs an agent, and there is no `agent`",
                )
                .help("add an `agent` section, or follow the topic in code");
        }
        let mut topics = BTreeSet::new();
        let mut subscriptions = Vec::new();
        for field in bounded_items(fields, "subscribe", MAX, self.faults) {
            let within = Fields::new(Some(field.node), &SUBSCRIPTION, &field.path);
            let (topic, task) = (within.get("topic"), within.owned("task"));
            within.done();
            let Some(topic) = topic else { continue };
            let Some(text) = topic.node.text() else { continue };
            if text.starts_with("kernel.") {
                let message = format!("`{}` is not kept for those who follow it", tree::shorten(text));
                self.faults
                    .error("invalid_topic", &topic.node.at, &topic.path, message)
                    .help("topics of the kernel that are kept: agent_invoked, agent_result, agent_error");
            } else if !topics.insert(text) {
                let message = format!("`{}` is followed twice", tree::shorten(text));
                self.faults
                    .error("duplicate_topic", &topic.node.at, &topic.path, message)
                    .help("write both tasks into one");
            } else if let Some(task) = task {
                subscriptions.push(Subscription { topic: text.to_owned(), task });
            }
        }
        subscriptions
    }
}
