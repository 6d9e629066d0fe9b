//! Vectors on behalf of a run: what they count in its budget and in the day, and what is recorded of them.

use std::{sync::Arc, time::Duration};

use drupe_extension_api::{DefinitionLimits, FailureClass};
use drupe_limits::Quotas;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{left::tokens_of_a_day, *};
use crate::*;

/// What the model does.
#[derive(Clone, Copy)]
enum Gives {
    /// Vectors, and so many tokens.
    Vectors(Option<u64>),
    /// It turns the request away.
    Refuses,
    /// It is not asked in time.
    Waits,
    /// It is sent the request and says nothing.
    Hangs,
}

struct Fours {
    profile: ModelProfile,
    gives: Gives,
}

impl EmbeddingModel for Fours {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn embed(
        &self,
        texts: Arc<[String]>,
        _: Instant,
        dispatch: Dispatch,
    ) -> BoxFuture<'static, Result<Embeddings, ModelFault>> {
        let gives = self.gives;
        Box::pin(async move {
            if !matches!(gives, Gives::Waits) {
                dispatch.goes_to("p/fours");
            }
            match gives {
                Gives::Vectors(input_tokens) => {
                    Ok(Embeddings { vectors: vec![vec![4.0]; texts.len()], input_tokens })
                }
                Gives::Refuses => Err(ModelFault::fatal(FailureClass::Auth, "a wrong key")),
                Gives::Waits | Gives::Hangs => std::future::pending().await,
            }
        })
    }
}

fn fours(price: Option<Price>, gives: Gives) -> Fours {
    let profile = ModelProfile { name: "p/fours".into(), price, ..Plays::new(&[]).profile };
    Fours { profile, gives }
}

/// What became of a request for vectors of three texts of 40 bytes in all.
struct Became {
    vectors: Result<Vec<Vec<f32>>, EmbedError>,
    /// Tokens that were used and lost, by the record; none where there is none.
    recorded: Option<(u64, u64)>,
    /// Tokens of the turn and of the day.
    counted: (u64, u64),
}

async fn became(limits: &DefinitionLimits, model: &Fours, cancelled: bool) -> Became {
    let journal = Arc::new(MemoryJournal::default());
    let quotas = Arc::new(Quotas::new(tokens_of_a_day()));
    let scope = TurnScope {
        quotas: Arc::clone(&quotas),
        ..TurnScope::new(
            "s".parse().expect("an id"),
            "t".parse().expect("an id"),
            "hi".into(),
            journal.clone(),
        )
    };
    let cancel = CancellationToken::new();
    let root = TurnRoot::new(Arc::new(scope), "main".parse().expect("an id"), limits, &cancel);
    let texts = ["x".repeat(20), "y".repeat(10), "z".repeat(10)].to_vec();
    if cancelled {
        cancel.cancel();
    }
    let vectors = embed(root.run(), model, texts, Duration::from_secs(2)).await;
    root.run().commit().await.expect("it is kept");
    let entries = journal.batches().into_iter().flat_map(|batch| batch.entries);
    let mut recorded = entries.map(|entry| match entry {
        Entry::Embedded { usage, lost_tokens, texts: 3, attempt: 1, .. } => (usage.total(), lost_tokens),
        other => panic!("{other:?}"),
    });
    let left = limits.max_tokens_per_invocation - root.run().budget.remaining_tokens();
    let day = quotas
        .standing(0)
        .into_iter()
        .find(|s| s.used.limit == "limits.day.max_tokens")
        .expect("it is bounded");
    Became { vectors, recorded: recorded.next(), counted: (left, day.used.used) }
}

const CHEAP: Option<Price> = Some(Price::flat(0.02, 0.02, 0.0));

#[tokio::test(start_paused = true)]
async fn what_is_charged_is_what_the_provider_counts_or_an_estimate_and_nothing_where_it_did_nothing() {
    let limits = DefinitionLimits::default();
    for (gives, used, lost) in [
        (Gives::Vectors(Some(12)), 12, 0),
        // Of 40 bytes at three bytes a token.
        (Gives::Vectors(None), 14, 0),
        (Gives::Vectors(Some(0)), 14, 0),
        (Gives::Vectors(Some(1 << 60)), 14, 0),
        (Gives::Refuses, 0, 0),
        (Gives::Waits, 0, 0),
        (Gives::Hangs, 0, 14),
    ] {
        let Became { vectors, recorded, counted } = became(&limits, &fours(CHEAP, gives), false).await;
        assert_eq!(vectors.is_ok(), matches!(gives, Gives::Vectors(_)));
        assert_eq!(recorded, Some((used, lost)));
        assert_eq!(counted, (used + lost, used + lost));
    }
    let Became { vectors, recorded, counted } = became(&limits, &fours(CHEAP, Gives::Hangs), true).await;
    assert_eq!((vectors, recorded, counted), (Err(EmbedError::Cancelled), Some((0, 0)), (0, 0)));
}

#[tokio::test]
async fn what_a_limit_has_no_room_for_is_not_asked() {
    let few = DefinitionLimits { max_tokens_per_invocation: 10, ..DefinitionLimits::default() };
    let model = fours(CHEAP, Gives::Vectors(None));
    let Became { vectors, recorded, counted } = became(&few, &model, false).await;
    assert!(matches!(vectors, Err(EmbedError::Exceeded(_))), "{vectors:?}");
    assert_eq!((recorded, counted), (None, (0, 0)));
    let paid = DefinitionLimits { max_cost_usd: Some(1.0), ..DefinitionLimits::default() };
    let Became { vectors, recorded, .. } = became(&paid, &fours(None, Gives::Vectors(None)), false).await;
    assert!(matches!(vectors, Err(EmbedError::Unpriced(_))), "{vectors:?}");
    assert_eq!(recorded, None);
    let poor = DefinitionLimits { max_cost_usd: Some(1e-9), ..DefinitionLimits::default() };
    let Became { vectors, .. } = became(&poor, &model, false).await;
    assert!(matches!(vectors, Err(EmbedError::Exceeded(_))), "{vectors:?}");
}

#[tokio::test]
async fn what_an_earlier_process_used_for_vectors_counts_when_its_run_goes_on() {
    let (tokens, lost) = (12, 3);
    let entry = |attempt| Entry::Embedded {
        invocation: ids::root_invocation(&"t".parse().expect("an id")),
        agent: "main".parse().expect("an id"),
        attempt,
        model: "p/fours".into(),
        texts: 3,
        usage: Usage { input_tokens: tokens, ..Usage::default() },
        cost_usd: Some(0.5),
        estimated: false,
        lost_tokens: lost,
        lost_usd: 0.25,
        latency_ms: 1,
        failed: None,
    };
    let recorded: RecordedTurn = [entry(1), entry(2)].into_iter().collect();
    let run = recorded.run(&ids::root_invocation(&"t".parse().expect("an id"))).expect("it is recorded");
    let spent = run.spent(std::iter::empty());
    assert_eq!((spent.tokens(), spent.dollars(), spent.turns), (2 * (tokens + lost), 1.5, 0));
}
