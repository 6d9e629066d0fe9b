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
    ids,
    refusals::{Doubts, TraceCounts},
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
    Taken,
    /// It is not sent, and does not wait any more.
    LetGo,
    /// The turn has not ended yet.
    GoesOn,
    /// It waits, and so do those behind it for a moment.
    Waits {
        why: String,
        after: Option<Duration>,
    },
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
            for turn in trouble.doubts.order(self.waiting.all()) {
                match self.deliver_one(&turn, &mut trouble).await {
                    Delivered::Taken | Delivered::LetGo => {
                        self.waiting.done(&turn).await?;
                        (look, pause) = (FIRST_LOOK, PAUSE);
                    }
                    Delivered::GoesOn => go_on = true,
                    Delivered::Waits { why, after: wanted } => {
                        trouble.began(&self.host, &why);
                        after = Some(wanted.unwrap_or_else(|| spread(pause, &turn)));
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

    async fn deliver_one(&self, turn: &TurnId, trouble: &mut Trouble) -> Delivered {
        let trace = match self.trace(turn, trouble).await {
            Ok(Some(trace)) => trace,
            Ok(None) => return Delivered::LetGo,
            Err(waits) => return waits,
        };
        if trace.status.is_none() {
            return Delivered::GoesOn;
        }
        let texts = match self.settings.content {
            true => TurnTexts::of(&self.host, &trace).await,
            false => TurnTexts::default(),
        };
        match self.collector.send(spans::of(&trace, &texts)).await {
            Ok(said) => {
                trouble.ended(&self.host);
                if let Some(said) = said {
                    trouble.count(&self.host, 200, |count| match count {
                        1 => format!("the collector has the trace of turn {turn}, and says: {said}"),
                        _ => format!(
                            "the collector had something to say of {count} traces by now, at last: {said}"
                        ),
                    });
                }
                Delivered::Taken
            }
            Err(Unsent::Never { why, status }) => trouble.let_go(&self.host, turn, status, &why),
            Err(Unsent::Unclear { why } | Unsent::TooLarge { why }) => match trouble.doubts.failed(turn) {
                true => trouble.let_go(&self.host, turn, 0, &why),
                false => Delivered::Waits { why, after: None },
            },
            Err(Unsent::Later { why, after }) => {
                trouble.doubts.put_off(turn);
                Delivered::Waits { why, after }
            }
            Err(Unsent::Away { why }) => Delivered::Waits { why, after: None },
        }
    }

    /// The trace of a turn; none of one that is not there any more.
    async fn trace(&self, turn: &TurnId, trouble: &mut Trouble) -> Result<Option<TurnTrace>, Delivered> {
        let ask = TraceArgument { id: turn.to_string(), turn: None };
        match self.host.control::<Vec<TurnTrace>>(method::TRACE_SHOW, &ask).await {
            Ok(traces) => {
                trouble.refused = 0;
                Ok(traces.into_iter().next())
            }
            Err(fault) if fault.code == FaultCode::NotFound => Ok(None),
            Err(fault) if trouble.refused < TRIES => {
                trouble.refused += 1;
                let why = format!("the daemon does not give the trace of turn {turn}: {fault}");
                Err(Delivered::Waits { why, after: None })
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

/// A pause, and up to a quarter more that another daemon does not have: those that lost the same collector do not all come back at once.
fn spread(pause: Duration, turn: &TurnId) -> Duration {
    let share = ids::span(turn.as_str(), &pause.as_millis().to_string());
    pause + pause * u32::from_str_radix(&share[..2], 16).unwrap_or_default() / 1024
}

/// Whether traces are taken at present: said when that changes, and not each time that it is tried.
#[derive(Default)]
struct Trouble {
    since: Option<String>,
    /// How often the daemon did not give a trace.
    refused: u32,
    doubts: Doubts,
    counted: TraceCounts,
}

impl Trouble {
    /// Says something of traces to which the same happened: of the first of them, and then how many there are.
    fn count(&mut self, host: &Host, status: u16, says: impl FnOnce(u64) -> String) {
        if let Some(count) = self.counted.more(status) {
            host.warn(says(count));
        }
    }

    fn let_go(&mut self, host: &Host, turn: &TurnId, status: u16, why: &str) -> Delivered {
        self.count(host, status, |count| match count {
            1 => format!("the trace of turn {turn} is not sent: {why}"),
            _ => format!("{count} traces are not sent by now, the last of them that of turn {turn}: {why}"),
        });
        Delivered::LetGo
    }

    fn began(&mut self, host: &Host, why: &str) {
        if self.since.as_deref() != Some(why) {
            host.warn(format!("traces wait: {why}"));
            self.since = Some(why.to_owned());
        }
    }

    fn ended(&mut self, host: &Host) {
        self.doubts.taken();
        if self.since.take().is_some() {
            host.info("traces are taken again");
        }
    }
}
