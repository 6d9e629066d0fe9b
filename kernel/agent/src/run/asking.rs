//! The hooks of a run.

use drupe_extension_api::{AgentId, EventBody, wire::HookPoint};
use serde_json::{Value, json};

use super::Run;

fn ids(agents: &[AgentId]) -> Vec<&str> {
    agents.iter().map(AgentId::as_str).collect()
}

impl Run {
    /// Asks before something happens; the reason, if it must not. What ends the run ends the wait.
    pub(crate) async fn ask_before(&self, point: HookPoint, facts: impl FnOnce() -> Value) -> Option<String> {
        tokio::select! {
            biased;
            _ = self.over() => None,
            blocked = self.ask(point, facts) => blocked,
        }
    }

    /// Tells that something happened. Who is to end does not wait for it to be heard.
    pub(crate) async fn ask_after(&self, point: HookPoint, facts: impl FnOnce() -> Value) {
        tokio::select! {
            biased;
            _ = self.ask(point, facts) => {}
            _ = self.over() => {}
        }
    }

    /// Whether somebody is to be told of that point.
    pub(crate) fn tells(&self, point: HookPoint) -> bool {
        self.scope.hooks.wants(point)
    }

    async fn ask(&self, point: HookPoint, facts: impl FnOnce() -> Value) -> Option<String> {
        let hooks = &self.scope.hooks;
        if !hooks.wants(point) {
            return None;
        }
        let answer = hooks.call(point, self.facts(facts())).await;
        for message in answer.remarks {
            self.tell(EventBody::Diagnostic { code: "hook_late".into(), message });
        }
        answer.blocked
    }

    /// What is known of the run, and what is particular to the point.
    fn facts(&self, particular: Value) -> Value {
        let mut facts = json!({
            "session": self.scope.session,
            "turn": self.scope.turn,
            "agent": self.agent,
            "invocation": self.id,
            "path": ids(&self.path),
            "on_behalf_of": ids(&self.behalf),
        });
        if let (Value::Object(facts), Value::Object(particular)) = (&mut facts, particular) {
            facts.extend(particular);
        }
        facts
    }
}
