//! The kernel as an extension sees it: the operations of the `Host` table.
//!
//! Each operation runs as a task of the kernel's own runtime, so that an extension may poll it from any thread, and is
//! cancelled when the extension drops its future. What an extension may do here follows from its manifest (rights,
//! `uses_tools`, `uses_agents`) and from the token of the call on whose behalf it asks.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    path::Path,
    sync::{Arc, Weak},
    time::Duration,
};

use abi_stable::std_types::{RString, RVec};
use async_ffi::{FfiFuture, FutureExt as _};
use drupe_agent::{Agent, LoopAgent, Run, Task};
use drupe_config::{Manifest, Right};
use drupe_extension_abi::{CallHeader, Host, HostBox, Reply};
use drupe_extension_api::{
    AgentInvocationContext, EventBody, ExtensionId, Fault, FaultCode, ItemKind, ToolCallRequest, ToolResult,
    ToolStatus,
    control::Power,
    wire::{
        CallTool, ControlCall, HandleNext, InvokeAgent, Log, NotifyUser, ProcessOutput, Progress,
        RestartRequest, RunAgent, RunProcess, Subscribe, host,
    },
};
use drupe_host::{LOG_LINE, PROGRESS, REASON, cut, program};
use drupe_surface::principal::{Principal, Reach, Who};
use futures_util::FutureExt;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use drupe_models::NamedBy;

use super::handles::{Holder, Messages};
use drupe_wiring as wiring;

use crate::{
    control, events,
    kernel::{Kernel, store_fault},
};

/// The table of one extension. Clones are the same.
#[derive(Clone)]
struct Table(Arc<Owner>);

struct Owner {
    manifest: Arc<Manifest>,
    holder: Holder,
    kernel: Weak<Kernel>,
    runtime: tokio::runtime::Handle,
}

/// The table for an extension, as it crosses the boundary.
pub fn table(manifest: Arc<Manifest>, kernel: &Arc<Kernel>) -> HostBox {
    let holder = kernel.handles.holder(manifest.id.clone());
    let runtime = tokio::runtime::Handle::current();
    let owner = Owner { manifest, holder, kernel: Arc::downgrade(kernel), runtime };
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
            host::HANDLE_CLOSE => return done(read(&payload).map(|handle| self.0.close_handle(handle))),
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
            Some(kernel) => AbortOnDrop(kernel.tasks.spawn_on(work, &self.0.runtime)),
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
            kernel.handles.close_all(&self.0.holder);
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
                write(events::publish(&kernel, &self.holder, run, read(payload)?).await?)
            }
            host::SUBSCRIBE => {
                let Subscribe { topic, durable } = read(payload)?;
                events::check_topic(&topic)?;
                kernel.handles.check_room(&self.holder)?;
                let messages = match durable {
                    true => {
                        let pull = kernel.topics.pull(id, &topic).await.map_err(store_fault)?;
                        Messages::Durable(Arc::new(pull))
                    }
                    false => Messages::Live(Arc::new(kernel.bus.subscribe(&topic))),
                };
                write(kernel.handles.open(&self.holder, messages)?)
            }
            host::HANDLE_NEXT => {
                write(kernel.handles.next(&self.holder, read::<HandleNext>(payload)?).await?)
            }
            host::TOOL_CALL => {
                let run = self.run(&kernel, header)?;
                write(Box::pin(self.call_tool(&kernel, &run, read(payload)?)).await?)
            }
            host::PROGRESS => {
                let Progress { effect_id, text } = read(payload)?;
                let run = self.run(&kernel, header)?;
                run.live(EventBody::ItemUpdated {
                    id: effect_id.to_string(),
                    item: ItemKind::ToolCall,
                    delta: cut(text, PROGRESS),
                });
                // Those who watch get their turn before the extension goes on.
                tokio::task::yield_now().await;
                write(())
            }
            host::AGENT_RUN => {
                let run = self.run(&kernel, header)?;
                write(Box::pin(self.run_agent(&kernel, &run, read(payload)?)).await?)
            }
            host::AGENT_INVOKE => {
                let run = self.run(&kernel, header)?;
                write(Box::pin(self.invoke_agent(&kernel, &run, read(payload)?)).await?)
            }
            host::SUBMIT => {
                let by = self.principal(header);
                by.needs(Power::Submit, operation)?;
                write(control::turns::submit(&kernel, &by, read(payload)?).await?)
            }
            host::NOTIFY => {
                let NotifyUser { text, session } = read(payload)?;
                write(kernel.notify(id, session, text).await?)
            }
            host::RESTART => {
                self.right(Right::Restart, operation)?;
                let RestartRequest { reason } = read(payload)?;
                let run = kernel.tokens.redeem(id, &header.parent_token).ok();
                // Behind a turn stands the person who wrote; what an extension asks for by itself nobody watches.
                write(kernel.request_restart(cut(reason, REASON), run.as_deref(), run.is_none()).await?)
            }
            host::PROCESS_RUN => {
                self.right(Right::Processes, operation)?;
                write(Box::pin(self.run_program(&kernel, read(payload)?)).await?)
            }
            host::CONTROL => {
                self.right(Right::Control, operation)?;
                let ControlCall { method, params, bearer } = read(payload)?;
                let by = control::tokens::through(&kernel, self.principal(header), bearer.as_deref())?;
                let params = serde_json::value::to_raw_value(&params).map_err(Fault::internal)?;
                write(control::methods::call(&kernel, &by, &method, &params).await?)
            }
            host::TOOLS_CHANGED => {
                kernel.announcements.take(id, std::time::Instant::now())?;
                write(Box::pin(crate::boot::rewire(&kernel, id)).await?)
            }
            _ => Err(Fault::unsupported(operation)),
        }
    }

    /// The extension, as somebody who asks.
    fn principal(&self, header: &CallHeader) -> Principal {
        let Holder { extension, instance } = &self.holder;
        let given = |right: &Right| match right {
            Right::Control => &[Power::Read, Power::Direct, Power::Inspect, Power::Extend][..],
            Right::Submit => &[Power::Submit][..],
            _ => &[],
        };
        Principal {
            who: Who::Extension {
                id: extension.clone(),
                instance: *instance,
                call: header.parent_token.to_string(),
            },
            may: self.manifest.rights.iter().flat_map(given).copied().collect(),
            sessions: Reach::All,
            agents: None,
        }
    }

    fn close_handle(&self, handle: u64) {
        if let Some(kernel) = self.kernel.upgrade() {
            kernel.handles.close(&self.holder, handle);
        }
    }

    fn run(&self, kernel: &Kernel, header: &CallHeader) -> Result<Arc<Run>, Fault> {
        kernel.tokens.redeem(&self.manifest.id, &header.parent_token)
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

    async fn run_program(&self, kernel: &Kernel, ask: RunProcess) -> Result<ProcessOutput, Fault> {
        let (id, home) = (&self.manifest.id, &kernel.home);
        let surroundings = program::Surroundings {
            exe: &drupe_host::own_program(&kernel.start.exe),
            folder: &self.manifest.folder,
            data: &home.data(id),
            sdk: &home.sdk(),
            cargo: &home.cargo(id),
            environment: &kernel.settings.environment,
            strict: !kernel.config.sandbox.allow_unconfined,
        };
        program::run(surroundings, ask).await
    }

    async fn call_tool(&self, kernel: &Kernel, run: &Arc<Run>, call: CallTool) -> Result<ToolResult, Fault> {
        let snapshot = kernel.snapshot();
        let registry = snapshot.resolved.get(&self.manifest.id).cloned().unwrap_or_default();
        let limits = snapshot.agents.get(&run.agent).map(|agent| agent.limits.clone()).unwrap_or_default();
        let request = ToolCallRequest {
            call_id: String::new(),
            name: call.name.to_string(),
            arguments: call.params.get().to_owned(),
        };
        let (status, content) =
            drupe_agent::call_tool(run, &registry, &limits, request).await.map_err(Fault::internal)?;
        match status {
            ToolStatus::Ok => Ok(ToolResult { content }),
            ToolStatus::Refused => Err(Fault::denied(content)),
            ToolStatus::Cancelled => Err(Fault::new(FaultCode::Cancelled, content)),
            ToolStatus::OutcomeUnknown => Err(Fault::new(FaultCode::OutcomeUnknown, content)),
            ToolStatus::Error => Err(Fault::new(FaultCode::Other, content)),
        }
    }

    /// Runs the loop on behalf of the extension's own agent, with its own tools and those that it lists.
    async fn run_agent(
        &self,
        kernel: &Kernel,
        run: &Arc<Run>,
        ask: RunAgent,
    ) -> Result<impl Serialize + use<>, Fault> {
        let id = &self.manifest.id;
        if ask.definition.id.as_str() != id.as_str() {
            return Err(Fault::denied(format!(
                "extension `{id}` can run its own agent only, not `{}`",
                ask.definition.id
            )));
        }
        let snapshot = kernel.snapshot();
        let RunAgent { definition, .. } = &ask;
        if let Some(why) = definition.output.as_ref().and_then(wiring::bounds::answer_fault) {
            return Err(Fault::invalid(why));
        }
        let models = kernel.models.resolve_for(
            NamedBy::Extension,
            &definition.models,
            &definition.parameters,
            &definition.limits,
        );
        let model = models.map_err(|error| Fault::new(FaultCode::NotConfigured, error.to_string()))?.model;
        let mut offer = wiring::Offer::new(Some(model.profile()), &kernel.config);
        let mut add = |tool| offer.add(tool).map_err(|error| Fault::invalid(error.to_string()));
        for core in wiring::core_tools() {
            add(core)?;
        }
        let own = snapshot.tools.get(id).map(Vec::as_slice).unwrap_or_default();
        for name in &ask.own_tools {
            let tool = own.iter().find(|t| t.spec().name == *name);
            add(Arc::clone(
                tool.ok_or_else(|| Fault::not_found(format!("extension `{id}` has no tool `{name}`")))?,
            ))?;
        }
        for tool in snapshot.resolved.get(id).iter().flat_map(|r| r.iter()) {
            add(Arc::clone(tool))?;
        }
        let agent: Arc<dyn Agent> = Arc::new(LoopAgent::new(ask.definition, offer.build(), model, false));
        let task = Task { text: ask.task, context: ask.context, ..Task::default() };
        Ok(run.invoke_own(&agent, task).await)
    }

    async fn invoke_agent(
        &self,
        kernel: &Kernel,
        run: &Arc<Run>,
        ask: InvokeAgent,
    ) -> Result<impl Serialize + use<>, Fault> {
        let listed = self.manifest.agent.as_ref().is_some_and(|a| a.uses_agents.contains(&ask.agent));
        if !listed {
            let message = format!(
                "extension `{}` does not list agent `{}` in `uses_agents`",
                self.manifest.id, ask.agent
            );
            return Err(Fault::denied(message));
        }
        let snapshot = kernel.snapshot();
        let agent = Arc::clone(&snapshot.agent(&ask.agent)?.agent);
        let context = AgentInvocationContext {
            conversation_summary: ask.summary,
            user_message: Some(run.scope.user_message.clone()),
            correlation_id: Some(run.scope.correlation.clone()),
        };
        Ok(run.invoke_other(&agent, Task { text: ask.task, context, ..Task::default() }).await)
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

/// The payload of `initialize`.
pub fn initialize_payload(
    kernel: &Kernel,
    manifest: &Manifest,
    part: &wiring::Part,
    resolved_tools: Vec<drupe_extension_api::ToolSpec>,
) -> Result<drupe_extension_api::wire::Initialize, String> {
    let config = manifest.effective_config(&kernel.config).map_err(|faults| faults.render(false))?;
    let secrets: BTreeMap<_, _> =
        manifest.resolve_secrets(&kernel.config.overlay).map_err(|faults| faults.render(false))?;
    let data = kernel.home.make_data(&manifest.id)?;
    Ok(drupe_extension_api::wire::Initialize {
        id: manifest.id.clone(),
        config,
        secrets: secrets.into_iter().map(|(name, secret)| (name, Value::from(secret.expose()))).collect(),
        data_folder: text(&data)?,
        folder: text(&manifest.folder)?,
        workspace: text(kernel.home.workspace())?,
        agent: part.is_agent().then(|| wiring::definition(part, &kernel.config)),
        resolved_tools,
    })
}

/// A path as extensions get it. One that cannot be written as text would lead them elsewhere.
fn text(path: &Path) -> Result<String, String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        format!("the path `{}` is not UTF-8, so native code cannot be told of it", path.display())
    })
}
