//! The kernel as an extension sees it: the operations of the `Host` table.
//!
//! Each operation runs as a task of the kernel's own runtime, so that an extension may poll it from any thread, and is
//! cancelled when the extension drops its future. What an extension may do here follows from its manifest (rights,
//! `uses_tools`, `uses_agents`) and from the token of the call on whose behalf it asks.

mod agents;
mod handles;
mod outward;
mod received;
mod vectors;

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    time::Duration,
};

use abi_stable::std_types::{RString, RVec};
use async_ffi::{FfiFuture, FutureExt as _};
use drupe_agent::Run;
use drupe_config::{Manifest, Right};
use drupe_extension_abi::{CallHeader, Host, HostBox, Reply};
use drupe_extension_api::{
    EventBody, ExtensionId, Fault, FaultCode, ItemKind,
    control::Power,
    wire::{ControlCall, Log, NotifyUser, Progress, RestartRequest, SendFile, host},
};
use drupe_handles::Holder;
use drupe_host::{LOG_LINE, PROGRESS, REASON, cut};
use drupe_journal::FILE_KEY;
use drupe_redact::Pieces;
use drupe_surface::principal::{Caller, Principal, Reach, Who};
use drupe_wiring::tokens::Redeemed;
use futures_util::FutureExt;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::{control, kernel::Kernel, people, topics};

/// The table of one extension. Clones are the same.
#[derive(Clone)]
struct Table(Arc<Owner>);

struct Owner {
    manifest: Arc<Manifest>,
    holder: Holder,
    /// Room for the programs that it runs.
    programs: Arc<Semaphore>,
    /// Room for the requests that are sent for it.
    requests: Semaphore,
    /// The hosts of each of its bound secrets, in their order, by its manifest and its configuration.
    hosts: OnceLock<Vec<Vec<String>>>,
    kernel: Weak<Kernel>,
    runtime: tokio::runtime::Handle,
    /// Output of calls that run, where a secret may have begun in it.
    progress: Mutex<HashMap<String, (Weak<Run>, Pieces)>>,
}

/// The table for an extension, as it crosses the boundary.
pub fn table(kernel: Weak<Kernel>, manifest: Arc<Manifest>, holder: Holder) -> HostBox {
    let runtime = tokio::runtime::Handle::current();
    let programs = Arc::new(Semaphore::new(drupe_programs::MOST));
    let progress = Mutex::default();
    let requests = Semaphore::new(outward::AT_ONCE);
    let hosts = OnceLock::new();
    let owner = Owner { manifest, holder, programs, requests, hosts, kernel, runtime, progress };
    drupe_host::table(Table(Arc::new(owner)))
}

impl Host for Table {
    fn describe(&self) -> RVec<u8> {
        let about = json!({
            "payload_version": drupe_extension_api::wire::PAYLOAD_VERSION,
            "release": env!("CARGO_PKG_VERSION"),
        });
        about.to_string().into_bytes().into()
    }

    fn call(&self, header: CallHeader, operation: RString, payload: RVec<u8>) -> FfiFuture<Reply> {
        // An extension does not wait for these: they are done when the call returns.
        match operation.as_str() {
            host::LOG => return done(read(&payload).map(|line| log(&self.0.manifest.id, line))),
            host::HANDLE_CLOSE => return done(read(&payload).map(|handle| self.0.close(handle))),
            _ => {}
        }
        let owner = Arc::clone(&self.0);
        let work = async move {
            let result = AssertUnwindSafe(owner.perform(&header, &operation, &payload)).catch_unwind().await;
            reply(
                result.unwrap_or_else(|_| {
                    Err(Fault::internal(format!("the kernel panicked in `{operation}`")))
                }),
            )
        };
        let task = match self.0.kernel.upgrade() {
            Some(kernel) => AbortOnDrop(kernel.life.tasks.spawn_on(work, &self.0.runtime)),
            None => return done(Err(Fault::new(FaultCode::Unavailable, "the kernel is ending"))),
        };
        async move {
            let mut task = task;
            match (&mut task.0).await {
                Ok(reply) => reply,
                Err(_) => reply(Err(Fault::new(FaultCode::Cancelled, "the kernel is ending"))),
            }
        }
        .into_ffi()
    }

    fn close(&self) {
        if let Some(kernel) = self.0.kernel.upgrade() {
            kernel.roster.wired.handles.close_all(&self.0.holder);
        }
    }
}

fn done(result: Result<(), Fault>) -> FfiFuture<Reply> {
    std::future::ready(reply(result.and_then(write))).into_ffi()
}

struct AbortOnDrop(tokio::task::JoinHandle<Reply>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn reply(result: Result<Vec<u8>, Fault>) -> Reply {
    match result {
        Ok(body) => Reply { status: Reply::OK, body: body.into() },
        // A fault is plain text; it always has a form in JSON.
        Err(fault) => {
            Reply { status: Reply::FAULT, body: serde_json::to_vec(&fault).unwrap_or_default().into() }
        }
    }
}

fn read<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(payload)
        .map_err(|error| Fault::invalid(format!("the payload cannot be read: {error}")))
}

fn write(value: impl Serialize) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(&value).map_err(Fault::internal)
}

impl Owner {
    async fn perform(&self, header: &CallHeader, operation: &str, payload: &[u8]) -> Result<Vec<u8>, Fault> {
        let kernel = self
            .kernel
            .upgrade()
            .ok_or_else(|| Fault::new(FaultCode::Unavailable, "the kernel is ending"))?;
        let id = &self.manifest.id;
        let clean;
        let payload = match operation {
            // A program that it starts gets what it was given, and what a client of it asks for is looked at as what it is.
            host::PROCESS_RUN
            | host::PROCESS_OPEN
            | host::HANDLE_PUT
            | host::CONTROL
            | host::CONTROL_OPEN => payload,
            // The next piece of a text is looked at together with the one before.
            host::PROGRESS => payload,
            _ => {
                clean = kernel.base.redactor.json(payload);
                &*clean
            }
        };
        match operation {
            host::SLEEP => {
                tokio::time::sleep(Duration::from_millis(read(payload)?)).await;
                write(())
            }
            host::EMIT => {
                // Said on behalf of a call, or by itself.
                let run = match header.parent_token.is_empty() {
                    true => None,
                    false => Some(self.run(&kernel, header)?),
                };
                write(topics::publish(&kernel, &self.holder, run, read(payload)?).await?)
            }
            host::SUBSCRIBE => write(self.subscribe(&kernel, read(payload)?).await?),
            host::HANDLE_NEXT => self.next(&kernel, read(payload)?).await,
            host::HANDLE_PUT => write(self.put(&kernel, payload).await?),
            host::TOOL_CALL => {
                let work = self.work(&kernel, header)?;
                write(Box::pin(self.call_tool(&kernel, &work, read(payload)?)).await?)
            }
            host::PROGRESS => {
                let Progress { effect_id, text } = read(payload)?;
                let run = self.run(&kernel, header)?;
                let delta = self.progress(&kernel, &run, effect_id.as_ref(), &text);
                run.live(EventBody::ItemUpdated {
                    id: effect_id.to_string(),
                    item: ItemKind::ToolCall,
                    delta: cut(delta, PROGRESS),
                });
                // Those who watch get their turn before the extension goes on.
                tokio::task::yield_now().await;
                write(())
            }
            host::AGENT_RUN => {
                let work = self.work(&kernel, header)?;
                write(Box::pin(self.run_agent(&kernel, &work, read(payload)?)).await?)
            }
            host::AGENT_INVOKE => {
                let work = self.work(&kernel, header)?;
                write(Box::pin(self.invoke_agent(&kernel, &work, read(payload)?)).await?)
            }
            host::EMBED => {
                let run = kernel.roster.wired.lasting.tokens.redeem_charging(id, &header.parent_token)?;
                write(Box::pin(self.embed(&kernel, &run, read(payload)?)).await?)
            }
            host::SUBMIT => {
                let by = self.principal(header);
                by.needs(Power::Submit, operation)?;
                let submit = Box::pin(self.receive(&kernel, read(payload)?)).await?;
                write(control::turns::submit(&kernel, &by, submit).await?)
            }
            host::PEOPLE_ADMIT => {
                self.right(Right::Submit, operation)?;
                write(people::admit(&kernel, id, &read(payload)?).await?.into_admission())
            }
            host::SESSION_STOP => {
                self.right(Right::Submit, operation)?;
                write(control::turns::stop_own(&kernel, id, read(payload)?).await?)
            }
            host::SEND_FILE => {
                self.right(Right::SendFiles, operation)?;
                let (run, ask): (_, SendFile) = (self.run(&kernel, header)?, read(payload)?);
                let of = (run.scope.turn.clone(), run.scope.session.clone());
                let key = format!("{FILE_KEY}{id}:{}:{}", of.0, ask.effect_id);
                let workspace = kernel.base.home.workspace().clone();
                write(kernel.outbox.send_file(of, key, workspace, ask).await?)
            }
            host::NOTIFY => {
                let NotifyUser { text, session } = read(payload)?;
                write(kernel.outbox.notify(id, session, text).await?)
            }
            host::RESTART => {
                self.right(Right::Restart, operation)?;
                let RestartRequest { reason } = read(payload)?;
                let run = kernel.roster.wired.lasting.tokens.redeem(id, &header.parent_token).ok();
                // Behind a turn stands the person who wrote; what an extension asks for by itself nobody watches.
                write(
                    kernel.roster.request_restart(cut(reason, REASON), run.as_deref(), run.is_none()).await?,
                )
            }
            host::PROCESS_RUN => {
                self.right(Right::Processes, operation)?;
                write(Box::pin(self.run_process(&kernel, header, read(payload)?)).await?)
            }
            host::PROCESS_OPEN => {
                self.right(Right::Processes, operation)?;
                write(Box::pin(self.open_process(&kernel, header, read(payload)?)).await?)
            }
            host::CONTROL => {
                self.right(Right::Control, operation)?;
                let ControlCall { method, params, bearer } = read(payload)?;
                let (by, grant) =
                    control::tokens::through(&kernel, self.principal(header), bearer.as_deref())?;
                let answering = control::methods::call(&kernel, &by, &method, &params);
                let answer = match grant {
                    Some(grant) => grant
                        .revoked
                        .run_until_cancelled(answering)
                        .await
                        .unwrap_or_else(|| Err(Fault::new(FaultCode::Cancelled, "the token was revoked"))),
                    None => answering.await,
                };
                write(answer?)
            }
            host::CONTROL_OPEN => {
                self.right(Right::Control, operation)?;
                write(self.open_control(&kernel, self.principal(header), read(payload)?)?)
            }
            host::HTTP_SEND => write(Box::pin(self.send(&kernel, read(payload)?)).await?),
            host::TOOLS_CHANGED => write(Box::pin(kernel.roster.rewire(id)).await?),
            _ => Err(Fault::unsupported(operation)),
        }
    }

    /// The extension, as somebody who asks.
    fn principal(&self, header: &CallHeader) -> Principal {
        let Holder { extension, instance } = &self.holder;
        let given = |right: &Right| match right {
            Right::Control => &[Power::Read, Power::Direct, Power::Inspect, Power::Extend][..],
            Right::Submit => &[Power::Submit][..],
            Right::Operate => &[Power::Operate][..],
            _ => &[],
        };
        Principal {
            who: Who::Extension(Caller {
                id: extension.clone(),
                instance: *instance,
                call: header.parent_token.to_string(),
            }),
            may: self.manifest.rights.iter().flat_map(given).copied().collect(),
            sessions: Reach::All,
            agents: None,
        }
    }

    /// What of the output of a call can be shown by now. The rest comes with the next piece, or with the result.
    fn progress(&self, kernel: &Kernel, run: &Arc<Run>, effect: &str, text: &str) -> String {
        let mut open = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, (run, _)| run.strong_count() > 0);
        let new = || (Arc::downgrade(run), kernel.base.redactor.pieces());
        open.entry(effect.to_owned()).or_insert_with(new).1.push(text)
    }

    fn run(&self, kernel: &Kernel, header: &CallHeader) -> Result<Arc<Run>, Fault> {
        self.work(kernel, header).map(|work| work.run)
    }

    /// What it works on, by the token of that.
    fn work(&self, kernel: &Kernel, header: &CallHeader) -> Result<Redeemed, Fault> {
        kernel.roster.wired.lasting.tokens.work(&self.manifest.id, &header.parent_token)
    }

    fn right(&self, right: Right, operation: &str) -> Result<(), Fault> {
        if self.manifest.rights.contains(&right) {
            return Ok(());
        }
        let name = crate::check::name(&right);
        tracing::warn!(extension = %self.manifest.id, operation, right = name, "refused: the manifest lacks the right");
        let message = format!("extension `{}` may not use `{operation}`", self.manifest.id);
        Err(Fault::denied(message).help(format!("its manifest needs `rights: [{name}]`")))
    }
}

fn log(extension: &ExtensionId, log: Log) {
    let message = cut(log.message, LOG_LINE);
    match log.level.as_str() {
        "error" => tracing::error!(%extension, "{message}"),
        "warn" => tracing::warn!(%extension, "{message}"),
        "info" => tracing::info!(%extension, "{message}"),
        "debug" => tracing::debug!(%extension, "{message}"),
        _ => tracing::trace!(%extension, "{message}"),
    }
}
