//! The extension's configuration.

use std::collections::BTreeMap;

use drupe_extension_api::prelude::*;
use serde_json::Value;

/// As its manifest has it, whose schema says what each key means.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlackSettings {
    pub api: String,
    pub files: String,
    pub quiet_seconds: u64,
    /// Where the daemon listens for requests of the service, in place of sockets to it.
    #[serde(default)]
    pub events: Option<String>,
    #[serde(default)]
    pub signing_secret: Option<String>,
    /// Who is answered is the daemon's to decide, which reads it.
    #[serde(default, rename = "allowed")]
    pub _allowed: Option<Vec<Value>>,
    #[serde(default)]
    pub agent: Option<AgentId>,
    #[serde(default = "yes")]
    pub other_channels: bool,
    #[serde(default)]
    pub channels: BTreeMap<String, ChannelRule>,
}

/// What holds in one channel.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelRule {
    #[serde(default = "yes")]
    pub answer: bool,
    #[serde(default)]
    pub agent: Option<AgentId>,
}

fn yes() -> bool {
    true
}

impl SlackSettings {
    /// Whether anybody is answered in a channel.
    pub fn answers_in(&self, channel: &str) -> bool {
        self.channels.get(channel).map_or(self.other_channels, |rule| rule.answer)
    }

    /// Who answers in a channel, or in a chat with the bot alone.
    pub fn agent_in(&self, channel: &str) -> Option<AgentId> {
        self.channels.get(channel).and_then(|rule| rule.agent.clone()).or_else(|| self.agent.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_channel_that_is_named_has_its_own_rules_and_others_those_of_all() {
        let read = |more: Value| {
            let mut settings = json!({"api": "https://slack.com/api", "files": "https://files.slack.com",
                "quiet_seconds": 30, "agent": "plum"});
            settings.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
            serde_json::from_value::<SlackSettings>(settings).expect("settings")
        };
        let open = read(json!({"channels": {"C1": {"answer": false}, "C2": {"agent": "haiku"}}}));
        assert_eq!(["C1", "C2", "C3"].map(|channel| open.answers_in(channel)), [false, true, true]);
        let closed = read(json!({"other_channels": false, "channels": {"C2": {}}}));
        assert_eq!(["C1", "C2"].map(|channel| closed.answers_in(channel)), [false, true]);
        let agents = ["C2", "C3", "D1"].map(|channel| open.agent_in(channel).expect("one").to_string());
        assert_eq!(agents, ["haiku", "plum", "plum"]);
    }
}
