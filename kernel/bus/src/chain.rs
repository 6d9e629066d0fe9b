//! Chains: what one message sets off, and what that sets off in turn. Each ends.
//!
//! A chain counts its links and remembers the agents that are part of it. A message whose chain has more than
//! [`MAX_HOPS`] links sets nothing off, nor does one that would come back to an agent of its chain. Pure: who is told of
//! a cut, and what becomes of the message, is [`Deliveries`](crate::Deliveries)' business.

use drupe_agent::{Chain, MAX_HOPS};
use drupe_extension_api::AgentId;

/// Why a chain ends here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Cut {
    /// It is too long.
    #[error(
        "the chain of events is cut after {MAX_HOPS} links; look for subscriptions that set each other off \
         (agents so far: {})", path(.ancestors)
    )]
    TooLong {
        /// The agents that are part of it.
        ancestors: Vec<AgentId>,
    },
    /// It comes back to an agent that is part of it.
    #[error(
        "the chain of events is cut: it comes back to agent `{agent}`, which is part of it ({}); subscribe \
         `{agent}` to a topic that it does not set off itself", path(.ancestors)
    )]
    Ancestor {
        /// The agent that should have run.
        agent: AgentId,
        /// The agents that are part of the chain.
        ancestors: Vec<AgentId>,
    },
}

fn path(ancestors: &[AgentId]) -> String {
    match ancestors {
        [] => "none".to_owned(),
        all => all.iter().map(AgentId::as_str).collect::<Vec<_>>().join(", "),
    }
}

/// Whether a message of this chain may set something off at its receiver, and the chain of what it sets off. The receiver
/// is none where it is no agent.
///
/// The message's own link is counted already: a turn that a message sets off has the message's chain, and what is
/// published from within that turn has one link more.
pub fn admit(chain: &Chain, receiver: Option<&AgentId>) -> Result<Chain, Cut> {
    if chain.hops > MAX_HOPS {
        return Err(Cut::TooLong { ancestors: chain.ancestors.clone() });
    }
    match receiver {
        Some(agent) if chain.ancestors.contains(agent) => {
            Err(Cut::Ancestor { agent: agent.clone(), ancestors: chain.ancestors.clone() })
        }
        _ => Ok(chain.clone()),
    }
}

/// The chain of what an extension publishes by itself while it works on messages of these chains: one link more than the
/// longest of them, and the agents of all. Without any it is the first link of a new chain.
///
/// Without this, extensions that answer each other's messages would go on for ever.
pub fn extend<'a>(worked_on: impl IntoIterator<Item = &'a Chain>) -> Result<Chain, Cut> {
    let mut joined = None;
    worked_on.into_iter().for_each(|chain| join(&mut joined, chain));
    Ok(admit(&joined.unwrap_or_default(), None)?.after(&[]))
}

/// The chain of a message that an extension hands in by itself while it has messages of these chains. It may have nothing
/// to do with them, so no agent is shut out of it; but its links are counted, so that a circle ends. Without any it begins
/// nothing.
pub fn count_link(worked_on: &[Chain]) -> Result<Chain, Cut> {
    match worked_on {
        [] => Ok(Chain::default()),
        _ => Ok(Chain { hops: extend(worked_on)?.hops, ancestors: Vec::new() }),
    }
}

/// Takes the longer of two chains, with the agents of both.
pub(crate) fn join(joined: &mut Option<Chain>, other: &Chain) {
    let joined = joined.get_or_insert_default();
    joined.hops = joined.hops.max(other.hops);
    for agent in &other.ancestors {
        if !joined.ancestors.contains(agent) {
            joined.ancestors.push(agent.clone());
        }
    }
}
