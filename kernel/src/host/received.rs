//! Files that come with messages of an extension: fetched once, for somebody who is known, and in the workspace before the message is
//! taken in. The message says which there are, so that whatever reads it later knows of them as well.

use std::time::Duration;

use drupe_agent::one_line;
use drupe_attachments::{InboxFile, WorkspaceInbox, safe_name};
use drupe_extension_api::{
    Fault, FaultCode,
    wire::{FileSource, InboundFile, MOST_FILES, Submit},
};
use tokio::time::{Instant, timeout_at};

use super::Owner;
use crate::{control::turns, kernel::Kernel};

/// The most bytes of why a file is not there that stand in the message.
const LONGEST_REASON: usize = 300;

/// Time for all files of a message. A channel hears one after the other, so that whoever writes behind this one waits as long: what takes
/// longer is told as any file that is not taken, and does not come again. At three megabits a second the largest file is there in time.
const FILES: Duration = Duration::from_secs(60);

impl Owner {
    /// The message with words in place of its files, which are kept by then.
    pub(super) async fn receive(&self, kernel: &Kernel, submit: Submit) -> Result<Submit, Fault> {
        if submit.files.is_empty() {
            return Ok(submit);
        }
        if submit.files.len() > MOST_FILES {
            return Err(Fault::invalid(format!("a message has at most {MOST_FILES} files")));
        }
        // Nothing is fetched for somebody who is not answered, nor for a message that was.
        let (origin, channel, _) = turns::handed_in(kernel, &self.manifest.id, &submit).await?;
        let known = kernel.store.turn_of_message(origin, channel, submit.external_id.clone()).await?;
        let mut text = submit.text.trim_end().to_owned();
        let end = Instant::now() + FILES;
        for (nth, file) in submit.files.iter().enumerate() {
            let received = match known {
                // What the message says now is of no account.
                Some(_) => Err(Fault::invalid("the message is known")),
                None => {
                    timeout_at(end, self.receive_one(kernel, &submit, nth, file)).await.unwrap_or_else(|_| {
                        let message = format!("it was not there within {} seconds", FILES.as_secs());
                        Err(Fault::invalid(message))
                    })
                }
            };
            let came = match received {
                Ok(InboxFile { path, bytes, kind }) => {
                    format!(
                        "[A file came with this message: `{path}` of the workspace, {kind}, {bytes} bytes]"
                    )
                }
                // It would be the same later.
                Err(Fault { code: FaultCode::Invalid | FaultCode::Denied, message, .. }) => format!(
                    "[A file came with this message, `{}`, and was not taken: {}]",
                    safe_name(&file.name),
                    one_line(&message, LONGEST_REASON)
                ),
                Err(fault) => return Err(fault),
            };
            let between = if text.is_empty() { "" } else { "\n\n" };
            text = text + between + &came;
        }
        Ok(Submit { text, files: Vec::new(), ..submit })
    }

    async fn receive_one(
        &self,
        kernel: &Kernel,
        submit: &Submit,
        nth: usize,
        file: &InboundFile,
    ) -> Result<InboxFile, Fault> {
        let inbox = WorkspaceInbox::new(kernel.base.home.workspace());
        let (session, name) = (submit.session.clone(), file.name.clone());
        // Names it among those of all extensions.
        let message = format!("{}\n{session}\n{}", self.manifest.id, submit.external_id);
        let mut receiving = match blocking(move || inbox.begin(&session, &message, nth, &name)).await? {
            Ok(there) => return Ok(there),
            Err(receiving) => receiving,
        };
        let fetch = match &file.source {
            FileSource::Fetch(fetch) => fetch,
            FileSource::DataFile(path) => {
                let (folder, path) = (kernel.base.home.data(&self.manifest.id), path.clone());
                return blocking(move || receiving.copy(&folder, &path).and_then(|()| receiving.finish()))
                    .await;
            }
        };
        match self.fetch(kernel, fetch, |part| receiving.write(part)).await {
            Ok(200) => blocking(move || receiving.finish()).await,
            // Whoever has it wants to be asked later.
            Ok(status @ (0..300 | 408 | 425 | 429 | 500..)) => {
                Err(Fault::new(FaultCode::Unavailable, format!("a file came with status {status}")))
            }
            Ok(status) => Err(Fault::invalid(format!("whoever has it answered with status {status}"))),
            Err(fault) if matches!(fault.code, FaultCode::Invalid | FaultCode::Denied | FaultCode::Busy) => {
                Err(fault)
            }
            Err(fault) => {
                let message = format!("a file did not come whole: {}", fault.message);
                Err(Fault::new(FaultCode::Unavailable, message))
            }
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    tokio::task::spawn_blocking(work).await.map_err(Fault::internal)?
}
