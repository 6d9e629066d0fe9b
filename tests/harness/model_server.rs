//! A model server on loopback that speaks Chat Completions, streaming, over real HTTP.
//!
//! What it answers is decided by a function of the request, so that a test says what the model would do. It keeps every
//! request body, and counts connections.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::{Value, json};

use super::wire::Wire;

/// What the model says to one request.
pub enum Say {
    /// Words.
    Text(String),
    /// Tool calls: names with parameters.
    Call(Vec<(String, Value)>),
    /// Words that the model was not let finish.
    Length(String),
    /// No answer at all.
    Fail(Wire),
}

impl Say {
    /// How long it is.
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Length(text) => text.len(),
            Self::Call(calls) => {
                calls.iter().map(|(name, arguments)| name.len() + arguments.to_string().len()).sum()
            }
            Self::Fail(_) => 0,
        }
    }
}

/// A server; it ends with this value.
pub struct ModelServer {
    address: String,
    requests: Arc<Mutex<Vec<Value>>>,
    connections: Arc<AtomicUsize>,
}

impl ModelServer {
    /// Listens on a free port of loopback. It reports the same few tokens for each request.
    pub fn start(model: impl Fn(&Value) -> Say + Send + Sync + 'static) -> Self {
        Self::listen(model, |_, _| (50, 10))
    }

    /// One that reports a token for each four bytes of the request and of the answer.
    pub fn measuring(model: impl Fn(&Value) -> Say + Send + Sync + 'static) -> Self {
        Self::listen(model, |request, say| (request as u64 / 4, say.bytes() as u64 / 4))
    }

    fn listen(
        model: impl Fn(&Value) -> Say + Send + Sync + 'static,
        tokens: fn(request: usize, say: &Say) -> (u64, u64),
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let (kept, counted) = (Arc::clone(&requests), Arc::clone(&connections));
        let model = Arc::new(model);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let (model, kept) = (Arc::clone(&model), Arc::clone(&kept));
                thread::spawn(move || {
                    let _ = serve(stream, &*model, &kept, tokens);
                });
            }
        });
        Self { address, requests, connections }
    }

    /// A model that calls the tool that the user's message names (`tool {parameters}`), and then repeats its result.
    pub fn obedient() -> Self {
        Self::start(|request| {
            let (role, text) = latest(request);
            let task = text.rsplit_once("\n\nTask:\n").map_or(text.as_str(), |(_, task)| task);
            let call = task.split_once(' ').and_then(|(tool, parameters)| {
                let parameters: Value = serde_json::from_str(parameters).ok()?;
                (role == "user" && parameters.is_object()).then(|| (tool.to_owned(), parameters))
            });
            call.map_or(Say::Text(task.to_owned()), |call| Say::Call(vec![call]))
        })
    }

    /// A configuration whose default model is this server's.
    pub fn config(&self) -> String {
        format!(
            "models:\n  aliases: {{default: local/test}}\n  providers:\n    local:\n      kind: openai_chat\n      base_url: {}\n      api_key: none\n",
            self.address
        )
    }

    /// The same, with a model for vectors, `local/vectors`, whose price is known.
    pub fn config_with_vectors(&self) -> String {
        self.config()
            + "  embedding: local/vectors\n  profiles: {local/vectors: {input_usd: 1000}, local/test: {context_window: 1000000, max_output_tokens: 200000}}\n"
    }

    /// Request bodies so far.
    pub fn requests(&self) -> Vec<Value> {
        self.requests.lock().expect("no test panics while it holds this").clone()
    }

    /// The size of the last one as text, in bytes, for those who made so many that a copy of all takes long.
    pub fn size_of_last(&self) -> usize {
        let kept = self.requests.lock().expect("no test panics while it holds this");
        kept.last().map_or(0, |request| request.to_string().len())
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn serve(
    stream: TcpStream,
    model: &dyn Fn(&Value) -> Say,
    kept: &Mutex<Vec<Value>>,
    tokens: fn(usize, &Say) -> (u64, u64),
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let request: Value = serde_json::from_slice(&body).unwrap_or_default();
        kept.lock().expect("no test panics while it holds this").push(request.clone());
        if let Some(texts) = request["input"].as_array() {
            let answer = vectors(texts).to_string();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
            write!(stream, "{head} {}\r\n\r\n{answer}", answer.len())?;
            continue;
        }
        let say = model(&request);
        if let Say::Fail(wire) = &say {
            return wire.play(&mut stream);
        }
        // In one write: whoever reads the last event has the end of the answer too, however busy the machine is, and can
        // keep the connection.
        let mut answer =
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                .to_vec();
        for event in events(&say, tokens(length, &say)) {
            let data = format!("data: {event}\n\n");
            write!(answer, "{:x}\r\n{data}\r\n", data.len())?;
        }
        answer.extend_from_slice(b"0\r\n\r\n");
        stream.write_all(&answer)?;
    }
}

fn events(say: &Say, (input, output): (u64, u64)) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "test",
               "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        .to_string()
    };
    let mut out = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    match say {
        Say::Text(text) | Say::Length(text) => {
            let letters: Vec<char> = text.chars().collect();
            for part in letters.chunks(7) {
                out.push(chunk(json!({"content": part.iter().collect::<String>()}), Value::Null));
            }
            let whole = matches!(say, Say::Text(_));
            out.push(chunk(json!({}), json!(if whole { "stop" } else { "length" })));
        }
        Say::Fail(_) => {}
        Say::Call(calls) => {
            for (index, (name, arguments)) in calls.iter().enumerate() {
                let function = json!({"name": name, "arguments": ""});
                let call = json!({"index": index, "id": format!("call_{index}"), "type": "function", "function": function});
                out.push(chunk(json!({"tool_calls": [call]}), Value::Null));
                let arguments = arguments.to_string();
                let (left, right) = arguments.split_at(arguments.len() / 2);
                for part in [left, right] {
                    let call = json!({"index": index, "function": {"arguments": part}});
                    out.push(chunk(json!({"tool_calls": [call]}), Value::Null));
                }
            }
            out.push(chunk(json!({}), json!("tool_calls")));
        }
    }
    let usage = json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
    out.push(json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "test", "choices": [], "usage": usage}).to_string());
    out.push("[DONE]".into());
    out
}

/// Words that mean the same, for [`vectors`].
const MEANINGS: [&[&str]; 3] = [&["dog", "puppy", "terrier"], &["car", "vehicle"], &["doctor", "physician"]];

/// Vectors of texts, in the form of OpenAI's `/embeddings`, each a count of words by what they mean. It reports a token for each text.
fn vectors(texts: &[Value]) -> Value {
    let vector = |text: &Value| {
        let text = text.as_str().unwrap_or_default().to_lowercase();
        let count = |words: &&[&str]| words.iter().filter(|word| text.contains(**word)).count() as f64;
        MEANINGS.iter().map(count).chain([0.3]).collect::<Vec<_>>()
    };
    let all = texts.iter().enumerate();
    let data =
        all.map(|(index, text)| json!({"object": "embedding", "index": index, "embedding": vector(text)}));
    let data: Vec<Value> = data.collect();
    json!({"object": "list", "model": "vectors", "data": data, "usage": {"prompt_tokens": texts.len(), "total_tokens": texts.len()}})
}

/// What a model that was asked sees last: the role and text of the latest message.
pub fn latest(request: &Value) -> (String, String) {
    let last = request["messages"].as_array().and_then(|m| m.last()).cloned().unwrap_or_default();
    let field = |name: &str| last[name].as_str().unwrap_or_default().to_owned();
    (field("role"), field("content"))
}

/// The names of the tools that a model was offered.
pub fn offered(request: &Value) -> Vec<String> {
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().filter_map(|t| t["function"]["name"].as_str().map(str::to_owned)).collect()
}
