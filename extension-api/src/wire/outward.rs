//! Payloads of requests that the kernel sends for an extension, with secrets that it fills in.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::host;

/// A request over HTTP. In the values of headers `${NAME}` stands for a secret that `bound_secrets` of the manifest binds to its host, and
/// `$${` for a plain `${`; in the path and the query of the address and in the body only where the request says so, since a text of somebody else's may
/// stand there, which must not become a way to the secret. The value is written as the place wants it: escaped in the path, in the query, in a body of
/// the type `application/x-www-form-urlencoded` and in one of a type of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutwardRequest {
    /// `GET`, `HEAD`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// With `https://`; with `http://` where it leads to this machine.
    pub url: String,
    /// At most 64, each a name with a value, and of 32 KiB with the address, filled in.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// At most 1 MiB, filled in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The parts of a form (`multipart/form-data`) in place of a body, at most 32. Nothing is filled into them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub form: Vec<FormPart>,
    /// Whether secrets are filled into the path.
    #[serde(default)]
    pub fill_path: bool,
    /// Whether secrets are filled into the query.
    #[serde(default)]
    pub fill_query: bool,
    /// Whether secrets are filled into the body.
    #[serde(default)]
    pub fill_body: bool,
    /// Time for the whole answer, in milliseconds; 30,000 without it, and what is above 120,000 counts as that.
    #[serde(default = "half_a_minute")]
    pub timeout_ms: u64,
}

/// A part of a form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub enum FormPart {
    Text {
        name: String,
        value: String,
    },
    /// The [file](super::OutboundFile) of a message that this channel is sending at this moment, by its delivery. The kernel has its bytes
    /// and its name.
    File {
        name: String,
        delivery: String,
    },
}

fn half_a_minute() -> u64 {
    30_000
}

impl OutwardRequest {
    /// A request without headers and body.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            body: None,
            form: Vec::new(),
            fill_path: false,
            fill_query: false,
            fill_body: false,
            timeout_ms: half_a_minute(),
        }
    }

    /// The same with a further header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same with secrets in its path: leave that where a part of the path is a text of somebody else's.
    #[must_use]
    pub fn filling_path(mut self) -> Self {
        self.fill_path = true;
        self
    }

    /// The same with secrets in its query.
    #[must_use]
    pub fn filling_query(mut self) -> Self {
        self.fill_query = true;
        self
    }

    /// The same with secrets in its body.
    #[must_use]
    pub fn filling_body(mut self) -> Self {
        self.fill_body = true;
        self
    }

    /// The same with a form in place of a body.
    #[must_use]
    pub fn form(mut self, parts: Vec<FormPart>) -> Self {
        self.form = parts;
        self
    }

    /// The same with a body.
    #[must_use]
    pub fn body(mut self, body: impl Into<String>) -> Self {
        self.body = Some(body.into());
        self
    }
}

/// The answer to an [`OutwardRequest`], of whatever status, without the secret: a redirect is not followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutwardResponse {
    pub status: u16,
    /// With names in small letters.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// At most 1 MiB. A longer answer, and one that is no text, is a fault.
    #[serde(default)]
    pub body: String,
}
