//! A form with files as the body of a request (`multipart/form-data`, RFC 7578), read from the disk as it goes out.

use std::{
    collections::VecDeque,
    fs::File,
    hash::{BuildHasher as _, RandomState},
    io::{self, Read as _},
};

use drupe_extension_api::{Fault, wire::FormPart};
use futures_util::stream;
use reqwest::Body;

use crate::{LONGEST_REQUEST, MOST_PARTS};

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

/// A file of a form, as the kernel has it.
pub struct FormFile {
    pub file: File,
    /// How long it is: no more and no less is sent.
    pub bytes: u64,
    pub name: String,
    pub media_type: String,
}

/// A form, with the length that is said before it.
pub(crate) struct MultipartForm {
    pub content_type: String,
    pub length: u64,
    pub body: Body,
}

enum Piece {
    Text(Vec<u8>),
    File(File, u64),
}

impl MultipartForm {
    /// Of parts, of which those that are files have these in their order.
    pub(crate) fn of(parts: &[FormPart], files: Vec<FormFile>) -> Result<Self, Fault> {
        if parts.len() > MOST_PARTS {
            return Err(Fault::invalid(format!("a form has at most {MOST_PARTS} parts")));
        }
        let boundary = boundary();
        let (mut pieces, mut length, mut files) = (VecDeque::new(), 0, files.into_iter());
        let mut add = |piece: Piece| {
            length += match &piece {
                Piece::Text(text) => text.len() as u64,
                Piece::File(_, bytes) => *bytes,
            };
            pieces.push_back(piece);
        };
        let mut texts = 0;
        for part in parts {
            match part {
                FormPart::Text { name, value } => {
                    texts += value.len();
                    if texts > LONGEST_REQUEST {
                        let message =
                            format!("the texts of the form are longer than {LONGEST_REQUEST} bytes");
                        return Err(Fault::invalid(message));
                    }
                    let head =
                        format!("--{boundary}\r\ncontent-disposition: form-data; name=\"{}\"", quoted(name));
                    add(Piece::Text(format!("{head}\r\n\r\n{value}\r\n").into_bytes()));
                }
                FormPart::File { name, .. } => {
                    let FormFile { file, bytes, name: own, media_type } =
                        files.next().ok_or_else(|| Fault::internal("a file of a form is missing"))?;
                    let head = format!(
                        "--{boundary}\r\ncontent-disposition: form-data; name=\"{}\"; filename=\"{}\"\r\ncontent-type: {media_type}\r\n\r\n",
                        quoted(name),
                        quoted(&own)
                    );
                    add(Piece::Text(head.into_bytes()));
                    add(Piece::File(file, bytes));
                    add(Piece::Text(b"\r\n".to_vec()));
                }
            }
        }
        add(Piece::Text(format!("--{boundary}--\r\n").into_bytes()));
        let body = Body::wrap_stream(stream::unfold(pieces, |mut pieces| async move {
            let piece = next(&mut pieces).await?;
            Some((piece, pieces))
        }));
        Ok(Self { content_type: format!("multipart/form-data; boundary={boundary}"), length, body })
    }
}

/// What of a form goes out next, at most a piece of it.
async fn next(pieces: &mut VecDeque<Piece>) -> Option<io::Result<Vec<u8>>> {
    match pieces.pop_front()? {
        Piece::Text(text) => Some(Ok(text)),
        Piece::File(_, 0) => Some(Ok(Vec::new())),
        Piece::File(file, left) => {
            let reading = tokio::task::spawn_blocking(move || read(file, left)).await;
            match reading.unwrap_or_else(|error| Err(io::Error::other(error))) {
                Ok((content, file)) => {
                    pieces.push_front(Piece::File(file, left - content.len() as u64));
                    Some(Ok(content))
                }
                Err(error) => Some(Err(error)),
            }
        }
    }
}

fn read(file: File, left: u64) -> io::Result<(Vec<u8>, File)> {
    let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
    let mut content = vec![0; most];
    let length = (&file).read(&mut content)?;
    if length == 0 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    content.truncate(length);
    Ok((content, file))
}

/// A name as a head has it: what would end it is written as browsers write it.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

/// Nobody who wrote a part can have known it.
fn boundary() -> String {
    let random = || RandomState::new().hash_one(0_u8);
    format!("drupe-{:016x}{:016x}", random(), random())
}
