//! How long the runs and calls of a turn may still take.
//!
//! Every run has a stopwatch, and every call that runs or waits for a person. The stopwatch of a call is below that of its
//! run, and that of a run below that of the call which set it off. One stands still while a person is asked about its
//! call, and while all that goes on below it stands still: so nobody's time is used up by an operator who thinks, and
//! everybody's goes on while anything works.
//!
//! What code of a native agent does beside its calls is not seen: it counts as waiting while a call of it is under way.
//!
//! It measures and wakes, and ends nothing: what follows from time that is over is decided by who waits for it.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// Of one run or call. Clones are the same.
#[derive(Debug, Clone)]
pub struct Stopwatch(Arc<Hand>);

#[derive(Debug)]
struct Hand {
    turn: Arc<Turn>,
    at: usize,
    /// Stays for as long as anything is below it.
    _above: Option<Stopwatch>,
}

#[derive(Debug, Default)]
struct Turn {
    nodes: Mutex<Vec<Option<Node>>>,
    /// One began to stand still, or to run again.
    changed: Notify,
}

#[derive(Debug)]
struct Node {
    above: Option<usize>,
    allowed: Duration,
    /// Time before it began to run last.
    used: Duration,
    /// Since when it runs; none while it stands still.
    since: Option<Instant>,
    /// Whether a person is asked.
    asked: bool,
    /// What goes on below it, and how much of that stands still.
    below: usize,
    still: usize,
}

/// While this lives, a person is asked about the call.
pub(crate) struct Asked<'a>(&'a Stopwatch);

impl Stopwatch {
    /// That of a turn's root, which has so much time from now on.
    pub fn start(allowed: Duration) -> Self {
        let turn = Arc::<Turn>::default();
        let at = turn.insert(None, allowed, Instant::now());
        Self(Arc::new(Hand { turn, at, _above: None }))
    }

    /// That of something which begins below: it has so much time, and no more than all above it have left.
    #[must_use]
    pub fn below(&self, allowed: Duration) -> Self {
        let (turn, now) = (&self.0.turn, Instant::now());
        let allowed = allowed.min(self.left());
        let at = turn.insert(Some(self.0.at), allowed, now);
        Self(Arc::new(Hand { turn: Arc::clone(turn), at, _above: Some(self.clone()) }))
    }

    /// Begins anew, with so much time from now on, and no more than all above it have left.
    pub(crate) fn restart(&self, allowed: Duration) {
        self.0.turn.change(self.0.at, |node| {
            let now = Instant::now();
            (node.allowed, node.used, node.since) = (allowed, Duration::ZERO, node.since.map(|_| now));
        });
    }

    /// Lets it stand still while a person is asked.
    pub(crate) fn ask(&self) -> Asked<'_> {
        self.0.turn.change(self.0.at, |node| node.asked = true);
        Asked(self)
    }

    /// Does `work` that waits for others, whose times `others` gives: while each of these stands still, this one does, too.
    /// `changed` ends when other ones are to be looked at.
    pub(crate) async fn beside<T, C: Future<Output = ()>>(
        &self,
        others: impl Fn() -> Vec<Self>,
        changed: impl Fn() -> C,
        work: impl Future<Output = T>,
    ) -> T {
        let follow = async {
            let mut asked = None;
            loop {
                let (mut time, mut other) = (pin!(self.0.turn.changed.notified()), pin!(changed()));
                time.as_mut().enable();
                let still = {
                    let others = others();
                    !others.is_empty() && others.iter().all(Self::is_still)
                };
                if still != asked.is_some() {
                    asked = still.then(|| self.ask());
                }
                tokio::select! {
                    () = time => {}
                    () = other.as_mut() => {}
                }
            }
        };
        tokio::select! {
            biased;
            done = work => done,
            never = follow => match never {},
        }
    }

    /// Whether what it belongs to waits for a person alone, whatever those above it do.
    fn is_still(&self) -> bool {
        self.0.turn.nodes()[self.0.at].as_ref().is_some_and(|node| node.since.is_none())
    }

    /// When its time or that of one above it is over, as things stand; none while all of them stand still.
    pub fn deadline(&self) -> Option<Instant> {
        let nodes = self.0.turn.nodes();
        self.chain(&nodes).filter_map(Node::ends).min()
    }

    /// Whether it and all above it stand still: what it belongs to waits for a person alone.
    pub fn stands_still(&self) -> bool {
        self.deadline().is_none()
    }

    /// Time that is left to it and to all above it.
    pub fn left(&self) -> Duration {
        let (nodes, now) = (self.0.turn.nodes(), Instant::now());
        self.chain(&nodes).map(|node| node.allowed.saturating_sub(node.used(now))).min().unwrap_or_default()
    }

    /// Time that it has used, and that it may use.
    pub fn used(&self) -> (Duration, Duration) {
        let (nodes, now) = (self.0.turn.nodes(), Instant::now());
        nodes[self.0.at].as_ref().map_or_else(Default::default, |node| (node.used(now), node.allowed))
    }

    /// Ends when its time is over, or that of one above it.
    pub async fn over(&self) {
        loop {
            let mut changed = pin!(self.0.turn.changed.notified());
            // Before the look, so that a change after it is heard.
            changed.as_mut().enable();
            let Some(deadline) = self.deadline() else {
                changed.await;
                continue;
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(deadline) => return,
            }
        }
    }

    /// Ends when it and all above it stand still, or when that is over.
    pub(crate) async fn until(&self, still: bool) {
        loop {
            let mut changed = pin!(self.0.turn.changed.notified());
            changed.as_mut().enable();
            if self.stands_still() == still {
                return;
            }
            changed.await;
        }
    }

    fn chain<'a>(&self, nodes: &'a [Option<Node>]) -> impl Iterator<Item = &'a Node> + use<'a> {
        let node = |at: usize| nodes.get(at).and_then(Option::as_ref);
        std::iter::successors(node(self.0.at), move |below| below.above.and_then(node))
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.0.turn.change(self.0.0.at, |node| node.asked = false);
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        let Some(gone) = self.turn.nodes()[self.at].take() else { return };
        if let Some(above) = gone.above {
            self.turn.change(above, |node| {
                node.below -= 1;
                node.still -= usize::from(gone.since.is_none());
            });
        }
    }
}

impl Turn {
    fn nodes(&self) -> MutexGuard<'_, Vec<Option<Node>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, above: Option<usize>, allowed: Duration, now: Instant) -> usize {
        let node =
            Node { above, allowed, used: Duration::ZERO, since: Some(now), asked: false, below: 0, still: 0 };
        let at = {
            let mut nodes = self.nodes();
            let free = nodes.iter().position(Option::is_none).unwrap_or(nodes.len());
            match nodes.get_mut(free) {
                Some(place) => *place = Some(node),
                None => nodes.push(Some(node)),
            }
            free
        };
        if let Some(above) = above {
            self.change(above, |node| node.below += 1);
        }
        at
    }

    /// Changes one, and has those above follow.
    fn change(&self, at: usize, change: impl FnOnce(&mut Node)) {
        let (mut nodes, now) = (self.nodes(), Instant::now());
        let mut next = nodes[at].as_mut().map(change).and(Some(at));
        let mut changed = false;
        while let Some(node) = next.and_then(|at| nodes[at].as_mut()) {
            let Some(still) = node.settle(now) else { break };
            (changed, next) = (true, node.above);
            if let Some(above) = next.and_then(|at| nodes[at].as_mut()) {
                if still { above.still += 1 } else { above.still -= 1 }
            }
        }
        drop(nodes);
        if changed {
            self.changed.notify_waiters();
        }
    }
}

impl Node {
    fn used(&self, now: Instant) -> Duration {
        self.used + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn ends(&self) -> Option<Instant> {
        self.since?.checked_add(self.allowed.saturating_sub(self.used))
    }

    /// Begins to stand still or to run, where it is to; whether it stands still then.
    fn settle(&mut self, now: Instant) -> Option<bool> {
        let still = self.asked || (self.below > 0 && self.still == self.below);
        if still == self.since.is_none() {
            return None;
        }
        (self.used, self.since) = (self.used(now), (!still).then_some(now));
        Some(still)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn pass(seconds: u32) {
        tokio::time::advance(SECOND * seconds).await;
    }

    #[tokio::test(start_paused = true)]
    async fn it_stands_still_with_all_above_while_only_a_person_is_waited_for() {
        let root = Stopwatch::start(SECOND * 10);
        let call = root.below(SECOND * 5);
        let child = call.below(SECOND * 100);
        let question = child.below(SECOND * 100);
        pass(1).await;
        {
            let _asked = question.ask();
            pass(1_000).await;
            assert_eq!((root.left(), call.left(), child.deadline()), (SECOND * 9, SECOND * 4, None));
        }
        pass(1).await;
        assert_eq!((root.left(), call.left(), child.left()), (SECOND * 8, SECOND * 3, SECOND * 3));
    }

    #[tokio::test(start_paused = true)]
    async fn it_runs_while_anything_beside_the_question_works() {
        let root = Stopwatch::start(SECOND * 10);
        let (asks, works) = (root.below(SECOND * 100), root.below(SECOND * 100));
        let asked = asks.ask();
        pass(2).await;
        assert_eq!(root.left(), SECOND * 8);
        assert_eq!(asks.deadline(), Some(Instant::now() + SECOND * 8), "by the one above");
        drop(works);
        pass(100).await;
        assert_eq!((root.left(), root.deadline()), (SECOND * 8, None));
        let again = root.below(SECOND * 3);
        pass(1).await;
        assert_eq!((root.left(), again.left()), (SECOND * 7, SECOND * 2));
        drop((again, asked));
        drop(asks);
        pass(1).await;
        assert_eq!(root.left(), SECOND * 6);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_its_end_hears_of_every_change() {
        let root = Stopwatch::start(SECOND * 10);
        let call = root.below(SECOND * 100);
        let began = Instant::now();
        let person = async {
            let asked = call.ask();
            tokio::time::sleep(SECOND * 50).await;
            drop(asked);
        };
        tokio::join!(root.over(), person);
        assert_eq!(began.elapsed(), SECOND * 60);
    }
}
