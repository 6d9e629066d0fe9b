//! One asking for all, what is remembered of it, and for how long, on a paused clock.

use std::sync::atomic::{AtomicUsize, Ordering};

use drupe_extension_api::FailureClass;
use futures_util::future::join_all;
use tokio::time::{advance, sleep};

use super::*;

/// A provider whose list comes after a while.
struct Provider {
    listed: Arc<Listed>,
    asked: Arc<AtomicUsize>,
}

impl Provider {
    fn new() -> Self {
        Self { listed: Listed::new(&["new".to_owned(), "old".to_owned()]), asked: Arc::default() }
    }

    /// What is known, where an asking of now would end so after so many seconds.
    fn known(&self, seconds: u64, list: List) -> Known {
        let asked = Arc::clone(&self.asked);
        self.listed.known(|| {
            asked.fetch_add(1, Ordering::SeqCst);
            async move {
                sleep(Duration::from_secs(seconds)).await;
                list
            }
            .boxed()
        })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Asks, and waits where nothing is known that holds.
    async fn latest(&self, seconds: u64, list: List) -> String {
        let said = match self.known(seconds, list) {
            Known::Fresh(said) => said,
            Known::Old(_, asking) | Known::Nothing(asking) => asking.await,
        };
        told(&said)
    }

    /// Asks, and does not wait.
    fn at_once(&self, list: List) -> String {
        match self.known(10, list) {
            Known::Fresh(said) => format!("fresh {}", told(&said)),
            Known::Old(said, _) => format!("old {}", told(&said)),
            Known::Nothing(_) => "nothing".to_owned(),
        }
    }
}

fn told(said: &List) -> String {
    match said {
        Ok(Some(list)) => list.iter().map(|model| model.name.as_str()).collect::<Vec<_>>().join("+"),
        Ok(None) => "no list".to_owned(),
        Err(fault) => fault.message.clone(),
    }
}

fn has(names: &[&str]) -> List {
    let listed = |name: &&str| ListedModel { name: (*name).to_owned(), retires: None };
    Ok(Some(names.iter().map(listed).collect()))
}

fn fault() -> List {
    Err(ModelFault::transient(FailureClass::Timeout, "late"))
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_share_one_asking_and_wait_together() {
    let provider = Provider::new();
    let began = Instant::now();
    let all = join_all((0..64).map(|_| provider.latest(10, fault()))).await;
    assert!(all.iter().all(|said| said == "late"), "{all:?}");
    assert_eq!((provider.asked(), began.elapsed()), (1, Duration::from_secs(10)));
    assert_eq!(provider.at_once(has(&["new"])), "fresh late", "and nobody waits after it");
}

#[tokio::test(start_paused = true)]
async fn an_asking_that_the_first_leaves_is_gone_on_with_by_the_next() {
    let provider = Provider::new();
    let Known::Nothing(asking) = provider.known(10, has(&["new"])) else { panic!("nothing is known yet") };
    assert!(tokio::time::timeout(Duration::from_secs(6), asking).await.is_err());
    let began = Instant::now();
    assert_eq!(provider.latest(10, has(&["old"])).await, "new");
    assert_eq!((provider.asked(), began.elapsed()), (1, Duration::from_secs(4)));
}

#[tokio::test(start_paused = true)]
async fn a_fault_or_a_list_with_nothing_to_ask_is_asked_again_after_a_time_that_doubles() {
    for (list, said) in [(fault(), "late"), (has(&[]), ""), (has(&["other"]), "other")] {
        let provider = Provider::new();
        assert_eq!(provider.latest(0, list.clone()).await, said);
        for seconds in [30, 60, 120, 240, 300, 300] {
            advance(Duration::from_secs(seconds - 1)).await;
            assert_eq!(provider.at_once(list.clone()), format!("fresh {said}"), "{seconds}");
            advance(Duration::from_secs(1)).await;
            let asked = provider.asked();
            assert_eq!(provider.latest(0, list.clone()).await, said);
            assert_eq!(provider.asked(), asked + 1, "{seconds}");
        }
        advance(BAD_FOR_AT_MOST).await;
        assert_eq!(provider.latest(0, has(&["old"])).await, "old", "a list that came is used");
        advance(GOOD_FOR - Duration::from_secs(1)).await;
        assert_eq!(provider.at_once(fault()), "fresh old");
    }
}

#[tokio::test(start_paused = true)]
async fn that_a_provider_has_no_list_is_taken_as_it_is_and_looked_at_again() {
    let provider = Provider::new();
    assert_eq!(provider.latest(0, Ok(None)).await, "no list");
    advance(GOOD_FOR - Duration::from_secs(1)).await;
    assert_eq!(provider.at_once(fault()), "fresh no list");
    advance(Duration::from_secs(1)).await;
    assert_eq!(provider.at_once(fault()), "old no list");
}

#[tokio::test(start_paused = true)]
async fn a_good_list_stands_until_another_comes_in_its_place() {
    let provider = Provider::new();
    provider.latest(0, has(&["old"])).await;
    for nothing in [fault(), has(&[])] {
        advance(GOOD_FOR).await;
        assert_eq!(provider.latest(0, nothing).await, "old");
        assert_eq!(provider.at_once(fault()), "fresh old", "and the provider is not asked at each request");
    }
    advance(GOOD_FOR).await;
    assert_eq!(provider.latest(0, has(&["other"])).await, "other", "what it says that it has, it has");
}
