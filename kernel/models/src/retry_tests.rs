//! Retries, waits and fallbacks, on a paused clock.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::VecDeque, sync::Mutex};

use drupe_agent::{AgentCard, StopReason, Usage};
use drupe_extension_api::AgentId;

use super::*;

/// What a source does when it is asked.
#[derive(Clone)]
enum Act {
    Answer(&'static str),
    /// Some text, then a fault.
    Fault(ModelFault),
    /// An answer to the end that makes no sense.
    Nonsense,
    Hang,
    /// Nothing, since it is not sent for want of something else.
    Wait,
    /// Bytes of an answer, and its cost by then, and nothing that can be shown.
    Drip,
    /// Text at once, and the end after 15 s.
    Slow,
}

struct Fake {
    profile: ModelProfile,
    acts: Mutex<VecDeque<Act>>,
    asked: Mutex<Vec<Duration>>,
    since: Instant,
}

impl Source for Fake {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn supports(&self, _: &ModelParameters) -> Result<(), Unsupported> {
        Ok(())
    }

    fn attempt(
        &self,
        request: Arc<ModelRequest>,
        progress: Arc<Progress>,
    ) -> BoxStream<'static, Result<ModelEvent, Broken>> {
        self.asked.lock().unwrap().push(self.since.elapsed());
        let text = |t: &str| Ok(ModelEvent::Text(t.to_owned()));
        let done =
            Ok(ModelEvent::Done { usage: None, stop: StopReason::End, model: self.profile.name.clone() });
        let usage = Some(Usage { input_tokens: 3, ..Usage::default() });
        let act = self.acts.lock().unwrap().pop_front().unwrap_or(Act::Answer("default"));
        if !matches!(act, Act::Wait) {
            request.dispatch.goes_to(&self.profile.name);
        }
        match act {
            Act::Hang | Act::Wait => stream::pending().boxed(),
            Act::Drip => {
                progress.note(usage, false);
                stream::pending().boxed()
            }
            Act::Answer(words) => stream::iter(vec![text(words), done]).boxed(),
            Act::Fault(fault) => {
                stream::iter(vec![text("half"), Err(fault.with_usage(usage).into())]).boxed()
            }
            Act::Nonsense => {
                let fault = ModelFault::transient(FailureClass::Model, "nonsense");
                stream::iter(vec![Err(Broken { fault, whose: Whose::Request })]).boxed()
            }
            Act::Slow => {
                let end = async move {
                    tokio::time::sleep(Duration::from_secs(15)).await;
                    done
                };
                stream::iter(vec![text("slow")]).chain(stream::once(end)).boxed()
            }
        }
    }
}

fn fake(name: &str, acts: Vec<Act>) -> (Arc<Fake>, Link) {
    let profile = ModelProfile {
        name: name.to_owned(),
        context_window: 1_000,
        max_output_tokens: 100,
        price: None,
        tools: true,
        images: false,
    };
    let source = Arc::new(Fake {
        profile,
        acts: Mutex::new(acts.into()),
        asked: Mutex::new(Vec::new()),
        since: Instant::now(),
    });
    let link = Link { source: source.clone(), gate: Gate::new(name, 4, Duration::from_secs(20)) };
    (source, link)
}

fn request(timeout_ms: u64, max_retries: u32) -> ModelRequest {
    ModelRequest {
        agent: Arc::new(AgentCard {
            id: AgentId::new("main").unwrap(),
            name: String::new(),
            description: String::new(),
            offline: Vec::new(),
            root: true,
        }),
        system: "".into(),
        messages: Arc::default(),
        tools: Arc::default(),
        deferred: Arc::default(),
        parameters: Arc::default(),
        sparing: false,
        max_output_tokens: 100,
        room: Default::default(),
        dispatch: Default::default(),
        output: None,
        timeout_ms,
        max_retries,
    }
}

fn passing(message: &str) -> Act {
    Act::Fault(ModelFault::transient(FailureClass::Network, message))
}

/// Plays a request and writes what came, an event a word.
async fn play(links: Vec<Link>, timeout_ms: u64, max_retries: u32) -> String {
    let events: Vec<ModelEvent> =
        Chain::new(links).unwrap().stream(request(timeout_ms, max_retries)).collect().await;
    let words = events.iter().map(|event| match event {
        ModelEvent::Text(text) => text.clone(),
        ModelEvent::Retry { model, next, usage, .. } => {
            let next = if next == model { String::new() } else { format!(" to {next}") };
            format!("retry({model}{next},{})", usage.map_or(0, |u| u.total()))
        }
        ModelEvent::Done { model, .. } => format!("done({model})"),
        ModelEvent::Failed(fault) => format!("failed({:?}: {})", fault.class, fault.message),
        other => format!("{other:?}"),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_may_pass_is_repeated_and_announced_with_what_it_cost() {
    let (source, link) = fake("p/m", vec![passing("one"), passing("two"), Act::Answer("whole")]);
    assert_eq!(play(vec![link], 60_000, 2).await, "half retry(p/m,3) half retry(p/m,3) whole done(p/m)");
    let asked = source.asked.lock().unwrap();
    let waits = [asked[1] - asked[0], asked[2] - asked[1]];
    assert!(waits[0] >= FIRST_WAIT && waits[0] <= FIRST_WAIT * 2 + Duration::from_millis(2), "{waits:?}");
    assert!(waits[1] >= FIRST_WAIT * 2, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn there_are_no_more_attempts_than_allowed() {
    let (source, link) = fake("p/m", vec![passing("1"), passing("2"), passing("3"), passing("4")]);
    assert_eq!(play(vec![link], 60_000, 1).await, "half retry(p/m,3) half failed(Network: 2)");
    assert_eq!(source.asked.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_fatal_failure_is_not_repeated() {
    let (source, link) = fake("p/m", vec![Act::Fault(ModelFault::fatal(FailureClass::Auth, "no"))]);
    assert_eq!(play(vec![link], 60_000, 5).await, "half failed(Auth: no)");
    assert_eq!(source.asked.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_provider_is_given_the_time_it_asks_for() {
    let slow =
        ModelFault { retry_after_ms: Some(7_000), ..ModelFault::transient(FailureClass::RateLimit, "slow") };
    let (source, link) = fake("p/m", vec![Act::Fault(slow)]);
    assert_eq!(play(vec![link], 60_000, 1).await, "half retry(p/m,3) default done(p/m)");
    let waited = source.asked.lock().unwrap()[1];
    assert!(waited >= Duration::from_secs(7) && waited < Duration::from_millis(7_010), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_deadline_is_not_begun() {
    let slow =
        ModelFault { retry_after_ms: Some(90_000), ..ModelFault::transient(FailureClass::RateLimit, "slow") };
    let (_, link) = fake("p/m", vec![Act::Fault(slow)]);
    let begun = Instant::now();
    assert_eq!(play(vec![link], 60_000, 3).await, "half failed(RateLimit: slow)");
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_deadline_leads_to_the_next_model_at_once() {
    let slow =
        ModelFault { retry_after_ms: Some(90_000), ..ModelFault::transient(FailureClass::RateLimit, "slow") };
    let (_, first) = fake("a/x", vec![Act::Fault(slow)]);
    let (_, second) = fake("b/y", vec![]);
    let begun = Instant::now();
    assert_eq!(play(vec![first, second], 60_000, 3).await, "half retry(a/x to b/y,3) default done(b/y)");
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_hangs_leaves_time_to_the_next() {
    let (first, one) = fake("a/x", vec![Act::Hang, Act::Hang, Act::Hang]);
    let (_, two) = fake("b/y", vec![]);
    assert_eq!(play(vec![one, two], 50_000, 9).await, "retry(a/x,0) retry(a/x to b/y,0) default done(b/y)");
    assert_eq!(first.asked.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn two_askers_do_not_come_back_at_the_same_time() {
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..8 {
        seen.insert(waits().next());
    }
    assert!(seen.len() > 1, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn after_its_rest_a_provider_is_probed_by_one_request_alone() {
    let (source, link) = fake("a/x", (0..5).map(|_| passing("down")).chain([Act::Hang]).collect());
    play(vec![link.clone()], 60_000, 4).await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    let (_, other) = fake("b/y", vec![]);
    let probe = play(vec![link.clone()], 10_000, 0);
    let beside = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        play(vec![link, other], 60_000, 0).await
    };
    let (probe, beside) = tokio::join!(probe, beside);
    assert!(probe.starts_with("failed(Timeout"), "{probe}");
    assert_eq!(beside, "retry(a/x to b/y,0) default done(b/y)");
    assert_eq!(source.asked.lock().unwrap().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn the_next_model_takes_over_from_one_that_fails() {
    let (_, first) = fake("a/x", vec![passing("1"), passing("2")]);
    let (_, second) = fake("b/y", vec![Act::Fault(ModelFault::fatal(FailureClass::Auth, "no"))]);
    let (_, third) = fake("c/z", vec![]);
    let played = play(vec![first, second, third], 60_000, 1).await;
    assert_eq!(
        played,
        "half retry(a/x,3) half retry(a/x to b/y,3) half retry(b/y to c/z,3) default done(c/z)"
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_as_a_whole_says_why_of_each() {
    let (_, first) = fake("a/x", vec![Act::Fault(ModelFault::fatal(FailureClass::Config, "one"))]);
    let (_, second) = fake("b/y", vec![Act::Fault(ModelFault::fatal(FailureClass::Auth, "two"))]);
    let played = play(vec![first, second], 60_000, 1).await;
    assert_eq!(played, "half retry(a/x to b/y,3) half failed(Auth: no model of the list answered: one; two)");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_ends_at_its_own_bound_and_the_request_at_its_deadline() {
    let (source, link) = fake("p/m", vec![Act::Hang, Act::Hang, Act::Hang, Act::Hang]);
    let begun = Instant::now();
    let played = play(vec![link], 50_000, 9).await;
    assert!(played.ends_with("failed(Timeout: `p/m` did not finish its answer in time)"), "{played}");
    assert_eq!(source.asked.lock().unwrap().len(), 3);
    assert!(begun.elapsed() <= Duration::from_millis(50_002));
}

#[tokio::test(start_paused = true)]
async fn a_provider_at_rest_is_passed_over_without_being_asked() {
    let acts = (0..5).map(|_| passing("down")).collect();
    let (source, link) = fake("a/x", acts);
    let (_, other) = fake("b/y", vec![]);
    play(vec![link.clone()], 60_000, 4).await;
    assert_eq!(source.asked.lock().unwrap().len(), 5);
    assert_eq!(play(vec![link.clone(), other], 60_000, 2).await, "retry(a/x to b/y,0) default done(b/y)");
    assert_eq!(source.asked.lock().unwrap().len(), 5);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(play(vec![link], 60_000, 2).await, "default done(a/x)");
}

#[test]
fn a_list_has_the_least_room_and_the_highest_price_that_is_known() {
    let price = |input| Some(Price::flat(input, 1.0, 1.0));
    let profile = |name: &str, context_window, price| ModelProfile {
        name: name.to_owned(),
        context_window,
        max_output_tokens: 10,
        price,
        tools: true,
        images: false,
    };
    let mut both = profile("a/x", 9, price(1.0));
    narrow(&mut both, &profile("b/y", 5, price(2.0)));
    assert_eq!(both, profile("a/x", 5, price(2.0)));
    narrow(&mut both, &profile("c/z", 7, None));
    assert_eq!(both, profile("a/x", 5, price(2.0)));
}

#[test]
fn each_model_of_a_list_has_its_own_price() {
    let price = |input| Some(Price::flat(input, 1.0, 1.0));
    let link = |name: &str, price| {
        let profile = ModelProfile { price, ..fake(name, vec![]).0.profile.clone() };
        let (acts, asked) = (Mutex::default(), Mutex::default());
        let source = Arc::new(Fake { profile, acts, asked, since: Instant::now() });
        Link { source, gate: Gate::new(name, 4, Duration::from_secs(20)) }
    };
    let chain = Chain::new(vec![link("a/x", price(1.0)), link("b/y", price(2.0))]).unwrap();
    assert_eq!((chain.price_of("a/x"), chain.price_of("b/y")), (price(1.0), price(2.0)));
    assert_eq!((chain.profile().price, chain.unpriced()), (price(2.0), None));
    let chain = Chain::new(vec![link("a/x", price(1.0)), link("c/z", None)]).unwrap();
    assert_eq!((chain.price_of("a/x"), chain.price_of("c/z")), (price(1.0), None));
    assert_eq!((chain.profile().price, chain.unpriced()), (price(1.0), Some("c/z")));
}

#[tokio::test(start_paused = true)]
async fn times_beyond_all_measure_do_no_harm() {
    let slow = ModelFault {
        retry_after_ms: Some(u64::MAX),
        ..ModelFault::transient(FailureClass::RateLimit, "slow")
    };
    let (_, link) = fake("p/m", vec![Act::Fault(slow)]);
    assert_eq!(play(vec![link], u64::MAX, 1).await, "half failed(RateLimit: slow)");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_asks_for_a_slower_pace_is_not_rested() {
    let slow = || Act::Fault(ModelFault::transient(FailureClass::RateLimit, "slow"));
    let (source, link) = fake("p/m", (0..8).map(|_| slow()).collect());
    assert!(play(vec![link], 600_000, 9).await.ends_with("default done(p/m)"));
    assert_eq!(source.asked.lock().unwrap().len(), 9);
}

#[tokio::test(start_paused = true)]
async fn only_what_a_provider_does_itself_rests_it() {
    for (act, timeout_ms, rests) in [
        (Act::Hang, 600_000, true),
        // What was never sent.
        (Act::Wait, 600_000, false),
        (passing("down"), 600_000, true),
        // An asker in a hurry, and a model that talks nonsense.
        (Act::Hang, 1, false),
        (Act::Slow, 1, false),
        (Act::Nonsense, 600_000, false),
    ] {
        let (_, link) = fake("p/m", vec![act.clone(); 5]);
        for _ in 0..5 {
            play(vec![link.clone()], timeout_ms, 0).await;
        }
        let next = play(vec![link], 600_000, 0).await;
        assert_eq!(next.contains("rests for"), rests, "{next}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_or_has_no_place_leaves_time_to_the_next_where_all_bounds_are_equal() {
    for act in [Act::Hang, Act::Drip] {
        let cost = if matches!(act, Act::Drip) { 3 } else { 0 };
        let (_, first) = fake("a/x", vec![act]);
        let (_, second) = fake("b/y", vec![]);
        let played = play(vec![first, second], 20_000, 2).await;
        assert_eq!(played, format!("retry(a/x to b/y,{cost}) default done(b/y)"));
    }
    let (source, first) = fake("a/x", vec![]);
    let (_, second) = fake("b/y", vec![]);
    let soon = Instant::now() + Duration::from_secs(1);
    let held: Vec<_> = futures_util::future::join_all((0..4).map(|_| first.gate.enter("a/x", soon))).await;
    assert!(held.iter().all(Result::is_ok));
    assert_eq!(play(vec![first, second], 20_000, 2).await, "retry(a/x to b/y,0) default done(b/y)");
    assert!(source.asked.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_answering_is_not_cut_off_for_the_next() {
    let (_, first) = fake("a/x", vec![Act::Slow]);
    let (_, second) = fake("b/y", vec![]);
    assert_eq!(play(vec![first, second], 20_000, 2).await, "slow done(a/x)");
}

#[tokio::test(start_paused = true)]
async fn a_fault_says_whether_the_provider_worked_and_what_that_is_known_to_cost() {
    let fatal = Act::Fault(ModelFault::fatal(FailureClass::Auth, "no"));
    for (act, began, cost) in
        [(passing("one"), true, 3), (fatal, true, 3), (Act::Drip, true, 3), (Act::Hang, false, 0)]
    {
        let (_, link) = fake("p/m", vec![act]);
        let events: Vec<_> = Chain::new(vec![link]).unwrap().stream(request(1_000, 0)).collect().await;
        let Some(ModelEvent::Failed(fault)) = events.last() else { panic!("{events:?}") };
        assert_eq!((fault.began, fault.usage.map_or(0, |u| u.total())), (began, cost), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_was_not_asked_has_cost_nothing() {
    let (_, link) = fake("p/m", (0..5).map(|_| passing("down")).collect());
    play(vec![link.clone()], 60_000, 4).await;
    let events: Vec<_> = Chain::new(vec![link]).unwrap().stream(request(1_000, 0)).collect().await;
    let Some(ModelEvent::Failed(fault)) = events.last() else { panic!("{events:?}") };
    assert!(fault.used_nothing(), "{fault:?}");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_whose_time_is_over_before_it_was_sent_has_cost_nothing() {
    for (act, nothing) in [(Act::Wait, true), (Act::Hang, false)] {
        let (_, first) = fake("a/x", vec![act.clone()]);
        let (_, second) = fake("b/y", vec![act]);
        let asked = request(1_000, 0);
        let dispatch = asked.dispatch.clone();
        let mut events = Chain::new(vec![first, second]).unwrap().stream(asked);
        assert!(dispatch.is_unsent(), "an attempt that has only begun is not sent");
        let mut seen = Vec::new();
        while let Some(event) = events.next().await {
            if let ModelEvent::Retry { fault, .. } | ModelEvent::Failed(fault) = event {
                assert_eq!(fault.message.contains("could not be asked in time"), nothing, "{fault}");
                seen.push((fault.used_nothing(), dispatch.is_unsent()));
            }
        }
        // Between two attempts nothing of the next was sent.
        assert_eq!(seen, [(nothing, true), (nothing, nothing)]);
    }
}
