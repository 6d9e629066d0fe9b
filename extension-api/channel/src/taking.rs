//! What a service told and is being taken in: of one conversation one thing after another, of several at the same time. Each waits for the disk of
//! the daemon, which takes in many at once as quickly as one, and some for a file that comes slowly.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    pin::Pin,
};

use drupe_extension_api::prelude::*;
use tokio::task::JoinSet;

/// So many are taken in, or wait behind others of their conversation, at the same time.
const MOST: usize = 32;

type Take<T> = dyn Fn(T) -> Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>> + Send + Sync;

/// What is being taken in, by ids under which the service knows it. It goes on whether or not somebody waits for it, and ends when this is dropped.
pub struct Taking<I, T> {
    take: Box<Take<T>>,
    running: JoinSet<(I, String, Result<(), Fault>)>,
    /// What waits in a conversation of which something is being taken in.
    behind: HashMap<String, VecDeque<(I, T)>>,
}

/// What became of something that was told.
#[derive(Debug, PartialEq)]
pub struct TakenIn<I> {
    pub id: I,
    pub conversation: String,
    pub outcome: Result<(), Fault>,
    /// What was told after it of the conversation, where it was not taken in: that is not either, so that their order stays. The service has to
    /// tell of all of them again.
    pub behind: Vec<I>,
}

impl<I: Send + 'static, T: Send + 'static> Taking<I, T> {
    /// With that by which something is taken in: once it returns, what the daemon must know is on its disk.
    pub fn new<F>(take: impl Fn(T) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), Fault>> + Send + 'static,
    {
        Self {
            take: Box::new(move |told| Box::pin(take(told))),
            running: JoinSet::new(),
            behind: HashMap::new(),
        }
    }

    /// Whether more may be begun.
    pub fn has_room(&self) -> bool {
        self.running.len() + self.behind.values().map(VecDeque::len).sum::<usize>() < MOST
    }

    /// How much of a conversation is being taken in or waits.
    pub fn of(&self, conversation: &str) -> usize {
        self.behind.get(conversation).map_or(0, |behind| 1 + behind.len())
    }

    /// Begins to take something in, behind what was told before of its conversation.
    pub fn begin(&mut self, conversation: String, id: I, told: T) {
        match self.behind.entry(conversation.clone()) {
            Entry::Occupied(mut behind) => behind.get_mut().push_back((id, told)),
            Entry::Vacant(free) => {
                free.insert(VecDeque::new());
                self.run(conversation, id, told);
            }
        }
    }

    /// The next that is done. None where nothing is being taken in; whoever drops this loses nothing.
    pub async fn next(&mut self) -> Option<TakenIn<I>> {
        let (id, conversation, outcome) = match self.running.join_next().await? {
            Ok(taken) => taken,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        let mut waiting = self.behind.remove(&conversation).unwrap_or_default();
        let behind = match outcome {
            Ok(()) => {
                if let Some((next, told)) = waiting.pop_front() {
                    self.behind.insert(conversation.clone(), waiting);
                    self.run(conversation.clone(), next, told);
                }
                Vec::new()
            }
            Err(_) => waiting.into_iter().map(|(id, _)| id).collect(),
        };
        Some(TakenIn { id, conversation, outcome, behind })
    }

    fn run(&mut self, conversation: String, id: I, told: T) {
        let taking = (self.take)(told);
        self.running.spawn(async move { (id, conversation, taking.await) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::oneshot;

    use super::*;

    /// Something that is taken in when somebody says what comes of it.
    type Told = (&'static str, oneshot::Receiver<Result<(), Fault>>);

    struct Scene {
        taking: Taking<&'static str, Told>,
        begun: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Scene {
        fn new() -> Self {
            let begun = Arc::<Mutex<Vec<_>>>::default();
            let notes = begun.clone();
            let taking = Taking::new(move |(id, comes): Told| {
                let notes = notes.clone();
                async move {
                    notes.lock().expect("nobody panics").push(id);
                    comes.await.expect("somebody says it")
                }
            });
            Self { taking, begun }
        }

        fn begin(&mut self, conversation: &str, id: &'static str) -> oneshot::Sender<Result<(), Fault>> {
            let (say, comes) = oneshot::channel();
            self.taking.begin(conversation.to_owned(), id, (id, comes));
            say
        }

        fn begun(&self) -> Vec<&'static str> {
            self.begun.lock().expect("nobody panics").clone()
        }

        async fn next(&mut self) -> (&'static str, bool, Vec<&'static str>) {
            let taken = self.taking.next().await.expect("something is being taken in");
            (taken.id, taken.outcome.is_ok(), taken.behind)
        }
    }

    #[tokio::test]
    async fn a_slow_conversation_holds_up_itself_alone_and_keeps_its_order() {
        let mut scene = Scene::new();
        let [slow, after, quick] =
            [("a", "a1"), ("a", "a2"), ("b", "b1")].map(|(of, id)| scene.begin(of, id));
        assert_eq!((scene.taking.of("a"), scene.taking.of("b"), scene.taking.of("c")), (2, 1, 0));
        quick.send(Ok(())).expect("it waits");
        assert_eq!(scene.next().await, ("b1", true, vec![]));
        assert!(!scene.begun().contains(&"a2"), "the first of its conversation is not done");
        slow.send(Ok(())).expect("it waits");
        after.send(Ok(())).expect("it waits");
        assert_eq!((scene.next().await.0, scene.next().await.0), ("a1", "a2"));
        assert_eq!(scene.taking.next().await, None);
    }

    #[tokio::test]
    async fn what_was_told_behind_something_that_is_not_taken_in_comes_again_with_it() {
        let mut scene = Scene::new();
        let [fails, after, last] = ["a1", "a2", "a3"].map(|id| scene.begin("a", id));
        fails.send(Err(Fault::new(FaultCode::Busy, "later"))).expect("it waits");
        assert_eq!(scene.next().await, ("a1", false, vec!["a2", "a3"]));
        assert!(after.is_closed() && last.is_closed() && scene.begun() == ["a1"]);
        scene.begin("a", "a1").send(Ok(())).expect("it is begun anew");
        assert_eq!(scene.next().await, ("a1", true, vec![]));
    }

    #[tokio::test]
    async fn only_so_many_are_begun_whether_they_run_or_wait() {
        let mut scene = Scene::new();
        let mut held = Vec::new();
        while scene.taking.has_room() {
            held.push(scene.begin(if held.len() % 2 == 0 { "a" } else { "b" }, "x"));
        }
        assert_eq!(held.len(), MOST);
        held.remove(0).send(Ok(())).expect("it waits");
        scene.next().await;
        assert!(scene.taking.has_room());
    }
}
