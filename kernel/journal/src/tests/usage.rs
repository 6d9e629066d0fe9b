//! What was used: sums that equal the records, whatever happens in between.

use drupe_agent::Journal;
use drupe_extension_api::{
    FailureClass,
    control::{UsageBy, UsageQuery, UsageRow},
};
use proptest::prelude::*;

use super::*;
use crate::Counted;

const DAY_MS: i64 = 86_400_000;

fn used(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, cached_tokens: input_tokens / 2, ..Usage::default() }
}

fn answered(run: &str, at: u32, model: &str, usage: Usage, cost_usd: Option<f64>) -> Entry {
    let mut entry = answer(run, at, "", &[]);
    if let Entry::Answer { usage: of, model: by, cost_usd: cost, .. } = &mut entry {
        (*of, *by, *cost) = (usage, model.into(), cost_usd);
    }
    entry
}

fn failed(run: &str, at: u32, usage: Usage, lost_tokens: u64, lost_usd: f64) -> Entry {
    Entry::Failed {
        invocation: invocation(run),
        step: at,
        attempt: 1,
        model: "p/a".into(),
        class: FailureClass::Network,
        message: "gone".into(),
        usage,
        cost_usd: None,
        estimated: false,
        lost_tokens,
        lost_usd,
        repeated: false,
        told: None,
    }
}

/// An attempt that another one followed.
fn repeated(run: &str, model: &str, usage: Usage, cost_usd: Option<f64>) -> Entry {
    let mut entry = failed(run, 1, usage, 0, 0.0);
    if let Entry::Failed { model: by, cost_usd: cost, repeated, .. } = &mut entry {
        (*by, *cost, *repeated) = (model.into(), cost_usd, true);
    }
    entry
}

async fn commit(store: &Store, turn: &TurnId, entries: Vec<Entry>) -> Result<(), drupe_agent::JournalFault> {
    store.commit(batch_of(turn, entries)).await
}

async fn by(store: &Store, by: UsageBy) -> Vec<UsageRow> {
    store.usage(UsageQuery { by, ..UsageQuery::default() }).await.unwrap()
}

fn brief(rows: &[UsageRow]) -> Vec<(&str, u64, u64, u64, u64, f64, u64)> {
    let brief = |r: &UsageRow| {
        (r.invocations, r.calls, r.usage.total(), r.lost_tokens, r.cost_usd, r.unpriced_tokens)
    };
    rows.iter()
        .map(|row| {
            let (runs, calls, tokens, lost, cost, unpriced) = brief(row);
            (row.key.as_str(), runs, calls, tokens, lost, cost, unpriced)
        })
        .collect()
}

#[tokio::test]
async fn usage_is_summed_up_by_day_agent_model_and_session_and_outlives_a_restart() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    commit(&store, &turn, vec![begin("r", "main", None, "hello"), step("r", 1)]).await.unwrap();
    let entries = vec![
        answered("r", 1, "p/a", used(100, 10), Some(0.5)),
        begin("c", "sub", Some("r"), "part"),
        failed("c", 1, used(5, 0), 1000, 0.25),
    ];
    commit(&store, &turn, entries).await.unwrap();
    store.close().await.unwrap();

    let store = home.open();
    home.clock.advance(DAY_MS);
    // Whose run it is has to be read, now.
    commit(&store, &turn, vec![answered("c", 2, "p/b", used(20, 2), None)]).await.unwrap();
    let other = store.accept(message("t", "2", "hello")).await.unwrap().turn;
    store
        .finish_turn(TurnDone {
            last: batch_of(&other, vec![begin("o", "main", None, "hello")]),
            ..done(&other, "hi")
        })
        .await
        .unwrap();

    assert_eq!(
        brief(&by(&store, UsageBy::Day).await),
        [("2023-11-14", 2, 2, 115, 1000, 0.75, 5), ("2023-11-15", 1, 1, 22, 0, 0.0, 22)]
    );
    assert_eq!(
        brief(&by(&store, UsageBy::Agent).await),
        [("main", 2, 1, 110, 0, 0.5, 0), ("sub", 1, 2, 27, 1000, 0.25, 27)]
    );
    assert_eq!(
        brief(&by(&store, UsageBy::Model).await),
        [("p/a", 0, 2, 115, 1000, 0.75, 5), ("p/b", 0, 1, 22, 0, 0.0, 22)]
    );
    assert_eq!(
        brief(&by(&store, UsageBy::Session).await),
        [("s", 2, 3, 137, 1000, 0.75, 27), ("t", 1, 0, 0, 0, 0.0, 0)]
    );

    let query =
        UsageQuery { since: Some("2023-11-15".into()), by: UsageBy::Agent, session: Some(session("s")) };
    assert_eq!(brief(&store.usage(query).await.unwrap()), [("sub", 0, 1, 22, 0, 0.0, 22)]);
    let wrong = UsageQuery { since: Some("yesterday".into()), ..UsageQuery::default() };
    assert_eq!(store.usage(wrong).await, Err(StoreError::Day("yesterday".into())));
}

#[tokio::test]
async fn each_attempt_counts_with_its_own_model_and_as_a_part_of_one_call() {
    let home = Home::new();
    let store = home.open_as(&Storage::Memory).unwrap();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let entries = vec![
        begin("r", "main", None, "hello"),
        repeated("r", "p/a", used(100, 0), Some(0.5)),
        repeated("r", "p/b", used(40, 2), None),
        repeated("r", "p/c", Usage::default(), Some(0.0)),
        answered("r", 1, "p/d", used(100, 10), Some(0.25)),
    ];
    commit(&store, &turn, entries).await.unwrap();
    assert_eq!(
        brief(&by(&store, UsageBy::Model).await),
        [("p/a", 0, 0, 100, 0, 0.5, 0), ("p/b", 0, 0, 42, 0, 0.0, 42), ("p/d", 0, 1, 110, 0, 0.25, 0)]
    );
    assert_eq!(brief(&by(&store, UsageBy::Day).await), [("2023-11-14", 1, 1, 252, 0, 0.75, 42)]);
}

#[tokio::test]
async fn what_limits_need_is_read_by_day_and_by_session() {
    let home = Home::new();
    let store = home.open();
    let now = 1_700_000_000_000;
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let entries = vec![
        begin("r", "main", None, "hello"),
        answered("r", 1, "p/a", used(100, 10), Some(0.5)),
        begin("c", "sub", Some("r"), "part"),
        failed("c", 1, used(5, 0), 1000, 0.25),
    ];
    commit(&store, &turn, entries).await.unwrap();
    let main = Counted { tokens: 110, cost_usd: 0.5, invocations: 1 };
    let sub = Counted { tokens: 1005, cost_usd: 0.25, invocations: 1 };
    let all = Counted { tokens: 1115, cost_usd: 0.75, invocations: 2 };
    let agents = vec![("main".parse().unwrap(), main), ("sub".parse().unwrap(), sub)];
    assert_eq!(store.used_on(now).await.unwrap(), (all, agents));
    assert_eq!(store.used_on(now + DAY_MS).await.unwrap(), (Counted::default(), Vec::new()));
    assert_eq!(store.used_on(now - DAY_MS).await.unwrap().0, Counted::default());
    assert_eq!(store.used_by_session(&session("s")).await.unwrap(), all);
    assert_eq!(store.used_by_session(&session("unknown")).await.unwrap(), Counted::default());

    for id in ["s:1:2", "s:", "sa", "s-1", "t:s"] {
        let turn = store.accept(message(id, id, "hello")).await.unwrap().turn;
        commit(
            &store,
            &turn,
            vec![begin(id, "main", None, "x"), answered(id, 1, "p/a", used(1, 0), Some(0.0))],
        )
        .await
        .unwrap();
    }
    let below = |name: &str, now| store.used_below(name.to_owned(), now);
    assert_eq!(below("s", now).await.unwrap(), Counted { tokens: 1117, invocations: 4, ..all });
    assert_eq!(below("s:1", now).await.unwrap(), Counted { tokens: 1, cost_usd: 0.0, invocations: 1 });
    assert_eq!(below("s", now + DAY_MS).await.unwrap(), Counted::default());
}

#[tokio::test]
async fn sums_that_do_not_fit_end_at_the_largest_number() {
    let home = Home::new();
    let store = home.open_as(&Storage::Memory).unwrap();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    commit(&store, &turn, vec![begin("r", "main", None, "hello")]).await.unwrap();
    for cost in [Some(f64::NAN), Some(f64::INFINITY), Some(f64::MAX), Some(f64::MAX)] {
        let entry = answered("r", 1, "p/a", used(u64::MAX, 1), cost);
        commit(&store, &turn, vec![entry, failed("r", 2, Usage::default(), u64::MAX, f64::NAN)])
            .await
            .unwrap();
    }
    let row = by(&store, UsageBy::Day).await.remove(0);
    assert_eq!((row.usage.input_tokens, row.usage.output_tokens), (i64::MAX as u64, 4));
    assert_eq!((row.lost_tokens, row.calls), (i64::MAX as u64, 8));
    assert_eq!(store.used_by_session(&session("s")).await.unwrap().tokens, u64::MAX);
}

/// What a test does to the journal.
#[derive(Debug, Clone)]
enum Act {
    Commit(Vec<Entry>),
    /// A request that fails after its records were written.
    Fail(Vec<Entry>),
    Restart,
    NextDay,
}

fn records() -> impl Strategy<Value = Vec<Entry>> {
    let run = || prop_oneof![Just("a"), Just("b")];
    let usage = || (0..10_000u64, 0..1000u64).prop_map(|(input, output)| used(input, output));
    // Whole eighths are summed without a rounding error.
    let cost = || (0..800u32).prop_map(|eighths| f64::from(eighths) / 8.0);
    let model = prop_oneof![Just("p/a"), Just("p/b")];
    let answers = (run(), model.clone(), usage(), proptest::option::of(cost()))
        .prop_map(|(run, model, usage, cost)| answered(run, 1, model, usage, cost));
    let failures = (run(), usage(), 0..5000u64, cost())
        .prop_map(|(run, usage, lost, lost_usd)| failed(run, 1, usage, lost, lost_usd));
    let repetitions = (run(), model.clone(), usage(), proptest::option::of(cost()))
        .prop_map(|(run, model, usage, cost)| repeated(run, model, usage, cost));
    let others = (run(), 1..9u32).prop_map(|(run, at)| step(run, at));
    proptest::collection::vec(prop_oneof![answers, failures, repetitions, others], 0..4)
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => records().prop_map(Act::Commit),
        2 => records().prop_map(Act::Fail),
        1 => Just(Act::Restart),
        1 => Just(Act::NextDay),
    ];
    proptest::collection::vec(act, 1..12)
}

#[tokio::test]
async fn what_was_lost_at_a_model_without_a_price_counts_as_unpriced() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let lost = |known: Option<f64>| {
        let mut entry = failed("r", 1, Usage::default(), 1_000, 0.0);
        if let Entry::Failed { cost_usd, .. } = &mut entry {
            *cost_usd = known;
        }
        entry
    };
    let begun = begin("r", "main", None, "hello");
    commit(&store, &turn, vec![begun, lost(None), lost(Some(0.0))]).await.unwrap();
    assert_eq!(brief(&by(&store, UsageBy::Model).await), [("p/a", 0, 2, 0, 2_000, 0.0, 1_000)]);
}

/// Sums over entries: runs, calls, tokens, lost ones, unpriced ones, and cost.
fn sums(entries: &[Entry]) -> (u64, u64, u64, u64, u64, f64) {
    entries.iter().fold(
        (0, 0, 0, 0, 0, 0.0),
        |(runs, calls, tokens, lost, unpriced, cost), entry| match entry {
            Entry::Begin { .. } => (runs + 1, calls, tokens, lost, unpriced, cost),
            Entry::Answer { usage, cost_usd, .. } => {
                let unpriced = unpriced + if cost_usd.is_none() { usage.total() } else { 0 };
                (runs, calls + 1, tokens + usage.total(), lost, unpriced, cost + cost_usd.unwrap_or(0.0))
            }
            Entry::Failed { usage, cost_usd, lost_tokens, lost_usd, repeated, .. } => {
                let calls = calls + u64::from(!repeated);
                let unknown = if *lost_usd == 0.0 { *lost_tokens } else { 0 };
                let unpriced = unpriced + if cost_usd.is_none() { usage.total() + unknown } else { 0 };
                let cost = cost + cost_usd.unwrap_or(0.0) + lost_usd;
                (runs, calls, tokens + usage.total(), lost + lost_tokens, unpriced, cost)
            }
            _ => (runs, calls, tokens, lost, unpriced, cost),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_is_committed_cut_off_and_gone_on_with_sums_equal_the_entries(acts in acts()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let home = Home::new();
            let mut store = home.open_as(&Storage::Process(home.path())).unwrap();
            let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
            let runs = vec![begin("a", "main", None, ""), begin("b", "sub", Some("a"), "")];
            commit(&store, &turn, runs).await.unwrap();
            for act in acts {
                match act {
                    Act::Commit(entries) => commit(&store, &turn, entries).await.unwrap(),
                    Act::Fail(mut entries) => {
                        // A message that nobody sent cannot be taken in: the whole batch is refused.
                        entries.push(steered("a", &TurnId::new("nobody").unwrap()));
                        assert!(commit(&store, &turn, entries).await.is_err());
                    }
                    Act::Restart => {
                        store.close().await.unwrap();
                        store = home.open_as(&Storage::Process(home.path())).unwrap();
                    }
                    Act::NextDay => home.clock.advance(DAY_MS),
                }
            }
            let rows = store.turn_rows(&turn).await.unwrap().unwrap();
            let entries: Vec<_> = rows.entries.into_iter().map(|(_, entry)| entry).collect();
            let expected = sums(&entries);
            for kind in [UsageBy::Day, UsageBy::Agent, UsageBy::Session] {
                let found = by(&store, kind).await.iter().fold((0, 0, 0, 0, 0, 0.0), |sum, row| (
                    sum.0 + row.invocations,
                    sum.1 + row.calls,
                    sum.2 + row.usage.total(),
                    sum.3 + row.lost_tokens,
                    sum.4 + row.unpriced_tokens,
                    sum.5 + row.cost_usd,
                ));
                assert_eq!(found, expected);
            }
            for row in by(&store, UsageBy::Model).await {
                let of = |entry: &&Entry| matches!(
                    entry,
                    Entry::Answer { model, .. } | Entry::Failed { model, .. } if *model == row.key
                );
                let own: Vec<Entry> = entries.iter().filter(of).cloned().collect();
                let found = (row.calls, row.usage.total(), row.lost_tokens, row.unpriced_tokens, row.cost_usd);
                let (_, calls, tokens, lost, unpriced, cost) = sums(&own);
                assert_eq!(found, (calls, tokens, lost, unpriced, cost), "{}", row.key);
            }
            let session = store.used_by_session(&session("s")).await.unwrap();
            assert_eq!((session.invocations, session.tokens), (expected.0, expected.2 + expected.3));
        });
    }
}
