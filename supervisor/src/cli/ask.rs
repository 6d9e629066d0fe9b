//! `drupe ask`: one turn. The answer alone goes to the standard output.

use std::{
    borrow::Cow,
    io::Read,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use drupe_extension_api::{
    AgentId, EventBody, FailureClass, Format, OutputSpec, ResponseStatus, SessionId, TurnId,
    control::{
        EventsSubscribe, InvocationRecord, ReplyBody, TranscriptEntry, TurnArgument, TurnResult, method,
    },
    wire::{Submit, Submitted},
};
use serde::Serialize;

use super::{
    Context,
    activity::Activity,
    approvals::WAITS,
    client::{Client, ClientError, Pauses, answer},
    console::Console,
    failure::{Failure, status},
    hangup,
    models::{self, offline_notice},
    start,
    wait::{Interrupt, Wait},
};

/// The largest task that is read from the standard input: beyond it a file is the better place.
const MOST_INPUT: u64 = 2 * 1024 * 1024;

/// How long a daemon may be gone before the answer is given up.
const GONE: Duration = Duration::from_secs(30);

/// Arguments of `drupe ask`.
#[derive(Debug, clap::Args)]
pub struct Ask {
    /// The task; `-` reads it from the standard input
    #[arg(value_name = "TEXT")]
    text: String,
    /// The agent that shall answer
    #[arg(long, value_name = "ID")]
    agent: Option<AgentId>,
    /// The conversation to go on with; a new one by default
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// The model to ask in place of the agent's own, such as `openai/gpt-5` or `scripted:flow.yaml`
    #[arg(long)]
    model: Option<String>,
    /// The answer alone, or an object with everything about it
    #[arg(long, value_enum, default_value = "text")]
    format: Shape,
    /// A file with a JSON Schema: the answer is JSON that fits it
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// Add every entry of every run to the object
    #[arg(long)]
    transcript: bool,
    /// Seconds that the turn may take
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Leave a daemon that was started for this call running
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Shape {
    Text,
    Json,
}

/// A positive number of seconds, with a fraction or without.
fn seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds is expected, such as 30 or 1.5")?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("more than 0 seconds are expected"),
    }
}

impl Ask {
    /// Asks, waits, and shows the answer.
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        if self.transcript && self.format != Shape::Json {
            return Err(Failure::new(2, "`--transcript` needs `--format json`"));
        }
        let submit = self.submit(context)?;
        let interrupt = Interrupt::take()?;
        hangup::watch(&interrupt, || {})?;
        let _started = start::ensure(context, &interrupt, self.keep)?;
        if self.model.is_none()
            && let Some(notice) = offline_notice(&context.daemon())
        {
            context.console.remark(notice);
        }
        let accepted: Submitted = context.daemon().heeding(&interrupt).call(method::TURN_SUBMIT, &submit)?;
        // Runs and transcripts may be long: only the object holds them.
        let turn = TurnArgument { turn: accepted.turn, now: false, brief: self.format == Shape::Text };
        self.show(context, answer_of(context, &submit.session, turn, &interrupt)?)
    }

    fn submit(&self, context: &Context) -> Result<Submit, Failure> {
        let schema = self.schema.as_deref().map(|file| schema(&context.here.join(file))).transpose()?;
        let text = match self.text.as_str() {
            "-" => standard_input()?,
            text => text.to_owned(),
        };
        if text.trim().is_empty() {
            return Err(Failure::new(2, "the task is empty").help("say what to do: drupe ask \"…\""));
        }
        let fresh = || SessionId::new(format!("ask-{}", uuid::Uuid::new_v4().simple()));
        let session = match &self.session {
            Some(session) => session.clone(),
            None => fresh().map_err(|error| Failure::new(status::SOFTWARE, error.to_string()))?,
        };
        Ok(Submit {
            carried: None,
            sender: None,
            files: Vec::new(),
            channel: String::new(),
            external_id: uuid::Uuid::new_v4().to_string(),
            session,
            address: None,
            text,
            agent: self.agent.clone(),
            model: self.model.as_deref().map(|model| models::absolute(model, &context.here)),
            output: schema.map(|schema| OutputSpec { format: Format::Json, schema: Some(schema) }),
            time_budget_ms: self
                .timeout
                .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)),
            queue: None,
        })
    }

    fn show(&self, context: &Context, result: TurnResult) -> Result<u8, Failure> {
        let status = result.status.unwrap_or(ResponseStatus::Error);
        let done = status == ResponseStatus::Success;
        if self.format == Shape::Json {
            context.console.json(&Envelope::new(result, status, self.transcript))?;
            return Ok(if done { 0 } else { status::FAILED });
        }
        if let Some(answer) = answered(&context.console, &result) {
            context.console.print(&answer)?;
        }
        for remark in &result.diagnostics {
            context.console.remark(remark);
        }
        if done {
            return Ok(0);
        }
        let failure = Failure::new(status::FAILED, result.error.unwrap_or_else(|| "the turn failed".into()));
        Err(match result.class {
            Some(class) => failure.help(class.remedy()),
            None => failure,
        })
    }
}

/// What goes to the standard output. What failed may still have something to report.
fn answered<'a>(console: &Console, result: &'a TurnResult) -> Option<Cow<'a, str>> {
    let done = result.status == Some(ResponseStatus::Success);
    let reports = done || result.error.as_ref() != Some(&result.content);
    reports.then(|| console.harmless(&result.content))
}

fn standard_input() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin().take(MOST_INPUT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_INPUT {
        let message = format!("the task has more than {MOST_INPUT} bytes");
        return Err(Failure::new(2, message).help("put it into a file of the workspace and name that"));
    }
    String::from_utf8(bytes).map_err(|_| Failure::new(2, "the task on the standard input is not UTF-8"))
}

fn schema(file: &Path) -> Result<serde_json::Value, Failure> {
    let name = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::new(status::NO_INPUT, format!("`{name}` cannot be read: {error}")))?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::new(status::WRONG_INPUT, format!("`{name}` is not JSON: {error}"))
            .help("`--schema` takes a JSON Schema")
    })
}

/// The object that `--format json` prints.
#[derive(Debug, Serialize)]
struct Envelope {
    status: ResponseStatus,
    content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<FailureClass>,
    tokens_used: u64,
    turns_used: u32,
    session: SessionId,
    turn: TurnId,
    usage: Spent,
    invocations: Vec<InvocationRecord>,
    diagnostics: Vec<String>,
    trace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    transcript: Option<Vec<TranscriptEntry>>,
}

/// What the whole tree spent.
#[derive(Debug, Serialize)]
struct Spent {
    #[serde(flatten)]
    usage: drupe_extension_api::Usage,
    tool_calls: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_usd: Option<f64>,
    elapsed_ms: u64,
}

impl Envelope {
    fn new(result: TurnResult, status: ResponseStatus, transcript: bool) -> Self {
        // More than one where the conversation went from one agent to another.
        let roots: Vec<_> = result.invocations.iter().filter(|run| run.depth == 0).collect();
        let spend = result.spend;
        let none = roots.is_empty();
        Self {
            status,
            content: result.content,
            error: result.error,
            class: result.class,
            tokens_used: if none {
                spend.usage.total()
            } else {
                roots.iter().map(|run| run.tokens_used).sum()
            },
            turns_used: if none { spend.turns } else { roots.iter().map(|run| run.turns_used).sum() },
            session: result.session,
            turn: result.turn,
            usage: Spent {
                usage: spend.usage,
                tool_calls: spend.tool_calls,
                cost_usd: spend.cost_usd,
                elapsed_ms: spend.elapsed_ms,
            },
            invocations: result.invocations,
            diagnostics: result.diagnostics,
            trace: result.trace,
            transcript: transcript.then_some(result.transcript),
        }
    }
}

/// Waits for the answer to a turn's message: that of the turn which took it in, where one did.
fn answer_of(
    context: &Context,
    session: &SessionId,
    mut turn: TurnArgument,
    interrupt: &Interrupt,
) -> Result<TurnResult, Failure> {
    loop {
        let result = Waiting::new(context, session, turn.clone(), interrupt).result()?;
        match taken_in_by(context, &result)? {
            Some(by) if by != turn.turn => {
                context
                    .console
                    .remark(&format!("turn `{by}` took the message in: what follows is its answer"));
                turn.turn = by;
            }
            _ => return Ok(result),
        }
    }
}

/// The turn that took a message in, as an event says. The content of the answer only says that there may be one.
fn taken_in_by(context: &Context, result: &TurnResult) -> Result<Option<TurnId>, Failure> {
    let named =
        result.content.starts_with("turn `") && result.content.ends_with("took this message in while it ran");
    let mut by = None;
    if result.status == Some(ResponseStatus::Success) && named {
        context.daemon().each_event(&result.session, |event| {
            if matches!(&event.body, EventBody::TurnSteered { from, .. } if *from == result.turn) {
                by = event.turn;
            }
            Ok(())
        })?;
    }
    Ok(by)
}

/// Waits for the end of a turn, over restarts of the kernel.
struct Waiting<'a> {
    context: &'a Context,
    session: &'a SessionId,
    turn: TurnArgument,
    interrupt: &'a Interrupt,
    /// Position of the last event that was seen.
    seen: u64,
    activity: Activity,
    /// Whether the turn is to be stopped, and whether the daemon knows.
    stop: Option<bool>,
}

impl<'a> Waiting<'a> {
    fn new(
        context: &'a Context,
        session: &'a SessionId,
        turn: TurnArgument,
        interrupt: &'a Interrupt,
    ) -> Self {
        Self { context, session, turn, interrupt, seen: 0, activity: Activity::default(), stop: None }
    }

    fn result(mut self) -> Result<TurnResult, Failure> {
        let mut wait = Wait::new(self.context.console, None);
        let mut pauses = Pauses::default();
        let mut gone: Option<Instant> = None;
        loop {
            let error = match self.attached(&mut wait) {
                Ok(result) => return result,
                Err(error) => error,
            };
            match &error {
                ClientError::Absent if gone.is_none_or(|since| since.elapsed() < GONE) => {
                    gone.get_or_insert_with(Instant::now);
                }
                error if error.passes() => {
                    gone = None;
                }
                _ => {
                    let failure = error.into_failure(self.context.home());
                    return Err(failure.help(format!(
                        "once a daemon serves it again, the answer will be in `drupe session show {}`",
                        self.session
                    )));
                }
            }
            self.heed(None, &mut wait)?;
            let meanwhile = match error {
                ClientError::Absent => "the daemon has ended; waiting for another one",
                _ => "the kernel ends or restarts",
            };
            wait.pause(meanwhile, pauses.next());
        }
    }

    /// Waits on one connection. The outer error is that connection's.
    fn attached(&mut self, wait: &mut Wait) -> Result<Result<TurnResult, Failure>, ClientError> {
        let mut client = Client::connect(self.context.home())?;
        if self.stop == Some(true) {
            // The kernel that knew may be gone.
            self.stop = Some(false);
        }
        let asked = client.send(method::TURN_WAIT, &self.turn)?;
        if self.context.console.watched {
            let ask = EventsSubscribe { session: self.session.clone(), after: self.seen, follow: true };
            client.send(method::EVENTS_SUBSCRIBE, &ask)?;
        }
        loop {
            match client.receive()? {
                Some(reply) if reply.id == asked => {
                    return Ok(Ok(answer(reply.body).map_err(|error| client.refusal(error))?));
                }
                Some(reply) => {
                    if let ReplyBody::Event(event) = reply.body {
                        self.seen = self.seen.max(event.seq);
                        if event.turn.as_ref() == Some(&self.turn.turn)
                            || matches!(event.body, EventBody::Lifecycle { .. })
                        {
                            if let EventBody::ApprovalRequested { tool, .. } = &event.body {
                                self.context.console.remark(&format!("{tool} {WAITS}"));
                            }
                            self.activity.take(&event, Instant::now());
                        }
                    }
                }
                None => {}
            }
            if let Err(failure) = self.heed(Some(&mut client), wait) {
                return Ok(Err(failure));
            }
            wait.show(self.activity.latest().unwrap_or("waiting for the answer (Ctrl-C stops the turn)"));
        }
    }

    /// Ctrl-C: the first stops the turn, the second leaves.
    fn heed(&mut self, client: Option<&mut Client>, wait: &mut Wait) -> Result<(), Failure> {
        if self.interrupt.leaving() {
            return Err(Failure::said(status::INTERRUPTED));
        }
        if self.interrupt.came() {
            if self.stop.is_some() {
                return Err(Failure::said(status::INTERRUPTED));
            }
            self.stop = Some(false);
            wait.clear();
            self.context.console.remark("stopping the turn; Ctrl-C again leaves at once");
        }
        if let (Some(false), Some(client)) = (self.stop, client)
            && client.send(method::TURN_STOP, &self.turn).is_ok()
        {
            self.stop = Some(true);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_a_positive_number_of_seconds() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        for wrong in ["", "x", "0", "-1", "1e300", "NaN"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_answer_cannot_command_the_terminal_and_stays_exact_in_a_pipe() {
        let evil = "a\x1b]52;c;Zm9v\x07\n\x1b[2Jb";
        let mut result: TurnResult = serde_json::from_value(serde_json::json!({
            "session": "s", "turn": "t", "input": "x", "status": "success", "content": evil, "spend": {},
            "invocations": [], "transcript": [], "diagnostics": [], "trace": "c",
        }))
        .expect("a result");
        let fake = crate::cli::fake::Fake::absent();
        let mut console = fake.context.console;
        assert_eq!(answered(&console, &result).as_deref(), Some(evil));
        console.terminal = true;
        assert_eq!(answered(&console, &result).as_deref(), Some("a]52;c;Zm9v\n[2Jb"));
        (result.status, result.error) = (Some(ResponseStatus::Error), Some(evil.into()));
        assert_eq!(answered(&console, &result), None, "the error says it");
    }

    #[test]
    fn the_object_counts_the_root_run_and_leaves_the_transcript_out_unless_asked() {
        let run = |depth, tokens| {
            serde_json::json!({
                "id": format!("i-{depth}"), "agent": "a", "parent": null, "depth": depth, "status": "success",
                "usage": {"input_tokens": 1, "cached_tokens": 0, "output_tokens": 1, "reasoning_tokens": 0},
                "tokens_used": tokens, "turns_used": 2,
            })
        };
        let result = serde_json::json!({
            "session": "s", "turn": "t", "input": "x", "status": "success", "content": "y", "spend": {},
            "invocations": [run(1, 5), run(0, 9)], "transcript": [], "diagnostics": [], "trace": "c",
        });
        let result: TurnResult = serde_json::from_value(result).expect("a result");
        let object = |transcript| {
            serde_json::to_value(Envelope::new(result.clone(), ResponseStatus::Success, transcript))
                .expect("an object")
        };
        let (bare, full) = (object(false), object(true));
        assert_eq!((&bare["tokens_used"], &bare["turns_used"]), (&9.into(), &2.into()));
        assert_eq!((bare.get("transcript"), bare.get("error")), (None, None));
        assert!(full["transcript"].is_array());
        for key in ["status", "content", "session", "turn", "usage", "invocations", "diagnostics", "trace"] {
            assert!(bare.get(key).is_some(), "{key}");
        }
    }
}
