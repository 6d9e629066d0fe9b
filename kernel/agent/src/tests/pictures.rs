//! Pictures of tools' results: shown, counted, kept by their hashes, and let go with old results.

use std::sync::Arc;

use drupe_extension_api::{EffectClass, Message};

use super::*;
use crate::*;

/// An agent that looks at so many pictures, one a step, with so many bytes of text each, by a model of that window.
fn looks(steps: usize, size: usize, window: u64, sees: bool) -> impl Fn(&Arc<MemoryJournal>, bool) -> Case {
    move |journal, resumed| {
        let look = |n: usize| call(&[("look", &format!(r#"{{"n": {n}}}"#))]);
        let script: Vec<_> = (0..steps).map(look).chain([say("done")]).collect();
        let mut model = Plays::new(&[("main", &script)]);
        (model.profile.context_window, model.profile.images) = (window, sees);
        let mut definition = definition("main");
        definition.limits.max_turns = 40;
        definition.limits.max_tokens_per_invocation = 10_000_000;
        let tool = Fake::new("look", Does::Shows(size)).class(EffectClass::Pure).registered();
        let model = Arc::new(model);
        let agent = looping(definition, &model, [tool]);
        Case { journal: Arc::clone(journal), resumed, ..Case::new(agent, &model) }
    }
}

/// How many pictures with their bytes each request has.
fn shown(seen: &Seen) -> Vec<usize> {
    let at_hand = |message: &Arc<Message>| message.images().iter().filter(|i| i.data.is_some()).count();
    seen.model.requests().iter().map(|request| request.messages.iter().map(at_hand).sum()).collect()
}

#[tokio::test]
async fn a_model_is_shown_what_a_tool_shows_and_again_after_any_cut() {
    let seen = same_after_any_cut(looks(2, 10, 100_000, true)).await;
    assert_eq!(shown(&seen), [0, 1, 2]);
    // What is recorded has no bytes, and a call whose result is recorded does not run again.
    let json = serde_json::to_string(&seen.entries).expect("JSON");
    assert!(json.contains(r#""media_type":"image/png""#) && !json.contains("data"), "{json}");
}

#[tokio::test]
async fn what_a_picture_may_count_is_set_aside_where_the_model_sees() {
    let reserved = |seen: &Seen| {
        let step = |entry: &Entry| match entry {
            Entry::Step { reserved_tokens, .. } => Some(*reserved_tokens),
            _ => None,
        };
        seen.entries.iter().filter_map(step).collect::<Vec<_>>()
    };
    let sees = reserved(&looks(2, 10, 100_000, true)(&Arc::default(), false).run().await);
    let blind = reserved(&looks(2, 10, 100_000, false)(&Arc::default(), false).run().await);
    assert_eq!(sees[0], blind[0]);
    let more: Vec<u64> = sees.iter().zip(&blind).map(|(a, b)| a - b).collect();
    assert_eq!(more, [0, 1_500, 3_000]);
}

#[tokio::test]
async fn pictures_give_way_with_old_results_when_the_window_is_full() {
    // Six pictures fit; their texts alone would for ever.
    let case = looks(12, 10, 10_000, true);
    let seen = case(&Arc::default(), false).run().await;
    assert_eq!(seen.response.content, "done");
    assert!(shown(&seen).iter().all(|count| *count <= 6), "{:?}", shown(&seen));
    assert!(shown(&seen).iter().skip(2).all(|count| *count >= 2), "the latest stay: {:?}", shown(&seen));
    assert!(seen.diagnostics().contains(&"context_elided"), "{:?}", seen.diagnostics());
    let last = seen.model.requests().pop().expect("a request");
    let told = |m: &Arc<Message>| matches!(&**m, Message::Tool { content, .. } if content.contains("call the tool again to see it"));
    assert!(last.messages.iter().any(told));
    // A model that does not see has room for all of it.
    let blind = looks(12, 10, 10_000, false)(&Arc::default(), false).run().await;
    assert_eq!(blind.diagnostics(), Vec::<&str>::new());
}

#[tokio::test]
async fn a_transcript_whose_pictures_gave_way_is_the_same_after_a_cut() {
    for size in [10, 3_000] {
        let whole = same_after_any_cut(looks(8, size, 12_000, true)).await;
        assert!(whole.diagnostics().contains(&"context_elided"), "{:?}", whole.diagnostics());
    }
}
