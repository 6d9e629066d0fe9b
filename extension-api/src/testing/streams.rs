//! What lasts, as a test plays it: topics, methods of the control API that stream, programs that are opened.

use std::{
    collections::VecDeque,
    future::poll_fn,
    task::{Poll, Waker},
};

use serde_json::{Value, value::to_raw_value};

use super::{
    FakeHost,
    record::{Record, answer},
};
use crate::{
    Fault,
    wire::{
        BusMessage, ControlCall, HandleItems, HandleNext, OpenedProcess, ProcessExit, ProcessSpec, Subscribe,
        read_put,
    },
};

/// What is read from a handle.
pub(super) struct Feed {
    /// The topic, of one that reads a topic.
    topic: Option<String>,
    ready: Ready,
    ended: bool,
    waker: Option<Waker>,
}

enum Ready {
    Items(VecDeque<Value>),
    Bytes(VecDeque<u8>),
}

/// What a program makes of what is written to it.
type Answers = Box<dyn FnMut(&[u8]) -> Vec<u8> + Send>;

/// The standard input of a program, and what its end ends.
pub(super) struct Input {
    answers: Answers,
    stdout: u64,
    stderr: u64,
    exit: u64,
    /// How the program ends then.
    how: Value,
}

/// A program that a test plays in place of one that is [opened](crate::sdk::Host::open_process): what it writes, and how it
/// ends. One that [answers](Self::answers) ends when its standard input does, any other at once.
pub struct FakeProcess {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    answers: Option<Answers>,
    exit: ProcessExit,
}

impl FakeProcess {
    /// One that writes nothing and ends with that status.
    pub fn ending(status: i32) -> Self {
        let exit = ProcessExit { status: Some(status), ..ProcessExit::default() };
        Self { stdout: Vec::new(), stderr: Vec::new(), answers: None, exit }
    }

    /// It ends in another way, such as by a signal.
    #[must_use]
    pub fn exit(mut self, exit: ProcessExit) -> Self {
        self.exit = exit;
        self
    }

    /// It begins by writing this to its standard output.
    #[must_use]
    pub fn stdout(mut self, bytes: &[u8]) -> Self {
        self.stdout = bytes.to_vec();
        self
    }

    /// It begins by writing this to its standard error stream.
    #[must_use]
    pub fn stderr(mut self, bytes: &[u8]) -> Self {
        self.stderr = bytes.to_vec();
        self
    }

    /// It answers what is written to its standard input on its standard output.
    #[must_use]
    pub fn answers(mut self, answers: impl FnMut(&[u8]) -> Vec<u8> + Send + 'static) -> Self {
        self.answers = Some(Box::new(answers));
        self
    }
}

/// Streams of the control API, and programs that are opened.
///
/// ```
/// use drupe_extension_api::{prelude::*, testing::{FakeProcess, Harness, block_on}, wire::ProcessSpec};
/// use serde_json::json;
/// # struct Echo { host: Host }
/// # impl Extension for Echo {
/// #     async fn initialize(host: Host) -> Result<Self, Fault> { Ok(Echo { host }) }
/// # }
/// # impl ToolProvider for Echo {
/// #     fn tools(&self) -> Vec<Tool<Self>> { vec![Tool::new("echo_cat", "Echoes.", Echo::cat)] }
/// # }
/// impl Echo {
///     async fn cat(&self, _: NoInput, _: Call) -> Result<String, Fault> {
///         let mut cat = self.host.open_process(&ProcessSpec::new("cat", self.host.data_folder())).await?;
///         cat.write(b"hello").await?;
///         cat.stdin = None;
///         Ok(String::from_utf8_lossy(&cat.stdout.read_all(100).await?).into_owned())
///     }
/// }
/// # drupe_extension_api::abilities!(Echo: Tool);
///
/// block_on(async {
///     let echo = Harness::<Echo>::start(json!({})).await?;
///     echo.host().answer_open_process("cat", Ok(FakeProcess::ending(0).answers(|input| input.to_vec())));
///     assert_eq!(echo.call("echo_cat", json!({})).await, Ok("hello".to_owned()));
///     Ok::<_, Fault>(())
/// })
/// # .expect("it works");
/// ```
impl FakeHost {
    /// Answers the next call that opens a control method which streams and has no answer yet, by these items and the end.
    pub fn answer_open(&self, method: &str, answer: Result<Vec<Value>, Fault>) -> &Self {
        self.record().answers.streams.entry(method.to_owned()).or_default().push_back(answer);
        self
    }

    /// Answers the next opening of a program that has no answer yet. A fault stands for one that could not be started.
    pub fn answer_open_process(&self, program: &str, answer: Result<FakeProcess, Fault>) -> &Self {
        self.record().answers.opened.entry(program.to_owned()).or_default().push_back(answer);
        self
    }

    /// The programs that it opened, those without an answer too.
    pub fn opened_processes(&self) -> Vec<ProcessSpec> {
        self.record().opened.clone()
    }

    /// How many handles it has open.
    pub fn open_handles(&self) -> usize {
        let record = self.record();
        record.feeds.len() + record.inputs.len()
    }

    /// The topics that it reads at the moment.
    pub fn subscriptions(&self) -> Vec<String> {
        self.record().feeds.values().filter_map(|feed| feed.topic.clone()).collect()
    }

    /// Sends a message to those that read the topic.
    pub fn publish(&self, topic: &str, payload: Value) {
        let message =
            BusMessage { topic: topic.to_owned(), payload, correlation_id: None, id: None, skipped: 0 };
        // A message is plain data; it always has a form in JSON.
        let item = serde_json::to_value(message).unwrap_or_default();
        self.feed_topic(topic, |feed| {
            if let (Ready::Items(items), false) = (&mut feed.ready, feed.ended) {
                items.push_back(item.clone());
            }
        });
    }

    /// Ends the topic for those that read it.
    pub fn end_topic(&self, topic: &str) {
        self.feed_topic(topic, |feed| feed.ended = true);
    }

    fn feed_topic(&self, topic: &str, mut change: impl FnMut(&mut Feed)) {
        let mut woken = Vec::new();
        for feed in self.record().feeds.values_mut().filter(|feed| feed.topic.as_deref() == Some(topic)) {
            change(feed);
            woken.extend(feed.waker.take());
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// What comes next from a handle; waits for it.
    pub(super) async fn next(&self, next: HandleNext) -> Result<Vec<u8>, Fault> {
        poll_fn(|cx| {
            let mut record = self.record();
            let Some(feed) = record.feeds.get_mut(&next.handle) else {
                return Poll::Ready(Err(Fault::not_found(format!("there is no handle {}", next.handle))));
            };
            match feed.take(&next) {
                Some(given) => Poll::Ready(given),
                None => {
                    feed.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    pub(super) fn put(&self, payload: &[u8]) -> Result<(), Fault> {
        let (handle, content) = read_put(payload).ok_or_else(|| Fault::invalid("no handle is named"))?;
        let waker = self.record().put(handle, content)?;
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }

    pub(super) fn close_handle(&self, handle: u64) {
        let woken = self.record().close(handle);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Feed {
    fn of(ready: Ready, ended: bool) -> Self {
        Self { topic: None, ready, ended, waker: None }
    }

    /// What is there, within the credit; none where it is to be waited for.
    fn take(&mut self, next: &HandleNext) -> Option<Result<Vec<u8>, Fault>> {
        let empty = match &self.ready {
            Ready::Items(items) => items.is_empty(),
            Ready::Bytes(bytes) => bytes.is_empty(),
        };
        if empty && !self.ended {
            return None;
        }
        Some(match &mut self.ready {
            Ready::Bytes(bytes) => {
                let count = bytes.len().min(next.bytes as usize);
                Ok(bytes.drain(..count).collect())
            }
            Ready::Items(items) => {
                let count = items.len().min(next.credit as usize);
                let ended = self.ended && count == items.len();
                let items = items.drain(..count).map(|item| to_raw_value(&item)).collect::<Result<_, _>>();
                items.and_then(|items| serde_json::to_vec(&HandleItems { items, ended })).map_err(Fault::from)
            }
        })
    }
}

impl Record {
    pub(super) fn subscribe(&mut self, subscribe: Subscribe) -> u64 {
        let feed = Feed { topic: Some(subscribe.topic), ..Feed::of(Ready::Items(VecDeque::new()), false) };
        self.feed(feed)
    }

    pub(super) fn open_stream(&mut self, call: &ControlCall) -> Result<u64, Fault> {
        let params = serde_json::from_str(call.params.get())?;
        self.control.push((call.method.clone(), params));
        let items = answer(&mut self.answers.streams, &call.method, "answer_open")??;
        Ok(self.feed(Feed::of(Ready::Items(items.into()), true)))
    }

    pub(super) fn open_process(&mut self, spec: ProcessSpec) -> Result<OpenedProcess, Fault> {
        self.opened.push(spec.clone());
        let played = answer(&mut self.answers.opened, &spec.program, "answer_open_process")??;
        let goes_on = played.answers.is_some();
        let stdout = self.feed(Feed::of(Ready::Bytes(played.stdout.into()), !goes_on));
        let stderr = self.feed(Feed::of(Ready::Bytes(played.stderr.into()), !goes_on));
        let how = serde_json::to_value(played.exit)?;
        let told = if goes_on { VecDeque::new() } else { [how.clone()].into() };
        let exit = self.feed(Feed::of(Ready::Items(told), !goes_on));
        let stdin = self.number();
        let answers = played.answers.unwrap_or_else(|| Box::new(|_| Vec::new()));
        self.inputs.insert(stdin, Input { answers, stdout, stderr, exit, how });
        Ok(OpenedProcess { exit, stdin, stdout, stderr })
    }

    fn feed(&mut self, feed: Feed) -> u64 {
        let number = self.number();
        self.feeds.insert(number, feed);
        number
    }

    fn put(&mut self, handle: u64, content: &[u8]) -> Result<Option<Waker>, Fault> {
        let input = self.inputs.get_mut(&handle);
        let input = input.ok_or_else(|| Fault::not_found(format!("there is no handle {handle}")))?;
        let said = (input.answers)(content);
        let Some(feed) = self.feeds.get_mut(&input.stdout) else { return Ok(None) };
        if let Ready::Bytes(bytes) = &mut feed.ready {
            bytes.extend(said);
        }
        Ok(feed.waker.take())
    }

    fn close(&mut self, handle: u64) -> Vec<Waker> {
        self.feeds.remove(&handle);
        let Some(Input { stdout, stderr, exit, how, .. }) = self.inputs.remove(&handle) else {
            return Vec::new();
        };
        let mut woken = Vec::new();
        for number in [stdout, stderr, exit] {
            let Some(feed) = self.feeds.get_mut(&number) else { continue };
            if let (Ready::Items(items), false) = (&mut feed.ready, feed.ended) {
                items.push_back(how.clone());
            }
            feed.ended = true;
            woken.extend(feed.waker.take());
        }
        woken
    }
}
