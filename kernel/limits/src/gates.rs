//! How many turns, and how many runs of one agent, go on at the same time.
//!
//! Who comes first gets in first; who gives up waiting leaves nothing behind.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::AgentId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The gates of the process; shared behind an `Arc`.
#[derive(Debug)]
pub struct Gates {
    turns: Arc<Semaphore>,
    runs_of_one_agent: usize,
    agents: Arc<Agents>,
}

/// The gates of the agents that are in or wait.
type Agents = Mutex<HashMap<AgentId, Gate>>;

#[derive(Debug)]
struct Gate {
    semaphore: Arc<Semaphore>,
    /// How many are in or wait. It goes when nobody does.
    users: usize,
}

/// A place within; dropping it lets the next one in.
#[derive(Debug)]
#[must_use = "the place is given up when this is dropped"]
pub struct GatePermit {
    // Before the visit: the gate may go only after the place was given back.
    _place: OwnedSemaphorePermit,
    _visit: Option<Visit>,
}

/// Keeps the gate of an agent for as long as somebody is in it or waits.
#[derive(Debug)]
struct Visit {
    agents: Arc<Agents>,
    agent: AgentId,
}

impl Gates {
    /// So many turns at the same time, and so many runs of each agent; at least one of either.
    pub fn new(turns: usize, runs_of_one_agent: usize) -> Self {
        let within = |count: usize| count.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            turns: Arc::new(Semaphore::new(within(turns))),
            runs_of_one_agent: within(runs_of_one_agent),
            agents: Arc::default(),
        }
    }

    /// Gates at which nobody waits.
    pub fn open() -> Self {
        Self::new(usize::MAX, usize::MAX)
    }

    /// Waits for a place of a turn. May be dropped at any time.
    pub async fn turn(&self) -> GatePermit {
        GatePermit { _place: place(Arc::clone(&self.turns)).await, _visit: None }
    }

    /// Waits for a place of a run of this agent. May be dropped at any time.
    pub async fn agent(&self, id: &AgentId) -> GatePermit {
        let (visit, semaphore) = self.visit(id);
        GatePermit { _place: place(semaphore).await, _visit: Some(visit) }
    }

    fn visit(&self, id: &AgentId) -> (Visit, Arc<Semaphore>) {
        let mut agents = locked(&self.agents);
        let gate = agents.entry(id.clone()).or_insert_with(|| Gate {
            semaphore: Arc::new(Semaphore::new(self.runs_of_one_agent)),
            users: 0,
        });
        gate.users += 1;
        (Visit { agents: Arc::clone(&self.agents), agent: id.clone() }, Arc::clone(&gate.semaphore))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut agents = locked(&self.agents);
        if let Some(gate) = agents.get_mut(&self.agent) {
            gate.users -= 1;
            if gate.users == 0 {
                agents.remove(&self.agent);
            }
        }
    }
}

async fn place(semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
    semaphore.acquire_owned().await.expect("no gate is ever closed")
}

/// Every change of the table is one step, so a poisoned lock is as good as another.
fn locked(agents: &Agents) -> MutexGuard<'_, HashMap<AgentId, Gate>> {
    agents.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::{
        pin::{Pin, pin},
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn agent(name: &str) -> AgentId {
        AgentId::new(name).unwrap()
    }

    /// Asks once, without waiting.
    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn kept(gates: &Gates) -> usize {
        locked(&gates.agents).len()
    }

    #[test]
    fn who_comes_first_gets_in_first() {
        let gates = Gates::new(1, 1);
        let inside = poll(pin!(gates.turn())).expect("a free place");
        let (mut second, mut third) = (pin!(gates.turn()), pin!(gates.turn()));
        assert!(poll(second.as_mut()).is_none());
        assert!(poll(third.as_mut()).is_none());
        drop(inside);
        assert!(poll(third.as_mut()).is_none(), "the second one came before");
        let inside = poll(second.as_mut()).expect("its turn");
        drop(inside);
        assert!(poll(third.as_mut()).is_some());
    }

    #[test]
    fn who_gives_up_waiting_leaves_nothing() {
        let gates = Gates::new(1, 1);
        let inside = poll(pin!(gates.agent(&agent("a")))).expect("a free place");
        {
            let id = agent("a");
            let mut waiting = pin!(gates.agent(&id));
            assert!(poll(waiting.as_mut()).is_none());
            assert_eq!(locked(&gates.agents)["a"].users, 2);
        }
        assert_eq!(locked(&gates.agents)["a"].users, 1);
        drop(inside);
        assert!(poll(pin!(gates.agent(&agent("a")))).is_some(), "no place went to who gave up");
    }

    #[test]
    fn agents_do_not_wait_for_each_other() {
        let gates = Gates::new(1, 2);
        let (a, b) = (agent("a"), agent("b"));
        let one = poll(pin!(gates.agent(&a)));
        let two = poll(pin!(gates.agent(&a)));
        assert!(one.is_some() && two.is_some());
        assert!(poll(pin!(gates.agent(&a))).is_none(), "two of them are in");
        assert!(poll(pin!(gates.agent(&b))).is_some());
    }

    #[test]
    fn the_gate_of_an_agent_that_nobody_uses_goes() {
        let gates = Gates::new(1, 1);
        let inside = poll(pin!(gates.agent(&agent("a")))).expect("a free place");
        let id = agent("a");
        let mut waiting = Box::pin(gates.agent(&id));
        assert!(poll(waiting.as_mut()).is_none());
        drop(inside);
        assert_eq!(kept(&gates), 1, "somebody waits");
        let inside = poll(waiting.as_mut()).expect("its turn");
        assert_eq!(kept(&gates), 1);
        drop(inside);
        drop(waiting);
        assert_eq!(kept(&gates), 0);
    }

    #[test]
    fn nobody_waits_at_open_gates_and_every_gate_lets_somebody_in() {
        let (open, narrow) = (Gates::open(), Gates::new(0, 0));
        let all: Vec<_> = (0..1000).map(|_| poll(pin!(open.turn())).expect("a free place")).collect();
        assert_eq!(all.len(), 1000);
        assert!(poll(pin!(narrow.turn())).is_some());
        assert!(poll(pin!(narrow.agent(&agent("a")))).is_some());
    }
}
