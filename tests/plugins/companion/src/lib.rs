//! An agent that is code and takes conversations over: for tests of what code is told of its part, and how it gives it back.

use drupe_extension_api::prelude::*;

struct Companion {
    host: Host,
}

impl Extension for Companion {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        Ok(Self { host })
    }
}

impl AgentProvider for Companion {
    fn descriptor(&self) -> AgentDescriptor {
        AgentDescriptor {
            id: self.host.id().clone().into(),
            name: "Companion".into(),
            description: "Keeps people company.".into(),
            integration_mode: IntegrationMode::Handoff,
        }
    }

    async fn invoke(&self, task: String, context: AgentInvocationContext, call: Call) -> AgentResponse {
        let told = context.conversation_summary.clone().unwrap_or_default();
        match (task.as_str(), self.host.agent()) {
            ("bye", _) => AgentResponse::returning("farewell", "all is done"),
            ("weather", _) => AgentResponse::returning("", "they want to know the weather"),
            // Its own loop answers, and may give the conversation back, too.
            ("think", Some(definition)) => {
                let run = call.run_agent(definition.clone(), task).context(context).await;
                run.unwrap_or_else(|fault| AgentResponse::error(FailureClass::Internal, fault.to_string()))
            }
            _ => AgentResponse::success(format!("companion: {task}, having been told: {told}")),
        }
    }
}

export!(Companion: Agent);
