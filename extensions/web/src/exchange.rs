//! One request and its response: bounded in the size of the head and of the body. It follows nothing and waits for nobody;
//! the time that it may take is its caller's.

use std::{io::Read as _, pin::pin};

use drupe_extension_api::{Fault, FaultCode};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use url::Url;

use crate::network::{Dialer, Trust};

/// The head of a response, in bytes and in headers; the same as common servers bound a request's by.
const HEAD_BYTES: usize = 64 << 10;
const HEADERS: usize = 100;

/// Who asks, as hosts see it in their logs.
pub const AGENT: &str = concat!("drupe/", env!("CARGO_PKG_VERSION"), " (web extension)");

/// What came back, as it was sent.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Empty where the head was enough: see [`BodyWanted`].
    pub body: Vec<u8>,
}

/// Whether a body is to be read, by the head before it.
pub type BodyWanted<'a> = &'a (dyn Fn(StatusCode, &HeaderMap) -> Result<bool, Fault> + Sync);

impl Reply {
    /// A header as text; none where it is no ASCII.
    pub fn header(&self, name: impl hyper::header::AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The type of the body without its parameters, in lower case.
    pub fn kind(&self) -> String {
        kind(&self.headers)
    }
}

pub fn kind(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Asks once. `request` has no host, agent and encodings yet: these are set here. Of the body, so many bytes are read;
/// a longer one is a fault.
pub async fn ask(
    dialer: &Dialer,
    url: &Url,
    trust: Trust,
    mut request: Request<Full<Bytes>>,
    most: usize,
    wanted: BodyWanted<'_>,
) -> Result<Reply, Fault> {
    let stream = dialer.open(url, trust).await?;
    let host = url.host_str().unwrap_or_default();
    let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let headers = request.headers_mut();
    headers.insert(HOST, host.parse().map_err(|_| Fault::invalid("the host is no text of a header"))?);
    headers.insert(USER_AGENT, hyper::header::HeaderValue::from_static(AGENT));
    headers.insert(ACCEPT_ENCODING, hyper::header::HeaderValue::from_static("gzip, deflate"));
    let broken = |error: hyper::Error| {
        Fault::new(
            FaultCode::Other,
            format!("the exchange with `{}` broke: {}", url.authority(), with_cause(&error)),
        )
    };
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .handshake::<_, Full<Bytes>>(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        body(response, most, wanted).await
    };
    let (mut exchange, mut connection) = (pin!(exchange), pin!(connection));
    tokio::select! {
        biased;
        done = &mut exchange => done,
        // Its error is told by the exchange as well, which knows what was being done.
        _ = &mut connection => exchange.await,
    }
}

fn with_cause(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

async fn body(response: Response<Incoming>, most: usize, wanted: BodyWanted<'_>) -> Result<Reply, Fault> {
    let (head, mut body) = response.into_parts();
    if !wanted(head.status, &head.headers)? {
        return Ok(Reply { status: head.status, headers: head.headers, body: Vec::new() });
    }
    let said = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if said.is_some_and(|said| said > most as u64) {
        return Err(too_long(most));
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|e| Fault::new(FaultCode::Other, format!("the body broke off: {}", with_cause(&e))))?;
        // What follows a body, its trailers, is of no use here.
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > most {
            return Err(too_long(most));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Reply { status: head.status, headers: head.headers, body: bytes })
}

fn too_long(most: usize) -> Fault {
    Fault::new(FaultCode::Other, format!("the body is longer than the limit of {} KiB", most >> 10))
}

/// The body as it was before it was compressed, no longer than it may be. Blocks.
pub fn decompress(reply: &mut Reply, most: usize) -> Result<(), Fault> {
    let encodings = reply.header(CONTENT_ENCODING).unwrap_or_default().to_ascii_lowercase();
    let mut encodings: Vec<&str> =
        encodings.split(',').map(str::trim).filter(|name| !matches!(*name, "" | "identity")).collect();
    if encodings.len() > 2 {
        return Err(Fault::new(FaultCode::Other, "the body is compressed more than twice"));
    }
    // The last one was applied last.
    while let Some(encoding) = encodings.pop() {
        let packed = std::mem::take(&mut reply.body);
        let at_once = most as u64 + 1;
        let mut unpacked = Vec::new();
        let done = match encoding {
            "gzip" | "x-gzip" => MultiGzDecoder::new(&*packed).take(at_once).read_to_end(&mut unpacked),
            // By the standard with a frame of zlib's; some servers leave it out.
            "deflate" if packed.first().is_some_and(|first| first & 0x0f == 8) => {
                ZlibDecoder::new(&*packed).take(at_once).read_to_end(&mut unpacked)
            }
            "deflate" => DeflateDecoder::new(&*packed).take(at_once).read_to_end(&mut unpacked),
            other => {
                let message = format!("the body is compressed by `{}`", crate::clean::line(other, 40));
                return Err(Fault::new(FaultCode::Unsupported, message));
            }
        };
        done.map_err(|e| Fault::new(FaultCode::Other, format!("the body could not be decompressed: {e}")))?;
        if unpacked.len() > most {
            return Err(too_long(most));
        }
        reply.body = unpacked;
    }
    Ok(())
}
