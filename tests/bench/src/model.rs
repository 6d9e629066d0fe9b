//! The model: a server of Chat Completions on loopback that streams what the text of the message asks for.
//!
//! One thread, connections kept alive, an answer in one write: as little as a server can do, so that a turn's time is
//! the daemon's. `GET /last` gives the last request's body.

use std::{cell::RefCell, collections::HashMap, io::Write as _, rc::Rc, time::Duration};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    process::{Cores, Role},
    turns::Work,
};

/// The argument that makes this program a model.
pub const ROLE: &str = "--as-model";

/// What it answers in the end: 64 characters, streamed four at a time.
pub const ANSWER: &str = "The value of alpha is forty-two, as it was said to be from afar.";

/// How often it says so where a long answer is asked for: that is 256 pieces.
const LONG: usize = 16;

/// The same where the pieces come one after another: 64 pieces.
const SPACED: usize = 4;

/// The time between those: a quick model gives a few hundred tokens a second.
const APART: Duration = Duration::from_millis(2);

/// No request is longer; one that is shows a fault of the measurement.
const LONGEST: usize = 8 * 1024 * 1024;

/// A model that runs.
pub struct Model {
    _role: Role,
    address: String,
}

impl Model {
    /// Starts one that takes so long to begin each answer.
    pub fn start(latency: Duration) -> Result<Self> {
        let mut role = Role::start(Cores::Beside, &[ROLE, &latency.as_millis().to_string()])?;
        let address = role.line()?;
        Ok(Self { _role: role, address })
    }

    /// Where it listens: host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The body of the last request.
    pub fn last(&self) -> Result<Vec<u8>> {
        use std::io::Read as _;
        let mut stream = std::net::TcpStream::connect(&self.address)?;
        stream.write_all(b"GET /last HTTP/1.1\r\nconnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let at = end_of_head(&answer).context("an answer without a head")?;
        Ok(answer.split_off(at))
    }
}

/// Serves until it is killed. Says its address first.
pub fn main(arguments: &[String]) -> Result<()> {
    let latency = Duration::from_millis(arguments.first().context("the latency")?.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
        let server = Rc::new(Server { latency, answers: Answers::default(), last: RefCell::default() });
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let server = Rc::clone(&server);
            // A client that goes away in the middle is its own business.
            tokio::task::spawn_local(async move { server.serve(stream).await.ok() });
        }
    })
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    role: &'a str,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

struct Server {
    latency: Duration,
    answers: Answers,
    last: RefCell<Vec<u8>>,
}

impl Server {
    async fn serve(&self, mut stream: TcpStream) -> Result<()> {
        let mut read: Vec<u8> = Vec::with_capacity(64 * 1024);
        loop {
            let head = loop {
                if let Some(at) = end_of_head(&read) {
                    break at;
                }
                if stream.read_buf(&mut read).await? == 0 {
                    return Ok(());
                }
            };
            let end = head + length(&read[..head])?;
            while read.len() < end {
                if stream.read_buf(&mut read).await? == 0 {
                    return Ok(());
                }
            }
            if read.starts_with(b"GET") {
                let body = self.last.borrow().clone();
                stream.write_all(&http("application/json", &body)).await?;
                return Ok(());
            }
            let work = wanted(&read[head..end])?;
            self.last.borrow_mut().clear();
            self.last.borrow_mut().extend_from_slice(&read[head..end]);
            read.drain(..end);
            if !self.latency.is_zero() {
                tokio::time::sleep(self.latency).await;
            }
            let answer = self.answers.to(work);
            match work {
                Work::Spaced => apart(&mut stream, answer).await?,
                _ => stream.write_all(answer).await?,
            }
        }
    }
}

/// Sends an answer event by event, as they come from a model that still thinks.
async fn apart(stream: &mut TcpStream, answer: &[u8]) -> Result<()> {
    let mut left = answer;
    let mut due = tokio::time::interval(APART);
    while !left.is_empty() {
        // The head goes with the first of them.
        let end = left.windows(2).position(|w| w == b"\n\n").map_or(left.len(), |at| at + 2);
        let (event, rest) = left.split_at(end);
        due.tick().await;
        stream.write_all(event).await?;
        left = rest;
    }
    Ok(())
}

/// What the model shall do now: the work that the user asked for, or to answer when it has been done.
fn wanted(body: &[u8]) -> Result<Work> {
    let request: Request<'_> = serde_json::from_slice(body)?;
    let last = request.messages.last().context("a request without messages")?;
    match last.role {
        "tool" => Ok(Work::Echo),
        "user" => Ok(last.content.and_then(|c| Work::of(c.get())).unwrap_or(Work::Echo)),
        other => bail!("the last message is of `{other}`"),
    }
}

/// The answers, made once: they are the same for everybody.
struct Answers(HashMap<&'static str, Vec<u8>>);

impl Default for Answers {
    fn default() -> Self {
        Self(
            Work::ALL
                .into_iter()
                .map(|work| (work.name(), http("text/event-stream", &events(work))))
                .collect(),
        )
    }
}

impl Answers {
    fn to(&self, work: Work) -> &[u8] {
        self.0.get(work.name()).map_or(&[], Vec::as_slice)
    }
}

fn events(work: Work) -> Vec<u8> {
    let mut out = Vec::new();
    let mut chunk = |choices: serde_json::Value, usage: serde_json::Value| {
        let event = json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "bench",
            "choices": choices, "usage": usage,
        });
        out.extend_from_slice(format!("data: {event}\n\n").as_bytes());
    };
    let delta = |delta: serde_json::Value, finish: Option<&str>| json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
    let none = serde_json::Value::Null;
    let calls = work.calls();
    chunk(delta(json!({"role": "assistant", "content": ""}), None), none.clone());
    for (index, (name, arguments)) in calls.iter().enumerate() {
        let begin = json!({"index": index, "id": format!("call_{index}"), "type": "function", "function": {"name": name, "arguments": ""}});
        chunk(delta(json!({"tool_calls": [begin]}), None), none.clone());
        let more = json!({"index": index, "function": {"arguments": arguments}});
        chunk(delta(json!({"tool_calls": [more]}), None), none.clone());
    }
    if calls.is_empty() {
        let answer = ANSWER.repeat(match work {
            Work::Stream => LONG,
            Work::Spaced => SPACED,
            _ => 1,
        });
        for text in answer.as_bytes().chunks(4) {
            chunk(delta(json!({"content": String::from_utf8_lossy(text)}), None), none.clone());
        }
    }
    let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
    chunk(delta(json!({}), Some(finish)), none);
    chunk(json!([]), json!({"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60}));
    out.extend_from_slice(b"data: [DONE]\n\n");
    out
}

fn http(kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Where the body begins.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4)
}

fn length(head: &[u8]) -> Result<usize> {
    let head = std::str::from_utf8(head)?;
    for line in head.lines() {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            let length: usize = value.trim().parse()?;
            return if length <= LONGEST { Ok(length) } else { bail!("a request of {length} bytes") };
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(role: &str, content: &str) -> Option<Work> {
        let body =
            json!({"messages": [{"role": "system", "content": "x"}, {"role": role, "content": content}]});
        wanted(body.to_string().as_bytes()).ok()
    }

    #[test]
    fn it_calls_what_the_user_asked_for_and_answers_after_a_tool() {
        assert_eq!(asked("user", Work::Delegate.text()), Some(Work::Delegate));
        assert_eq!(asked("user", "hello"), Some(Work::Echo));
        assert_eq!(asked("tool", Work::Tool.text()), Some(Work::Echo));
        assert_eq!(asked("assistant", "x"), None);
    }

    #[test]
    fn a_length_is_found_whatever_its_spelling() {
        assert_eq!(length(b"POST / HTTP/1.1\r\nContent-Length: 12\r\n\r\n").ok(), Some(12));
        assert_eq!(length(b"GET / HTTP/1.1\r\n\r\n").ok(), Some(0));
        assert!(length(b"POST / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n").is_err());
    }
}
