//! A connection with an editor: what comes in is answered beside each other, what goes out is one line after the other.
//!
//! All of its work is one future, so that nothing of it is left when the editor goes.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use drupe_extension_api::{Fault, SessionId};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::{Semaphore, mpsc, oneshot},
};
use uuid::Uuid;

use crate::{
    daemon::BearersDaemon,
    methods,
    rpc::{self, INVALID_REQUEST, RpcError, RpcLines, RpcMessage},
    session::OpenSession,
};

/// Requests of an editor at the same time; a person has a few.
const MOST_REQUESTS: usize = 64;

/// Sessions that an editor may have open.
pub const MOST_SESSIONS: usize = 64;

/// Lines that wait to be written, before what makes them waits.
const WAITING_LINES: usize = 256;

/// How long requests have to be answered once an editor says nothing more.
const GRACE: Duration = Duration::from_secs(2);

/// Work of a connection. There are as many as there are requests, sessions and questions, which are bounded.
pub type Work = BoxFuture<'static, ()>;

pub struct EditorConnection {
    pub daemon: BearersDaemon,
    /// By what prompts are known that are repeated over another connection.
    pub key: String,
    pub sessions: Mutex<HashMap<String, Arc<OpenSession>>>,
    /// Calls that the editor is asked about, with the session and the request of each.
    pub questions: Mutex<HashMap<String, (SessionId, String)>>,
    /// Whether the editor shows notices.
    pub notices: AtomicBool,
    /// Which prompts are taken back.
    prompts: Mutex<Vec<(String, Weak<AtomicBool>)>>,
    out: mpsc::Sender<String>,
    work: mpsc::UnboundedSender<Work>,
    /// Requests of ours that wait for their answers.
    asked: Mutex<HashMap<String, oneshot::Sender<Result<Value, Value>>>>,
    name: String,
    next: AtomicU64,
    room: Arc<Semaphore>,
}

impl EditorConnection {
    pub async fn serve(
        daemon: BearersDaemon,
        key: Option<String>,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin,
    ) {
        let (reader, writer) = tokio::io::split(stream);
        let (out, lines) = mpsc::channel(WAITING_LINES);
        let (work, arriving) = mpsc::unbounded_channel();
        let name = Uuid::now_v7().simple().to_string();
        let connection = Arc::new(Self {
            daemon,
            key: key.unwrap_or_else(|| name.clone()),
            sessions: Mutex::default(),
            questions: Mutex::default(),
            notices: AtomicBool::new(false),
            prompts: Mutex::default(),
            out,
            work,
            asked: Mutex::default(),
            name,
            next: AtomicU64::new(1),
            room: Arc::new(Semaphore::new(MOST_REQUESTS)),
        });
        tokio::select! {
            () = connection.listen(RpcLines::new(BufReader::new(reader))) => {}
            () = write(writer, lines) => {}
            () = carry_out(arriving) => {}
        }
    }

    async fn listen<R: AsyncRead + Unpin>(self: &Arc<Self>, mut lines: RpcLines<BufReader<R>>) {
        while let Ok(Some(line)) = lines.next().await {
            match line.map_err(|error| (Value::Null, error)).and_then(|line| rpc::parse(&line)) {
                Ok(heard) => self.hear(heard).await,
                Err((id, error)) => self.reply(&id, Err(error)).await,
            }
        }
        // What was asked is answered, as long as that does not take long: a turn goes on without its editor.
        let all = u32::try_from(MOST_REQUESTS).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(GRACE, self.room.acquire_many(all)).await;
        // An empty line is the last: whoever writes ends with it.
        let _ = self.out.send(String::new()).await;
        std::future::pending().await
    }

    async fn hear(self: &Arc<Self>, heard: RpcMessage) {
        match heard {
            RpcMessage::Request { id, method, params } => self.answer(id, method, params).await,
            RpcMessage::Notification { method, params } => {
                if method == "session/cancel" {
                    self.cancel(params["sessionId"].as_str().unwrap_or_default());
                }
            }
            RpcMessage::Answer { id, result } => {
                let asked = id.as_str().and_then(|id| self.asked.lock().remove(id));
                if let Some(asked) = asked {
                    let _ = asked.send(result);
                }
            }
        }
    }

    async fn answer(self: &Arc<Self>, id: Value, method: String, params: Value) {
        let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else {
            let busy = format!("there are {MOST_REQUESTS} requests already; wait for the answers to some");
            return self.reply(&id, Err(RpcError::new(INVALID_REQUEST, busy))).await;
        };
        // Before the next line is read, which may take it back.
        let taken_back = (method == "session/prompt").then(|| self.prompted(&params));
        let connection = Arc::clone(self);
        self.begin(Box::pin(async move {
            let _place = place;
            let answer = methods::call(&connection, &method, params, &id, taken_back).await;
            let (result, then) = match answer {
                Ok(answered) => (Ok(answered.result), answered.then),
                Err(error) => (Err(error), None),
            };
            connection.reply(&id, result).await;
            if let Some(then) = then {
                connection.begin(then);
            }
        }));
    }

    fn prompted(&self, params: &Value) -> Arc<AtomicBool> {
        let taken_back = Arc::new(AtomicBool::new(false));
        let mut prompts = self.prompts.lock();
        prompts.retain(|(_, prompt)| prompt.strong_count() > 0);
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        prompts.push((session, Arc::downgrade(&taken_back)));
        taken_back
    }

    /// Stops what an editor waits for in a session.
    pub fn cancel(self: &Arc<Self>, session: &str) {
        for (_, prompt) in self.prompts.lock().iter().filter(|(of, _)| of == session) {
            if let Some(prompt) = prompt.upgrade() {
                prompt.store(true, Ordering::Relaxed);
            }
        }
        let open = self.sessions.lock().get(session).cloned();
        for turn in open.map(|open| open.turns()).unwrap_or_default() {
            let connection = Arc::clone(self);
            self.begin(Box::pin(async move {
                if let Err(fault) = connection.daemon.stop(turn).await {
                    connection.warn(&fault);
                }
            }));
        }
    }

    /// Does something beside everything else.
    pub fn begin(&self, work: Work) {
        // Where nobody takes it, the connection has ended.
        let _ = self.work.send(work);
    }

    pub fn warn(&self, fault: &Fault) {
        self.daemon.host.warn(format!("an editor's session: {fault}"));
    }

    async fn reply(&self, id: &Value, result: Result<Value, RpcError>) {
        self.send(&match result {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error.to_json() }),
        })
        .await;
    }

    pub async fn notify(&self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    pub async fn update(&self, session: &str, update: Value) {
        self.notify("session/update", json!({ "sessionId": session, "update": update })).await;
    }

    /// Tells the user something: editors that show no notices show it as a thought.
    pub async fn notice(&self, session: &str, severity: &str, title: &str) {
        let update = if self.notices.load(Ordering::Relaxed) {
            json!({ "sessionUpdate": "notice", "severity": severity, "title": title })
        } else {
            let id = format!("notice-{}", self.number());
            crate::updates::chunk("agent_thought_chunk", &format!("{title}\n"), &id)
        };
        self.update(session, update).await;
    }

    /// A name that no request over another connection has.
    pub fn name_request(&self) -> String {
        format!("{}-{}", self.name, self.number())
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Asks the editor; none where it does not answer any more.
    pub async fn ask(&self, id: &str, method: &str, params: Value) -> Option<Result<Value, Value>> {
        let (answer, answered) = oneshot::channel();
        self.asked.lock().insert(id.to_owned(), answer);
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        answered.await.ok()
    }

    /// Takes a request of ours back.
    pub async fn take_back(&self, id: &str) {
        if self.asked.lock().remove(id).is_some() {
            self.notify("$/cancel_request", json!({ "requestId": id })).await;
        }
    }

    async fn send(&self, message: &Value) {
        let _ = self.out.send(message.to_string()).await;
    }
}

async fn write(mut writer: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<String>) {
    while let Some(mut line) = lines.recv().await {
        if line.is_empty() {
            let _ = writer.shutdown().await;
            return;
        }
        line.push('\n');
        // An editor that has gone is seen where it is read.
        if writer.write_all(line.as_bytes()).await.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
}

async fn carry_out(mut arriving: mpsc::UnboundedReceiver<Work>) {
    let mut at_work = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(work) = arriving.recv() => at_work.push(work),
            Some(()) = at_work.next(), if !at_work.is_empty() => {}
        }
    }
}
