//! One mail on its way to the server that sends it (SMTP, RFC 5321; read on 2026-11-27), and what became of it.
//!
//! Before its content is sent, a mail surely did not go out. From then on until the server answers nobody knows, and it is never sent again:
//! a second one would be another mail to whoever gets it.

use std::{sync::Arc, time::Duration};

use drupe_extension_api::prelude::*;
use lettre::{
    Address, Message,
    message::{
        Attachment, Body, Mailbox, MultiPart, SinglePart,
        header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue},
    },
    transport::smtp::{
        Error,
        authentication::{Credentials, Mechanism},
        client::AsyncSmtpConnection,
        commands::{Data, Mail, Rcpt},
        extension::{ClientId, Extension, MailBodyParameter, MailParameter},
    },
};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    address::MailAddress,
    network::{CONNECT, Trusted},
    settings::{Encryption, MailAccount},
    thread::one_line,
};

/// The daemon gives a message half a minute, and one with a file two and a half: time until the content is sent, and for that and the answer
/// behind it. In its time the largest file has gone out at two megabits a second.
const BEFORE: Duration = Duration::from_secs(14);
const BEHIND: Duration = Duration::from_secs(14);
const BEHIND_FILE: Duration = Duration::from_secs(120);
const GOOD_BYE: Duration = Duration::from_secs(1);

/// A mail to be sent.
pub struct Letter {
    pub to: MailAddress,
    pub subject: String,
    pub text: String,
    /// The id of the mail, with its brackets.
    pub id: String,
    /// The mails of its thread, the one that it answers last.
    pub references: Vec<String>,
    /// Whether somebody asked for it.
    pub is_answer: bool,
    /// What is attached to it.
    pub file: Option<LetterFile>,
}

/// A file that goes out with a mail.
pub struct LetterFile {
    pub name: String,
    pub media_type: String,
    pub bytes: Vec<u8>,
}

/// What stands in a mail in the place of its file: that would be there three times before it is sent, and goes out coded in parts.
const PLACE: &str = "(file)";
/// What of a file is coded at once, in bytes: whole lines of base64, which have 57 each.
const PART: usize = 57 * 1024;

/// Why a mail did not go out.
#[derive(Debug, PartialEq)]
pub enum PostFailure {
    /// The server takes nothing at the moment.
    Unavailable(String),
    /// The server does not take this one at the moment.
    Later(String),
    /// The server never takes it.
    Refused(String),
    /// It may have gone out or not.
    Doubtful(String),
}

impl PostFailure {
    pub fn into_fault(self) -> Fault {
        match self {
            Self::Unavailable(said) => Fault::new(FaultCode::Unavailable, said),
            Self::Later(said) => Fault::new(FaultCode::Busy, said),
            Self::Refused(said) => Fault::denied(said),
            Self::Doubtful(said) => Fault::new(FaultCode::OutcomeUnknown, said),
        }
    }

    /// What the server says of one mail, before it has its content.
    fn of_mail(error: &Error) -> Self {
        match (error.is_permanent(), error.is_transient()) {
            (true, _) => Self::Refused(said(error)),
            // It closes the connection (RFC 5321, 3.8).
            (_, true) if error.status().is_some_and(|code| code.to_string() == "421") => {
                Self::Unavailable(said(error))
            }
            (_, true) => Self::Later(said(error)),
            _ => Self::Unavailable(said(error)),
        }
    }
}

/// Sends for one account. Clones are the same.
#[derive(Clone)]
pub struct Postman {
    pub account: Arc<MailAccount>,
    pub trusted: Trusted,
}

impl Postman {
    /// Sends a mail, or says what became of it.
    pub async fn post(&self, letter: &Letter) -> Result<(), PostFailure> {
        let refused = |fault: Fault| PostFailure::Refused(fault.to_string());
        let (head, tail) = self.written(letter).map_err(refused)?;
        let file = letter.file.iter().flat_map(|file| file.bytes.chunks(PART).map(coded));
        let content = std::iter::once(head).chain(file).chain(std::iter::once(tail));
        let behind = if letter.file.is_some() { BEHIND_FILE } else { BEHIND };
        let until = Instant::now() + BEFORE;
        let late =
            || PostFailure::Unavailable(format!("`{}` did not answer in time", self.account.smtp.host));
        let mut server = timeout_at(until, self.until_content(letter)).await.map_err(|_| late())??;
        let answer = timeout(behind, server.message_iter(content)).await;
        let posted = match answer {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) if error.is_permanent() => Err(PostFailure::Refused(said(&error))),
            Ok(Err(error)) if error.is_transient() => Err(PostFailure::Later(said(&error))),
            Ok(Err(error)) => {
                Err(PostFailure::Doubtful(format!("the connection ended behind the mail: {}", said(&error))))
            }
            Err(_) => Err(PostFailure::Doubtful(
                "the server did not say in time whether it has the mail".to_owned(),
            )),
        };
        if !server.has_broken() {
            let _ = timeout(GOOD_BYE, server.quit()).await;
        }
        posted
    }

    /// Says all that comes before the content; the server wants that next.
    async fn until_content(&self, letter: &Letter) -> Result<AsyncSmtpConnection, PostFailure> {
        let mut server = self.connect().await.map_err(|error| {
            PostFailure::Unavailable(format!("`{}`: {}", self.account.smtp.host, said(&error)))
        })?;
        let own = Address::try_from(self.account.address.to_string());
        let to = Address::try_from(letter.to.to_string());
        let (Ok(own), Ok(to)) = (own, to) else {
            return Err(PostFailure::Refused(format!("`{}` is no address for this server", letter.to)));
        };
        let mut parameters = Vec::new();
        if server.server_info().supports_feature(Extension::EightBitMime) {
            parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        let of_mail = |error: Error| PostFailure::of_mail(&error);
        server.command(Mail::new(Some(own), parameters)).await.map_err(of_mail)?;
        server.command(Rcpt::new(to, Vec::new())).await.map_err(of_mail)?;
        server.command(Data).await.map_err(of_mail)?;
        Ok(server)
    }

    /// Connects and signs in. Where encryption is not there from the first byte, nothing but its beginning is asked for before it is.
    async fn connect(&self) -> Result<AsyncSmtpConnection, Error> {
        let MailAccount { smtp, address, user, password, .. } = &*self.account;
        let hello = ClientId::Domain(address.domain().to_owned());
        let tls = self.trusted.sending.clone();
        let from_the_start = tls.clone().filter(|_| smtp.encryption == Encryption::Tls);
        let place = (smtp.host.as_str(), smtp.port);
        let mut server =
            AsyncSmtpConnection::connect_tokio1(place, Some(CONNECT), &hello, from_the_start, None).await?;
        let Some(tls) = tls else { return Ok(server) };
        if smtp.encryption == Encryption::StartTls {
            server.starttls(tls, &hello).await?;
        }
        let credentials = Credentials::new(user.clone(), password.clone());
        server.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await?;
        Ok(server)
    }

    /// The mail as it goes out: what stands before the bytes of its file, and what behind. All that others chose is in it as text, on one line
    /// where it stands in a header.
    fn written(&self, letter: &Letter) -> Result<(Vec<u8>, Vec<u8>), Fault> {
        let mailbox = |name: Option<String>, address: &MailAddress| {
            Address::try_from(address.to_string())
                .map(|address| Mailbox::new(name, address))
                .map_err(Fault::internal)
        };
        let submitted = if letter.is_answer { "auto-replied" } else { "auto-generated" };
        let name = self.account.name.as_deref().map(|name| one_line(name, 60));
        let mut message = Message::builder()
            .from(mailbox(name, &self.account.address)?)
            .to(mailbox(None, &letter.to)?)
            .subject(one_line(&letter.subject, 500))
            .message_id(Some(letter.id.clone()))
            .date_now()
            .raw_header(HeaderValue::new(
                HeaderName::new_from_ascii_str("Auto-Submitted"),
                submitted.to_owned(),
            ));
        if let Some(last) = letter.references.last() {
            message = message.in_reply_to(last.clone()).references(letter.references.join(" "));
        }
        let text = plain(&letter.text);
        let Some(file) = &letter.file else {
            let message = message.header(ContentType::TEXT_PLAIN).body(text).map_err(Fault::internal)?;
            return Ok((message.formatted(), Vec::new()));
        };
        let kind =
            ContentType::parse(&file.media_type).or_else(|_| ContentType::parse("application/octet-stream"));
        let place = Body::dangerous_pre_encoded(PLACE.into(), ContentTransferEncoding::Base64);
        let attached = Attachment::new(one_line(&file.name, 200)).body(place, kind.map_err(Fault::internal)?);
        let parts = match text.trim().is_empty() {
            true => MultiPart::mixed().singlepart(attached),
            false => MultiPart::mixed().singlepart(SinglePart::plain(text)).singlepart(attached),
        };
        let mut head = message.multipart(parts).map_err(Fault::internal)?.formatted();
        // What is attached stands last.
        let at = head.windows(PLACE.len()).rposition(|window| window == PLACE.as_bytes());
        let mut tail = head.split_off(at.ok_or_else(|| Fault::internal("a mail has no place for its file"))?);
        tail.drain(..PLACE.len());
        Ok((head, tail))
    }
}

/// A part of a file, as mails have it.
fn coded(part: &[u8]) -> Vec<u8> {
    let lines = Body::new_with_encoding(part.to_vec(), ContentTransferEncoding::Base64);
    let mut lines = lines.map(Body::into_vec).unwrap_or_default();
    lines.extend_from_slice(b"\r\n");
    lines
}

/// A text as mails have it: lines, and no sign that moves a cursor.
fn plain(text: &str) -> String {
    let lines = text.replace("\r\n", "\n").replace('\r', "\n");
    lines.chars().filter(|letter| !letter.is_control() || matches!(letter, '\n' | '\t')).collect()
}

/// What a server says, on one line.
fn said(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    one_line(&text, 300)
}
