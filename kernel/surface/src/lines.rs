//! Requests and replies as lines of JSON. In memory parameters and results are text already: what a method reads or
//! gives is parsed and written once.

use std::sync::Arc;

use drupe_extension_api::{Fault, control::MAX_REQUEST};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    sync::mpsc,
};

/// Replies that wait for a slow reader before requests of the connection wait too.
pub const REPLIES: usize = 256;

/// One question; its form is that of [`drupe_extension_api::control::Request`].
#[derive(Deserialize)]
pub struct Request {
    /// The client's number for it.
    pub id: u64,
    /// What is asked.
    pub method: String,
    #[serde(default)]
    params: Option<Box<RawValue>>,
}

impl Request {
    /// Its parameters; `null` for none.
    pub fn params(&self) -> &RawValue {
        self.params.as_deref().unwrap_or(RawValue::NULL)
    }
}

/// One answer; its form is that of [`drupe_extension_api::control::Reply`].
#[derive(Serialize)]
pub struct Reply {
    /// The request's number.
    pub id: u64,
    /// What the answer is.
    #[serde(flatten)]
    pub body: ReplyBody,
}

/// What an answer is.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyBody {
    /// Done.
    Result(Box<RawValue>),
    /// Not done.
    Error(Fault),
    /// One of many, as the text that it is; shared with all who watch. Clients know it as an `event`.
    #[serde(rename = "event")]
    Item(Arc<RawValue>),
}

/// The requests of a connection.
pub struct Lines {
    read: BufReader<OwnedReadHalf>,
    line: Vec<u8>,
}

impl Lines {
    /// Those that `read` gives.
    pub fn new(read: OwnedReadHalf) -> Self {
        Self { read: BufReader::new(read), line: Vec::new() }
    }

    /// The next request; none at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<Request>, Fault> {
        self.line.clear();
        let mut bounded = (&mut self.read).take(MAX_REQUEST as u64 + 1);
        let read = bounded.read_until(b'\n', &mut self.line).await.map_err(Fault::from)?;
        if read == 0 {
            return Ok(None);
        }
        if self.line.len() > MAX_REQUEST {
            return Err(Fault::invalid(format!("a request has at most {MAX_REQUEST} bytes")));
        }
        serde_json::from_slice(&self.line)
            .map(Some)
            .map_err(|error| Fault::invalid(format!("a request is one line of JSON: {error}")))
    }
}

/// Writes replies, those that wait together in one write.
pub async fn write_all(mut write: OwnedWriteHalf, mut waiting: mpsc::Receiver<Reply>) {
    let mut buffer = Vec::new();
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, REPLIES).await > 0 {
        buffer.clear();
        for reply in batch.drain(..) {
            // A reply is plain data; it always has a form in JSON.
            if serde_json::to_writer(&mut buffer, &reply).is_ok() {
                buffer.push(b'\n');
            }
        }
        if write.write_all(&buffer).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use drupe_extension_api::control;

    use super::*;

    #[test]
    fn lines_have_the_form_that_the_contract_gives_them() {
        let text = r#"{"id":7,"method":"status","params":{"a":[1]}}"#;
        let (ours, theirs): (Request, control::Request) =
            (serde_json::from_str(text).expect("a request"), serde_json::from_str(text).expect("a request"));
        assert_eq!((ours.id, &ours.method), (theirs.id, &theirs.method));
        assert_eq!(ours.params().get(), theirs.params.to_string());
        let bare: Request = serde_json::from_str(r#"{"id":1,"method":"stop"}"#).expect("a request");
        assert_eq!(bare.params().get(), "null");
        let fault = Fault::not_found("x");
        let raw = serde_json::value::to_raw_value(&vec![1]).expect("it has a form");
        let pairs = [
            (ReplyBody::Result(raw), control::ReplyBody::Result(serde_json::json!([1]))),
            (ReplyBody::Error(fault.clone()), control::ReplyBody::Error(fault)),
        ];
        for (ours, theirs) in pairs {
            let ours = serde_json::to_value(Reply { id: 3, body: ours }).expect("it has a form");
            let theirs = serde_json::to_value(control::Reply { id: 3, body: theirs }).expect("it has a form");
            assert_eq!(ours, theirs);
        }
    }
}
