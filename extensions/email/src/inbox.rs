//! The mailbox, over one connection to its server (IMAP, RFC 9051 and RFC 2177; read on 2026-11-27). It says what is there and marks what was
//! done, and decides nothing.
//!
//! Each command has its time. A connection that did not answer in it is given up: whoever reads opens another.

use std::{future::Future, time::Duration};

use async_imap::{
    Client, Session,
    error::Error,
    extensions::idle::IdleResponse,
    imap_proto::{AttributeValue, MailboxDatum, Response, Status},
    types::UnsolicitedResponse,
};
use drupe_extension_api::prelude::*;

use crate::{
    network::{ServerStream, Trusted},
    settings::MailAccount,
    thread::one_line,
};

/// What is asked for of a mail at once, in bytes.
pub const PIECE: usize = 1024 * 1024;

/// A mailbox that is open.
pub struct OpenMailbox {
    session: Session<Box<dyn ServerStream>>,
    /// How long the server may take for an answer.
    answer: Duration,
    waits: bool,
    /// Whether the server has said since the last look that something came.
    has_come: bool,
    pub validity: u32,
    /// The number that the next mail will have.
    pub next: u32,
}

/// What became of a mail that was asked for.
pub enum FetchedMail {
    There {
        /// At most as many as are asked for at once, and fewer where the mail ends.
        bytes: Vec<u8>,
        /// How many the whole has.
        size: usize,
        /// When it came into the mailbox, in seconds since 1970.
        came: Option<i64>,
    },
    /// It is not there any more.
    Gone,
    /// The server does not give it, and says why.
    Refused(String),
}

impl OpenMailbox {
    /// Connects, signs in and opens the mailbox.
    pub async fn open(account: &MailAccount, trusted: &Trusted) -> Result<Self, Fault> {
        let (host, answer) = (&account.imap.host, account.answer);
        let mut client = Client::new(trusted.connect(&account.imap).await?);
        let greeting = within(answer, async { client.read_response().await.map_err(Error::Io) }).await?;
        if greeting.is_none() {
            return Err(lost("the server ended the connection"));
        }
        let signed_in =
            async { client.login(&account.user, &account.password).await.map_err(|(error, _)| error) };
        let mut session = within(answer, signed_in).await.map_err(|fault| {
            // What it says of the password may have the password.
            let message = format!(
                "`{host}` does not let `{}` in: {}",
                account.user,
                without(&fault.message, &account.password)
            );
            Fault::new(FaultCode::Unavailable, message)
                .help("`drupe secret set EMAIL_PASSWORD` sets another password")
        })?;
        let waits = within(answer, session.capabilities()).await?.has_str("IDLE");
        let opened = within(answer, session.select(&account.mailbox)).await?;
        let (Some(validity), Some(next)) = (opened.uid_validity, opened.uid_next) else {
            return Err(Fault::new(
                FaultCode::Unavailable,
                format!("`{host}` gives the mails of `{}` no numbers that last", account.mailbox),
            ));
        };
        Ok(Self { session, answer, waits, has_come: false, validity, next })
    }

    /// The numbers of mails from one on, in their order.
    pub async fn from(&mut self, first: u32) -> Result<Vec<u32>, Fault> {
        // `N:*` always has the last mail, however low its number is.
        let found = self.search(&format!("UID {first}:*")).await?;
        Ok(found.into_iter().filter(|uid| *uid >= first).collect())
    }

    /// The same of those that are unread, lie below another number and came on a day or later.
    pub async fn unread(&mut self, first: u32, below: u32, day: &str) -> Result<Vec<u32>, Fault> {
        if below <= first {
            return Ok(Vec::new());
        }
        self.search(&format!("UID {first}:{} UNSEEN SINCE {day}", below - 1)).await
    }

    async fn search(&mut self, query: &str) -> Result<Vec<u32>, Fault> {
        let mut found = Vec::new();
        let command = format!("UID SEARCH {query}");
        let searched = self.run(self.answer, &command, |response| {
            if let Response::MailboxData(MailboxDatum::Search(numbers)) = response {
                found.extend(numbers);
            }
        });
        searched.await??;
        found.sort_unstable();
        Ok(found)
    }

    /// Gets a piece of a mail, from a byte of it on. Nothing is marked by that.
    pub async fn fetch(&mut self, uid: u32, from: usize) -> Result<FetchedMail, Fault> {
        let mut found = FetchedMail::Gone;
        let command = format!("UID FETCH {uid} (UID RFC822.SIZE INTERNALDATE BODY.PEEK[]<{from}.{PIECE}>)");
        let fetched = self.run(3 * self.answer, &command, |response| {
            let Response::Fetch(_, attributes) = response else { return };
            let (mut is_it, mut size, mut came, mut content) = (false, 0, None, None);
            for attribute in attributes {
                match attribute {
                    AttributeValue::Uid(number) => is_it = *number == uid,
                    AttributeValue::Rfc822Size(bytes) => size = *bytes as usize,
                    AttributeValue::InternalDate(date) => came = seconds(date),
                    AttributeValue::BodySection { section: None, data: Some(data), .. } => {
                        content = Some(data)
                    }
                    _ => {}
                }
            }
            if let Some(bytes) = content.filter(|_| is_it) {
                found = FetchedMail::There { bytes: bytes.to_vec(), size, came };
            }
        });
        Ok(match fetched.await? {
            Ok(()) => found,
            Err(refused) => FetchedMail::Refused(refused.message),
        })
    }

    /// Sets marks of a mail. Whether the server keeps them is up to it: a mailbox may be there to be read alone.
    pub async fn mark(&mut self, uid: u32, marks: &str) -> Result<(), Fault> {
        let command = format!("UID STORE {uid} +FLAGS.SILENT ({marks})");
        self.run(self.answer, &command, |_| {}).await.map(drop)
    }

    /// Runs a command to its end. What the library makes of some of them does not tell a connection that ended, or a server that says no, from
    /// an answer that has nothing.
    ///
    /// # Errors
    /// The connection did not hold; within, what the server said that did not do it.
    async fn run(
        &mut self,
        time: Duration,
        command: &str,
        mut heard: impl FnMut(&Response<'_>),
    ) -> Result<Result<(), Fault>, Fault> {
        let (session, has_come) = (&mut self.session, &mut self.has_come);
        let running = async {
            let own = session.run_command(command).await?;
            while let Some(response) = session.read_response().await? {
                match response.parsed() {
                    Response::Done { tag, status, outcome } if *tag == own => {
                        let said = outcome.information.as_deref().unwrap_or_default();
                        return Ok(match status {
                            Status::Ok => Ok(()),
                            _ => Err(lost(&one_line(&format!("the server says no: {said}"), 300))),
                        });
                    }
                    Response::MailboxData(MailboxDatum::Exists(_)) => *has_come = true,
                    other => heard(other),
                }
            }
            Err(Error::ConnectionLost)
        };
        within(time, running).await
    }

    /// Waits until the server says that something came, or until it is time to look. Where the server can wait it is asked for a sign of life
    /// after `idle`.
    pub async fn wait(mut self, idle: Duration, poll: Duration) -> Result<Self, Fault> {
        if std::mem::take(&mut self.has_come) {
            return Ok(self);
        }
        if !self.waits {
            tokio::time::sleep(poll).await;
            self.run(self.answer, "NOOP", |_| {}).await??;
            return Ok(self);
        }
        let said = self.session.unsolicited_responses.clone();
        let mut waiting = self.session.idle();
        within(self.answer, waiting.init()).await?;
        // What it said while it began to wait.
        let came = std::iter::from_fn(|| said.try_recv().ok())
            .any(|one| matches!(one, UnsolicitedResponse::Exists(_)));
        if !came {
            let (news, stop) = waiting.wait_with_timeout(idle);
            // What the server says beside that keeps the connection open, and is no answer to a question.
            if let Ok(heard) = tokio::time::timeout(idle, news).await
                && let IdleResponse::ManualInterrupt = heard.map_err(fault)?
            {
                return Err(lost("the server ended the connection"));
            }
            drop(stop);
        }
        self.session = within(self.answer, waiting.done()).await?;
        Ok(self)
    }

    /// Says good-bye, and does not wait long for an answer.
    pub async fn close(mut self) {
        let _ = tokio::time::timeout(Duration::from_secs(2), self.session.logout()).await;
    }
}

async fn within<T>(time: Duration, work: impl Future<Output = Result<T, Error>>) -> Result<T, Fault> {
    match tokio::time::timeout(time, work).await {
        Ok(done) => done.map_err(fault),
        Err(_) => Err(Fault::new(FaultCode::Timeout, "the server of the mailbox did not answer in time")),
    }
}

/// When a mail came, in seconds since 1970.
fn seconds(date: &str) -> Option<i64> {
    jiff::Timestamp::strptime("%d-%b-%Y %H:%M:%S %z", date.trim()).ok().map(jiff::Timestamp::as_second)
}

fn fault(error: Error) -> Fault {
    match error {
        // It has all of what could not be read.
        Error::Io(error) if error.to_string().contains("during parsing") => {
            lost("the server says what cannot be read")
        }
        error => lost(&one_line(&error.to_string(), 300)),
    }
}

fn lost(why: &str) -> Fault {
    Fault::new(FaultCode::Unavailable, why)
}

fn without(text: &str, secret: &str) -> String {
    if secret.is_empty() { text.to_owned() } else { text.replace(secret, "[password]") }
}
