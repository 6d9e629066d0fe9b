//! Files that come with messages of an extension: fetched once, for somebody who is known, and in the workspace before the message is
//! taken in. The message says which there are, so that whatever reads it later knows of them as well.

use std::fmt::Write as _;

use drupe_agent::one_line;
use drupe_attachments::{InboxError, InboxFile, Receiving, WorkspaceInbox, safe_name};
use drupe_extension_api::{
    ExtensionId, Fault, FaultCode,
    wire::{InboundFile, MOST_FILES, Submit},
};
use drupe_journal::Origin;

use super::Owner;
use crate::{control::turns, kernel::Kernel, people};

/// The most bytes of why a file is not there that stand in the message.
const LONGEST_REASON: usize = 300;

/// What became of a file that came with a message.
enum Received {
    There(InboxFile),
    /// It would be the same later.
    Not(String),
}

impl Owner {
    /// The message with words in place of its files, which are kept by then.
    pub(super) async fn receive(&self, kernel: &Kernel, submit: Submit) -> Result<Submit, Fault> {
        let Submit { files, session, external_id, sender, .. } = &submit;
        if files.is_empty() {
            return Ok(submit);
        }
        if files.len() > MOST_FILES {
            let message = format!("a message has at most {MOST_FILES} files, and this one {}", files.len());
            return Err(Fault::invalid(message));
        }
        let id = &self.manifest.id;
        // Nothing is fetched for somebody who is not answered, nor for a message that was.
        turns::is_own(id, session)?;
        let writer = people::writer(kernel, id, sender.as_ref(), session).await?;
        let origin = writer.map_or_else(|| Origin::Extension(id.clone()), |writer| writer.origin);
        let channel = if kernel.outbox.carries(id.as_str()) { id.to_string() } else { String::new() };
        if kernel.store.turn_of_message(origin, channel, external_id.clone()).await?.is_some() {
            // What it says now is of no account.
            let text = if submit.text.trim().is_empty() { "[A file]".to_owned() } else { submit.text };
            return Ok(Submit { text, files: Vec::new(), ..submit });
        }
        let mut text = submit.text.trim_end().to_owned();
        for (nth, file) in files.iter().enumerate() {
            let received = self.receive_one(kernel, &submit, nth, file).await?;
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            let _ = match received {
                Received::There(InboxFile { path, bytes, kind }) => {
                    write!(
                        text,
                        "[A file came with this message: `{path}` of the workspace, {kind}, {bytes} bytes]"
                    )
                }
                Received::Not(why) => {
                    let (name, why) = (safe_name(&file.name), one_line(&why, LONGEST_REASON));
                    write!(text, "[A file came with this message, `{name}`, and was not taken: {why}]")
                }
            };
        }
        Ok(Submit { text, files: Vec::new(), ..submit })
    }

    async fn receive_one(
        &self,
        kernel: &Kernel,
        submit: &Submit,
        nth: usize,
        file: &InboundFile,
    ) -> Result<Received, Fault> {
        let inbox = WorkspaceInbox::new(kernel.base.home.workspace());
        let (session, name) = (submit.session.clone(), file.name.clone());
        let message = message_key(&self.manifest.id, submit);
        let begun = blocking(move || inbox.begin(&session, &message, nth, &name)).await?;
        let mut receiving: Receiving = match begun {
            Ok(Ok(there)) => return Ok(Received::There(there)),
            Ok(Err(receiving)) => receiving,
            Err(error) => return refused(error),
        };
        let mut failed = None;
        let take = |part: &[u8]| {
            receiving.write(part).map_err(|error| {
                failed = Some(error);
                Fault::new(FaultCode::Cancelled, "it is not taken")
            })
        };
        let fetched = self.fetch(kernel, &file.fetch, take).await;
        if let Some(error) = failed {
            return refused(error);
        }
        match fetched {
            Ok(200) => {}
            Ok(status @ 400..=428 | status @ 430..=499) => {
                return Ok(Received::Not(format!("whoever has it answered with status {status}")));
            }
            Ok(status) => return Err(passing(format!("a file came with status {status}"))),
            Err(fault) if matches!(fault.code, FaultCode::Invalid | FaultCode::Denied) => return Err(fault),
            Err(fault) => return Err(passing(format!("a file did not come whole: {}", fault.message))),
        }
        match blocking(move || receiving.finish()).await? {
            Ok(file) => Ok(Received::There(file)),
            Err(error) => refused(error),
        }
    }
}

/// Names a message among those of all extensions.
fn message_key(extension: &ExtensionId, submit: &Submit) -> String {
    format!("{extension}\n{}\n{}", submit.session, submit.external_id)
}

/// What it means for a message that a file of it is not taken in.
fn refused(error: InboxError) -> Result<Received, Fault> {
    match error {
        InboxError::Refused(why) => Ok(Received::Not(why)),
        InboxError::Unwritable(error) => {
            Err(Fault::new(FaultCode::Busy, format!("a file cannot be written to the workspace: {error}")))
        }
    }
}

/// It may come later: the message is not taken in yet.
fn passing(message: String) -> Fault {
    Fault::new(FaultCode::Unavailable, message)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    tokio::task::spawn_blocking(work).await.map_err(Fault::internal)
}
