//! A form with files as the body of a request (`multipart/form-data`, RFC 7578), read from the disk as it goes out.

use std::{
    fmt::Write as _,
    fs::File,
    hash::{BuildHasher as _, RandomState},
    io::{self, Read as _},
};

use drupe_extension_api::{
    Fault,
    wire::{FormPart, OutboundFile},
};
use futures_util::{
    Stream, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use reqwest::Body;

use crate::{LONGEST_REQUEST, MOST_PARTS};

/// Bytes that are read at once.
const PIECE: u64 = 64 << 10;

/// A file of a form, as the kernel has it: no more and no less is sent than `about` says.
pub struct FormFile {
    pub file: File,
    pub about: OutboundFile,
}

/// The file of a delivery, where there is one.
pub type OpenedFile<'f> = BoxFuture<'f, Result<FormFile, Fault>>;

/// A form, with the length that is said before it.
pub(crate) struct MultipartForm {
    pub content_type: String,
    pub length: u64,
    pub body: Body,
}

impl MultipartForm {
    /// Of parts; `file` gives the file of a delivery.
    pub(crate) async fn of<'f>(
        parts: &[FormPart],
        file: impl Fn(String) -> OpenedFile<'f>,
    ) -> Result<Self, Fault> {
        if parts.len() > MOST_PARTS {
            return Err(Fault::invalid(format!("a form has at most {MOST_PARTS} parts")));
        }
        // Nobody who wrote a part can have known it.
        let random = || RandomState::new().hash_one(0_u8);
        let boundary = format!("drupe-{:016x}{:016x}", random(), random());
        let (mut pieces, mut length): (Vec<BoxStream<'static, _>>, u64) = (Vec::new(), 0);
        let (mut text, mut values) = (String::new(), 0);
        for part in parts {
            let (FormPart::Text { name, .. } | FormPart::File { name, .. }) = part;
            let name = quoted(name);
            let _ = write!(text, "--{boundary}\r\ncontent-disposition: form-data; name=\"{name}\"");
            match part {
                FormPart::Text { value, .. } => {
                    values += value.len();
                    let _ = write!(text, "\r\n\r\n{value}\r\n");
                }
                FormPart::File { delivery, .. } => {
                    let FormFile { file, about: OutboundFile { name, bytes, media_type, .. } } =
                        file(delivery.clone()).await?;
                    let name = quoted(&name);
                    let _ = write!(text, "; filename=\"{name}\"\r\ncontent-type: {media_type}\r\n\r\n");
                    length += text.len() as u64 + bytes;
                    pieces.push(once(std::mem::replace(&mut text, "\r\n".to_owned())).boxed());
                    pieces.push(content(file, bytes).boxed());
                }
            }
            if values > LONGEST_REQUEST {
                let message = format!("the texts of the form are longer than {LONGEST_REQUEST} bytes");
                return Err(Fault::invalid(message));
            }
        }
        let _ = write!(text, "--{boundary}--\r\n");
        length += text.len() as u64;
        pieces.push(once(text).boxed());
        let body = Body::wrap_stream(stream::iter(pieces).flatten());
        Ok(Self { content_type: format!("multipart/form-data; boundary={boundary}"), length, body })
    }
}

fn once(text: String) -> impl Stream<Item = io::Result<Vec<u8>>> {
    stream::once(std::future::ready(Ok(text.into_bytes())))
}

/// So many bytes of a file, in pieces. One that is shorter ends in an error.
fn content(file: File, bytes: u64) -> impl Stream<Item = io::Result<Vec<u8>>> {
    stream::try_unfold((file, bytes), |(file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let reading = tokio::task::spawn_blocking(move || {
            let mut piece = Vec::new();
            (&file).take(left.min(PIECE)).read_to_end(&mut piece)?;
            Ok::<_, io::Error>((piece, file))
        });
        let (piece, file) = reading.await.map_err(io::Error::other)??;
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let left = left - piece.len() as u64;
        Ok(Some((piece, (file, left))))
    })
}

/// A name as a head has it: what would end it is written as browsers write it.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}
