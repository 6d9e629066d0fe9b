//! The loop's records: what is read back is what a journal in memory holds.

use drupe_agent::{Batch, Journal, MemoryJournal};
use proptest::prelude::*;

use super::*;

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), Just("\u{0}\"\\ü🍑\n".to_owned())]
}

fn usages() -> impl Strategy<Value = Usage> {
    (0..1u64 << 62, 0..1u64 << 62).prop_map(|(input_tokens, output_tokens)| Usage {
        input_tokens,
        output_tokens,
        ..Usage::default()
    })
}

fn costs() -> impl Strategy<Value = Option<f64>> {
    proptest::option::of(proptest::num::f64::NORMAL | proptest::num::f64::ZERO)
}

fn statuses() -> impl Strategy<Value = ToolStatus> {
    prop_oneof![Just(ToolStatus::Ok), Just(ToolStatus::Refused), Just(ToolStatus::OutcomeUnknown)]
}

fn classes() -> impl Strategy<Value = EffectClass> {
    prop_oneof![Just(EffectClass::Pure), Just(EffectClass::Idempotent), Just(EffectClass::Once)]
}

fn entries() -> impl Strategy<Value = Entry> {
    let place = (prop_oneof![Just("a"), Just("b")], 1..4u32, 0..3u32);
    let begins = texts().prop_map(|task| begin("a", "agent", None, &task));
    let steps =
        (place.clone(), any::<u32>(), any::<u64>()).prop_map(|((id, at, _), attempt, reserved_tokens)| {
            let (model, request_hash) = ("p/m".into(), "00".into());
            Entry::Step {
                invocation: invocation(id),
                step: at,
                attempt,
                model,
                request_hash,
                reserved_tokens,
                reserved_usd: 0.0,
                unpriced: false,
                bytes_per_token: None,
                shown: false,
            }
        });
    let answers =
        (place.clone(), texts(), usages(), costs()).prop_map(|((id, step, _), text, usage, cost_usd)| {
            let tool_calls =
                vec![ToolCallRequest { call_id: text.clone(), name: text.clone(), arguments: text.clone() }];
            let message = Message::Assistant {
                content: text.clone(),
                reasoning: Some(text),
                tool_calls,
                provider_items: None,
            };
            Entry::Answer {
                invocation: invocation(id),
                step,
                message,
                model: "p/m".into(),
                usage,
                cost_usd,
                estimated: true,
                stop: Default::default(),
                said: String::new(),
                told: None,
            }
        });
    let intents =
        (place.clone(), classes()).prop_map(|((id, step, index), class)| intent(id, step, index, class));
    let results = (place.clone(), texts(), statuses()).prop_map(|((id, step, index), content, status)| {
        let effect = effect(id, step, index);
        let (invocation, tool, kind) = (invocation(id), "tool".into(), ItemKind::default());
        Entry::Result {
            invocation,
            step,
            index,
            effect,
            tool,
            kind,
            status,
            elapsed_ms: 1,
            content,
            images: Vec::new(),
            left: false,
        }
    });
    let notes = (place.clone(), texts()).prop_map(|((id, step, _), content)| Entry::Note {
        invocation: invocation(id),
        step,
        message: Message::User { content },
        given_by: None,
    });
    let ends =
        (place, texts(), usages(), costs()).prop_map(|((id, turns, _), text, usage, cost_usd)| Entry::End {
            invocation: invocation(id),
            response: AgentResponse::success(text),
            spend: Spend { usage, turns, cost_usd, ..Spend::default() },
            below: false,
        });
    prop_oneof![begins, steps, answers, intents, results, notes, ends]
}

fn batch(turn: &TurnId, entries: Vec<Entry>) -> Batch {
    batch_of(turn, [entries, vec![said("committed")]].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_recorded_run_reads_back_as_from_memory(
        batches in proptest::collection::vec(proptest::collection::vec(entries(), 0..6), 0..8)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (home, memory) = (Home::new(), MemoryJournal::default());
        let store = home.open_as(&Storage::Memory).unwrap();
        runtime.block_on(async {
            let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
            for entries in &batches {
                let batch = batch(&turn, entries.clone());
                store.commit(batch.clone()).await.unwrap();
                memory.commit(batch).await.unwrap();
            }
            assert_eq!(store.recorded(&turn).await, Ok(memory.recorded(&turn)));
        });
        let told = |entry: &Entry| entry.events().len();
        let told = batches.iter().flatten().map(told).sum::<usize>() + batches.len();
        prop_assert_eq!(home.published(&session("s")).len(), told);
    }
}

#[tokio::test]
async fn a_recorded_run_outlives_the_journal_that_recorded_it() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let memory = MemoryJournal::default();
    for entries in [
        vec![begin("r", "main", None, "hello"), step("r", 1)],
        vec![answer("r", 1, "", &["tool"]), intent("r", 1, 0, EffectClass::Once)],
        vec![result("r", 1, 0, "42"), step("r", 2)],
    ] {
        store.commit(batch(&turn, entries.clone())).await.unwrap();
        memory.commit(batch(&turn, entries)).await.unwrap();
    }
    store.close().await.unwrap();
    let store = home.open();
    assert_eq!(store.recorded(&turn).await, Ok(memory.recorded(&turn)));
    assert!(store.recorded(&turn).await.unwrap().run(&invocation("r")).is_some());
    assert_eq!(store.recorded(&TurnId::new("unknown").unwrap()).await, Ok(Default::default()));
}

#[tokio::test]
async fn a_turn_that_recorded_much_is_read_in_parts_and_whole() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let other = store.accept(message("s", "2", "hello")).await.unwrap().turn;
    let memory = MemoryJournal::default();
    for n in 0..9 {
        let long = format!("{n}").repeat(400_000);
        let entries = match n {
            0 => vec![begin("r", "main", None, "hello")],
            _ => vec![step("r", n), intent("r", n, 0, EffectClass::Pure), result("r", n, 0, &long)],
        };
        store.commit(batch(&turn, entries.clone())).await.unwrap();
        memory.commit(batch(&turn, entries)).await.unwrap();
        store.commit(batch(&other, vec![begin(&format!("o{n}"), "main", None, "hello")])).await.unwrap();
    }
    let read = store.recorded(&turn).await.unwrap();
    assert_eq!(read, memory.recorded(&turn));
    assert_eq!(read.run(&invocation("r")).unwrap().steps.len(), 8);
    assert_eq!(read.run(&invocation("o1")), None, "another turn's");
}

#[tokio::test]
async fn a_result_is_found_whole_by_its_own_session_only() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    store.accept(message("other", "2", "hello")).await.unwrap();
    let long = "\u{0}🍑\n".repeat(10_000);
    let entries = vec![
        begin("r", "main", None, "hello"),
        intent("r", 1, 0, EffectClass::Once),
        intent("r", 1, 1, EffectClass::Once),
        result("r", 1, 0, &long),
    ];
    store.commit(batch(&turn, entries)).await.unwrap();
    for (session_id, index, expected) in
        [("s", 0, Some(long)), ("s", 1, None), ("other", 0, None), ("none", 0, None)]
    {
        let found = store.output(session(session_id), effect("r", 1, index)).await;
        assert_eq!(found, Ok(expected), "{session_id} {index}");
    }
}
