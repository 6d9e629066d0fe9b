//! `subscribe`: messages upon which an agent is run.
//!
//! Whether anybody emits such a topic is not known here, and may change while the daemon runs.

use std::collections::BTreeSet;

use super::read::{Form, Reader};
use crate::{declare::keys, fields::Field, forms, shape::Shape, tree};

keys! {
    /// A topic, and what the agent does on each of its messages.
    #[derive(PartialEq, Eq)]
    pub struct Subscription in SUBSCRIPTION("the subscription") {
        /// Which messages: `<extension>.<topic>`, `agent_invoked`, `agent_result` or `agent_error`.
        topic: String = "" => Shape::Text(&forms::TOPIC), required;
        /// What the agent is to do on each message.
        task: String = "" => Shape::Text(&forms::NON_EMPTY), required;
    }
}

impl Reader<'_> {
    pub(super) fn check_subscriptions(&mut self, manifest: &Field<'_>) {
        if let Some(field) = manifest.get("subscribe")
            && matches!(self.form, Form::Folder)
            && manifest.get("agent").is_none()
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
        for subscription in manifest.items("subscribe") {
            let Some(topic) = subscription.get("topic") else { continue };
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
            }
        }
    }
}
