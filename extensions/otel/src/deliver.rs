//! From a turn that ended to a trace that is sent: who is told, who waits, who is tried again and when.

use std::time::Duration;

use drupe_extension_api::{
    control::{TraceArgument, TurnTrace, method},
    prelude::*,
};
use serde_json::Value;

use crate::{
    collector::{Collector, Unsent},
    content::TurnTexts,
    settings::OtelSettings,
    spans,
    waiting::{TurnAdded, TurnQueue},
};

/// The end of a run is told within the turn that it ends, whose own end follows after a moment: the first pause before it is looked for again,
/// and the longest.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LONGEST_LOOK: Duration = Duration::from_secs(30);
/// The first pause after a failure, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often a trace is asked for that the daemon cannot give.
const TRIES: u32 = 5;

pub struct Exporter {
    pub host: Host,
    pub settings: OtelSettings,
    pub collector: Collector,
    pub waiting: TurnQueue,
}

/// What became of one that waits.
enum Delivered {
    Done,
    GoesOn,
}

impl Exporter {
    /// Hears which turns end. The daemon keeps its messages until they are in the file.
    pub async fn listen(&self) -> Result<(), Fault> {
        let mut well = self.host.subscribe_durable("agent_result").await?;
        let mut badly = self.host.subscribe_durable("agent_error").await?;
        loop {
            let message = tokio::select! {
                message = well.next() => message?,
                message = badly.next() => message?,
            };
            let Some(message) = message else {
                return Err(Fault::internal("the daemon tells no more of runs that end"));
            };
            // What sub-agents do is part of the trace of their turn.
            if message.payload.get("parent").is_some() {
                continue;
            }
            let turn = message.payload.get("turn").and_then(Value::as_str).map(TurnId::new);
            if let Some(Ok(turn)) = turn
                && let TurnAdded::InPlaceOf(oldest) = self.waiting.add(turn).await?
            {
                let most = self.settings.backlog;
                self.host.warn(format!("{most} turns wait for the collector, so turn {oldest} is not sent"));
            }
        }
    }

    /// Sends what waits, the oldest first.
    pub async fn deliver(&self) -> Result<(), Fault> {
        let (mut look, mut pause, mut trouble) = (FIRST_LOOK, PAUSE, Trouble::default());
        loop {
            let mut go_on = false;
            let mut after = None;
            for turn in self.waiting.all() {
                match self.deliver_one(&turn, &mut trouble).await {
                    Ok(Delivered::Done) => {
                        self.waiting.done(&turn).await?;
                        (look, pause) = (FIRST_LOOK, PAUSE);
                    }
                    Ok(Delivered::GoesOn) => go_on = true,
                    Err((why, wanted)) => {
                        trouble.began(&self.host, &why);
                        after = Some(wanted.unwrap_or(pause));
                        pause = (pause * 2).min(LONGEST_PAUSE);
                        break;
                    }
                }
            }
            match after {
                Some(after) => self.host.sleep(after).await?,
                None if go_on => {
                    tokio::select! {
                        () = self.waiting.added.notified() => look = FIRST_LOOK,
                        slept = self.host.sleep(look) => slept?,
                    }
                    look = (look * 2).min(LONGEST_LOOK);
                }
                None => self.waiting.added.notified().await,
            }
        }
    }

    async fn deliver_one(
        &self,
        turn: &TurnId,
        trouble: &mut Trouble,
    ) -> Result<Delivered, (String, Option<Duration>)> {
        let Some(trace) = self.trace(turn, trouble).await? else { return Ok(Delivered::Done) };
        if trace.status.is_none() {
            return Ok(Delivered::GoesOn);
        }
        let texts = match self.settings.content {
            true => TurnTexts::of(&self.host, &trace).await,
            false => TurnTexts::default(),
        };
        match self.collector.send(&spans::of(&trace, &texts)).await {
            Ok(said) => {
                trouble.ended(&self.host);
                if let Some(said) = said {
                    self.host.warn(format!("the collector has the trace of turn {turn}, and says: {said}"));
                }
                Ok(Delivered::Done)
            }
            Err(Unsent::Never { why }) => {
                self.host.warn(format!("the trace of turn {turn} is not sent: {why}"));
                Ok(Delivered::Done)
            }
            Err(Unsent::Later { why, after }) => Err((why, after)),
        }
    }

    /// The trace of a turn; none of one that is not there any more.
    async fn trace(
        &self,
        turn: &TurnId,
        trouble: &mut Trouble,
    ) -> Result<Option<TurnTrace>, (String, Option<Duration>)> {
        let ask = TraceArgument { id: turn.to_string(), turn: None };
        match self.host.control::<Vec<TurnTrace>>(method::TRACE_SHOW, &ask).await {
            Ok(traces) => {
                trouble.refused = 0;
                Ok(traces.into_iter().next())
            }
            Err(fault) if fault.code == FaultCode::NotFound => Ok(None),
            Err(fault) if trouble.refused < TRIES => {
                trouble.refused += 1;
                Err((format!("the daemon does not give the trace of turn {turn}: {fault}"), None))
            }
            Err(fault) => {
                trouble.refused = 0;
                self.host.warn(format!(
                    "the trace of turn {turn} is not sent, as the daemon does not give it: {fault}"
                ));
                Ok(None)
            }
        }
    }
}

/// Whether traces are taken at present: said when that changes, and not each time that it is tried.
#[derive(Default)]
struct Trouble {
    since: Option<String>,
    /// How often the daemon did not give a trace.
    refused: u32,
}

impl Trouble {
    fn began(&mut self, host: &Host, why: &str) {
        if self.since.as_deref() != Some(why) {
            host.warn(format!("traces wait: {why}"));
            self.since = Some(why.to_owned());
        }
    }

    fn ended(&mut self, host: &Host) {
        if self.since.take().is_some() {
            host.info("traces are taken again");
        }
    }
}
