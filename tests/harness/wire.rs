//! What a model server does that is not well, as it looks on the wire.

use std::io::{Read, Write};

use serde_json::json;

/// One way of not answering.
pub enum Wire {
    /// A status that is no success, with a text of an error.
    Status(u16, &'static str),
    /// The beginning of an answer, then the end of the connection.
    Cut(&'static str),
    /// The beginning of an answer, then nothing until the client goes.
    Stall(&'static str),
    /// An event that is no JSON.
    Malformed,
}

impl Wire {
    /// Does it. The connection is of no use afterwards.
    pub fn play(&self, stream: &mut (impl Read + Write)) -> std::io::Result<()> {
        match self {
            Self::Status(code, message) => {
                let body = json!({"error": {"message": message, "type": "test", "code": null}}).to_string();
                write!(
                    stream,
                    "HTTP/1.1 {code} Test\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )?;
                stream.flush()
            }
            Self::Cut(text) => begin(stream, text),
            Self::Stall(text) => {
                begin(stream, text)?;
                // Ends when the client has gone; what it may still say does not matter.
                let _ = std::io::copy(stream, &mut std::io::sink());
                Ok(())
            }
            Self::Malformed => {
                head(stream)?;
                event(stream, "{\"choices\": [{\"delta\": {\"content\": \"hal")?;
                write!(stream, "0\r\n\r\n")?;
                stream.flush()
            }
        }
    }
}

fn begin(stream: &mut impl Write, text: &str) -> std::io::Result<()> {
    head(stream)?;
    let chunk = json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "test",
                       "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": null}]});
    event(stream, &chunk.to_string())?;
    stream.flush()
}

fn head(stream: &mut impl Write) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
}

fn event(stream: &mut impl Write, data: &str) -> std::io::Result<()> {
    let data = format!("data: {data}\n\n");
    write!(stream, "{:x}\r\n{data}\r\n", data.len())
}
