//! Topics: what extensions publish, and agents that follow.
//!
//! A message that an agent follows is a turn of that agent, in a session of its own. How often a message is tried, and
//! when a chain of them ends, is the bus's business.

use std::sync::{Arc, Weak};

use drupe_agent::{Chain, Run, TopicMessage};
use drupe_bus::{Delivered, Receiver, Remark, days, extend};
use drupe_extension_api::{
    AgentId, EventBody, Fault, SessionId,
    wire::{Emit, QueueMode, Submit},
};
use drupe_handles::Holder;
use drupe_journal::{DueMessage, Inbound, Origin};
use futures_util::future::BoxFuture;

use crate::kernel::Kernel;

/// The longest name of a topic, and the largest message, in bytes: a message is told of things, and does not hold them.
const TOPIC: usize = 128;
const MESSAGE: usize = 64 * 1024;

/// Makes turns of the messages that agents follow.
pub struct ToAgents(pub Weak<Kernel>);

impl Receiver for ToAgents {
    fn deliver(&self, message: DueMessage) -> BoxFuture<'_, Delivered> {
        Box::pin(async move {
            let Some(kernel) = self.0.upgrade() else { return Delivered::NotHere };
            let Some(inbound) = inbound(&kernel, &message) else { return Delivered::NotHere };
            // The queue of topics holds what waits, and not that of people's messages.
            let busy = |session: &SessionId| !kernel.intake.sessions.of(session).is_empty();
            if inbound
                .ask
                .agent
                .as_ref()
                .is_some_and(|agent| days::at_work(agent, kernel.base.clock.now_ms(), busy))
            {
                return Delivered::NotHere;
            }
            match kernel.intake.take_in(inbound).await {
                Ok(_) => Delivered::Done,
                Err(fault) => Delivered::Later { why: fault.to_string() },
            }
        })
    }

    fn remark(&self, remark: Remark) {
        tracing::warn!(
            message = remark.id,
            subscriber = remark.subscriber,
            topic = remark.topic,
            "{}",
            remark.reason
        );
        let Some(kernel) = self.0.upgrade() else { return };
        let agent = remark.subscriber.strip_prefix("agent:").and_then(|id| AgentId::new(id).ok());
        let Some(session) = agent.and_then(|agent| days::session_of(&agent, kernel.base.clock.now_ms()))
        else {
            return;
        };
        let message = format!(
            "message {} of `{}` was given up: {}; `drupe bus dead list` shows it",
            remark.id, remark.topic, remark.reason
        );
        let body = EventBody::Diagnostic { code: "event_given_up".into(), message };
        let task = Arc::clone(&kernel);
        kernel.life.tasks.spawn(async move {
            if let Err(error) = task.store.record_events(session, None, vec![(None, body)]).await {
                tracing::error!(%error, "what became of a message was not recorded");
            }
        });
    }
}

/// The message of a topic as one that its agent answers; none while the agent is not there.
fn inbound(kernel: &Kernel, message: &DueMessage) -> Option<Inbound> {
    let agent = AgentId::new(message.subscriber.strip_prefix("agent:")?).ok()?;
    let snapshot = kernel.roster.snapshot();
    let followed = snapshot.followed.iter().find(|f| f.agent == agent && f.topic == message.topic)?;
    let text = match snapshot.agents.get(&agent)?.own_input {
        // An agent that takes JSON takes the message as it is.
        true => message.payload.to_string(),
        // The message is data, and cannot end its own block.
        false => {
            let payload = message.payload.to_string().replace("</event", "< /event");
            format!("{}\n\n<event topic=\"{}\">\n{payload}\n</event>", followed.task, message.topic)
        }
    };
    let session = days::session_of(&agent, kernel.base.clock.now_ms())?;
    Some(Inbound {
        ask: Submit {
            agent: Some(agent.clone()),
            queue: Some(QueueMode::Followup),
            // The same for each delivery of this message, so that it is one turn.
            ..Submit::new(session, message.id.to_string(), text)
        },
        origin: Origin::Topic { follower: agent },
        chain: message.chain.clone(),
        correlation: message.correlation.clone(),
    })
}

/// Whether a text can be a topic's name.
pub fn check_topic(topic: &str) -> Result<(), Fault> {
    match topic.is_empty() || topic.len() > TOPIC {
        true => Err(Fault::invalid(format!("a topic has 1 to {TOPIC} bytes"))),
        false => Ok(()),
    }
}

/// Publishes what an extension says, on a topic of its own. What set it off is the run on whose behalf it says so, or
/// whatever it works on at the moment: calls, and messages of topics.
pub async fn publish(
    kernel: &Kernel,
    owner: &Holder,
    run: Option<Arc<Run>>,
    emit: Emit,
) -> Result<(), Fault> {
    check_topic(&emit.topic)?;
    let topic = format!("{}.{}", owner.extension, emit.topic);
    if !kernel.roster.bus.listens(&topic) {
        return Ok(());
    }
    if emit.payload.to_string().len() > MESSAGE {
        return Err(Fault::invalid(format!("a message of a topic has at most {MESSAGE} bytes")));
    }
    let message = match run {
        Some(run) => {
            let correlation = Some(run.scope.correlation.clone());
            TopicMessage {
                topic,
                payload: emit.payload,
                chain: run.scope.chain.after(&run.path),
                correlation,
            }
        }
        None => {
            let mut worked_on = kernel.roster.wired.handles.chains(owner);
            // It may have nothing to do with a call that goes on, so no agent of that is shut out of it. Its links count,
            // so that a circle ends.
            let calls = kernel.roster.wired.lasting.tokens.chains(&owner.extension).into_iter();
            worked_on.extend(calls.map(|chain| Chain { ancestors: Vec::new(), ..chain }));
            let chain = extend(&worked_on).map_err(|cut| Fault::denied(cut.to_string()))?;
            TopicMessage { topic, payload: emit.payload, chain, correlation: None }
        }
    };
    match kernel.roster.bus.is_durable(&message.topic) {
        true => Ok(kernel.store.publish(message).await?),
        false => {
            kernel.roster.bus.message(Arc::new(message));
            Ok(())
        }
    }
}
