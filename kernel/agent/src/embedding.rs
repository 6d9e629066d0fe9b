//! Texts as vectors, on behalf of a run: set aside, asked, charged and recorded as an answer of a model is.
//!
//! It is asked once. A failure is the caller's to live with, which can do without vectors: it deliberately repeats nothing, and
//! waits for nothing that other runs have set aside.

use std::{sync::Arc, time::Duration};

use drupe_extension_api::{EventBody, FailureClass, Usage};
use drupe_limits::{Hold, QuotaExceeded, Spender};
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

use crate::{
    asker::Asker,
    budget::{Exceeded, Reservation, Unpriced},
    dispatch::OUTSIDE,
    journal::Entry,
    model::{Dispatch, ModelFault, ModelProfile},
    run::{Over, Run, millis},
};

/// A model that makes vectors of texts.
pub trait EmbeddingModel: Send + Sync {
    /// What is known of it before it is asked: its name, and what a million tokens of input take.
    fn profile(&self) -> &ModelProfile;

    /// Asks it for a vector of each text, until `deadline`. It notes in `dispatch` when the request goes out. Dropping the future
    /// closes the request.
    fn embed(
        &self,
        texts: Arc<[String]>,
        deadline: Instant,
        dispatch: Dispatch,
    ) -> BoxFuture<'static, Result<Embeddings, ModelFault>>;
}

/// What such a model gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Embeddings {
    /// A vector of each text, in their order, of one length and finite.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of the texts, where the provider counted them.
    pub input_tokens: Option<u64>,
}

/// Why texts did not become vectors.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EmbedError {
    /// A limit of the run, or of one above it.
    #[error("{0}")]
    Exceeded(#[from] Exceeded),
    /// A cost limit of a run, and a model without a price.
    #[error("{0}")]
    Unpriced(#[from] Unpriced),
    /// A limit of the day, the session, the agent or a token.
    #[error("{0}")]
    Quota(Box<QuotaExceeded>),
    /// The model gave no vectors.
    #[error("{0}")]
    Model(#[from] ModelFault),
    /// The run was cancelled meanwhile.
    #[error("the run was cancelled")]
    Cancelled,
    /// The time of the run is over.
    #[error("the time of the run is over")]
    Timeout,
}

/// Makes a vector of each text on behalf of a run, which is charged for it, within a time.
pub async fn embed(
    run: &Run,
    model: &dyn EmbeddingModel,
    texts: Vec<String>,
    within: Duration,
) -> Result<Vec<Vec<f32>>, EmbedError> {
    let deadline = Instant::now() + within;
    let bytes = texts.iter().map(String::len).sum();
    let dispatch = Dispatch::default();
    dispatch.begins();
    let request = Request::begin(run, model.profile(), &texts, bytes, dispatch.clone())?;
    let asked = model.embed(texts.into(), deadline, dispatch);
    let ended = tokio::select! {
        biased;
        over = run.over() => Err(over.into()),
        ended = timeout_at(deadline, asked) => match ended {
            Ok(ended) => ended.map_err(EmbedError::Model),
            Err(_) => Err(EmbedError::Model(late(&model.profile().name, within))),
        },
    };
    match ended {
        Ok(Embeddings { vectors, input_tokens }) => {
            request.answered(bytes, input_tokens);
            Ok(vectors)
        }
        Err(error) => {
            request.failed(&error);
            Err(error)
        }
    }
}

fn late(model: &str, within: Duration) -> ModelFault {
    let text = format!("`{model}` gave no vectors within {} ms", within.as_millis());
    ModelFault::transient(FailureClass::Timeout, text)
}

impl From<Over> for EmbedError {
    fn from(over: Over) -> Self {
        match over {
            Over::Cancelled => Self::Cancelled,
            Over::Timeout => Self::Timeout,
        }
    }
}

/// A request under way. One that is dropped, as when the future of a call is, counts as used whole, and is recorded so.
struct Request<'a> {
    run: &'a Run,
    profile: &'a ModelProfile,
    dispatch: Dispatch,
    texts: usize,
    attempt: u32,
    began: Instant,
    /// What is set aside for it, until it ends.
    reserved: Option<(Reservation, Hold)>,
}

/// How a request ended, for its record.
struct End {
    usage: Usage,
    estimated: bool,
    lost: (u64, f64),
    failed: Option<String>,
}

impl<'a> Request<'a> {
    /// Sets aside what it takes at most.
    fn begin(
        run: &'a Run,
        profile: &'a ModelProfile,
        texts: &[String],
        bytes: usize,
        dispatch: Dispatch,
    ) -> Result<Self, EmbedError> {
        run.budget.may_ask(profile.price.is_none().then_some(profile.name.as_str()))?;
        let input = run.scope.ratios.tokens(&profile.name, bytes);
        let own = run.budget.reserve(input, Some(0), profile)?;
        let usd = profile.price.map(|_| own.usd);
        let hold = match run.scope.quotas.reserve(spender(run), own.tokens(), usd, now_ms(run)) {
            Ok(hold) => hold,
            Err(error) => {
                run.budget.settle(own, Usage::default(), Some(0.0));
                return Err(EmbedError::Quota(Box::new(error)));
            }
        };
        let recorded = run.recorded();
        let before = recorded.iter().flat_map(|run| &run.steps).find(|step| step.step == OUTSIDE);
        let before = before.map_or(0, |step| step.attempt);
        Ok(Self {
            run,
            profile,
            dispatch,
            texts: texts.len(),
            attempt: before + run.times_asked(&Asker::Agent, "vectors") + 1,
            began: Instant::now(),
            reserved: Some((own, hold)),
        })
    }

    /// Charges what the provider counted, as far as that can be, and else an estimate.
    fn answered(mut self, bytes: usize, counted: Option<u64>) {
        let ratios = &self.run.scope.ratios;
        // A token of a text has at least one byte, and a model may put a mark at both ends of each.
        let most = u64::try_from(bytes + 2 * self.texts).unwrap_or(u64::MAX);
        let believed = counted.filter(|counted| (1..=most).contains(counted));
        if let Some(counted) = believed {
            ratios.observe(&self.profile.name, bytes, counted);
        }
        let input_tokens = believed.unwrap_or_else(|| ratios.tokens(&self.profile.name, bytes));
        let usage = Usage { input_tokens, ..Usage::default() };
        self.settle(usage, believed.is_none(), None);
    }

    fn failed(mut self, error: &EmbedError) {
        let unused = match error {
            EmbedError::Model(fault) => fault.used_nothing() || self.dispatch.is_unsent(),
            _ => self.dispatch.is_unsent(),
        };
        match unused {
            true => self.settle(Usage::default(), true, Some(error.to_string())),
            false => self.lose(error.to_string()),
        }
    }

    fn settle(&mut self, usage: Usage, estimated: bool, failed: Option<String>) {
        let Some((own, hold)) = self.reserved.take() else { return };
        let cost_usd = self.cost(&usage);
        self.run.budget.settle(own, usage, cost_usd);
        let quotas = &self.run.scope.quotas;
        let warnings = quotas.settle(hold, usage.total(), cost_usd, now_ms(self.run));
        warnings.into_iter().for_each(|warning| self.run.tell(EventBody::BudgetWarning(warning)));
        self.record(End { usage, estimated, lost: (0, 0.0), failed });
    }

    /// All that was set aside counts as used: what the provider has done is not known.
    fn lose(&mut self, failed: String) {
        let Some((own, hold)) = self.reserved.take() else { return };
        let lost = (own.tokens(), own.usd);
        self.run.budget.lose(own, lost.1);
        let quotas = &self.run.scope.quotas;
        let warnings = quotas.settle(hold, lost.0, Some(lost.1), now_ms(self.run));
        warnings.into_iter().for_each(|warning| self.run.tell(EventBody::BudgetWarning(warning)));
        self.record(End { usage: Usage::default(), estimated: true, lost, failed: Some(failed) });
    }

    fn record(&self, End { usage, estimated, lost, failed }: End) {
        self.run.record(Entry::Embedded {
            invocation: self.run.id.clone(),
            agent: self.run.agent.clone(),
            attempt: self.attempt,
            model: self.profile.name.clone(),
            texts: u32::try_from(self.texts).unwrap_or(u32::MAX),
            usage,
            cost_usd: self.cost(&usage),
            estimated,
            lost_tokens: lost.0,
            lost_usd: lost.1,
            latency_ms: millis(self.began.elapsed()),
            failed,
        });
    }

    fn cost(&self, usage: &Usage) -> Option<f64> {
        self.profile.price.map(|price| price.cost(usage))
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let why = "the call was cut off".to_owned();
        match self.dispatch.is_unsent() {
            true => self.settle(Usage::default(), true, Some(why)),
            false => self.lose(why),
        }
    }
}

fn spender(run: &Run) -> Spender<'_> {
    run.spender()
}

fn now_ms(run: &Run) -> i64 {
    run.scope.clock.now_ms()
}
