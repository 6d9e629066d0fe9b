//! A connection with a line a message, as the stdio transport has it:
//! <https://modelcontextprotocol.io/specification/2025-11-25/basic/transports>, read on 2026-11-24.

use futures_util::StreamExt;
use rmcp::ErrorData;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_util::{
    bytes::BytesMut,
    codec::{Decoder, FramedRead, LinesCodec, LinesCodecError},
};

use crate::{
    MessageConnection, NotTaken,
    connection::{MessagesIn, answer},
};

impl MessageConnection {
    /// Passes messages on until one side is gone. A line that is longer than that many bytes is answered with an error.
    pub async fn over_lines<S: AsyncRead + AsyncWrite>(self, stream: S, longest: usize) {
        let Self { inbox, mut outbox } = self;
        let (reader, mut writer) = tokio::io::split(stream);
        let mut lines = FramedRead::new(reader, MessageLines(LinesCodec::new_with_max_length(longest)));
        loop {
            let next = tokio::select! {
                line = lines.next() => match line {
                    Some(Ok(line)) => match take(&inbox, line).await {
                        Ok(()) => continue,
                        Err(NotTaken::Answered(answer)) => serde_json::to_string(&answer).ok(),
                        Err(NotTaken::Gone) => None,
                    },
                    Some(Err(_)) | None => None,
                },
                // There is no message for why it is over. A program that connects again learns it.
                next = outbox.next() => next.ok().flatten(),
            };
            let Some(mut message) = next else { return };
            message.push('\n');
            if writer.write_all(message.as_bytes()).await.is_err() || writer.flush().await.is_err() {
                return;
            }
        }
    }
}

async fn take(inbox: &MessagesIn, line: Result<String, LinesCodecError>) -> Result<(), NotTaken> {
    match line {
        Ok(line) if line.trim().is_empty() => Ok(()),
        Ok(line) => inbox.take(line.as_bytes()).await,
        Err(error) => {
            Err(answer(ErrorData::parse_error(format!("a line was not read: {error}"), None), None))
        }
    }
}

/// MessageLines, or what is wrong with one. The library ends at the first error; here those behind it are read all the same.
struct MessageLines(LinesCodec);

impl Decoder for MessageLines {
    type Item = Result<String, LinesCodecError>;
    type Error = std::io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Self::Item>, Self::Error> {
        Ok(self.0.decode(bytes).transpose())
    }

    fn decode_eof(&mut self, bytes: &mut BytesMut) -> Result<Option<Self::Item>, Self::Error> {
        Ok(self.0.decode_eof(bytes).transpose())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_no_line_is_told_and_those_behind_it_are_read() {
        let bytes: &[u8] = b"ab\nabcdefgh\n\xff\xfe\nc";
        let lines = FramedRead::new(bytes, MessageLines(LinesCodec::new_with_max_length(4)));
        let lines: Vec<Option<String>> = lines.map(|line| line.expect("it is read").ok()).collect().await;
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(lines, [some("ab"), None, None, some("c")]);
    }
}
