//! What each operation of the kernel does with an instance.
//!
//! Payloads are read in the call itself, so that a guard knows what it guards; all that waits is in the
//! future. An operation that this release does not know, or whose trait the extension does not have, is
//! unsupported; a payload that cannot be read is invalid; before `initialize` and after `close` nothing is
//! available.

use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

use drupe_extension_abi::CallHeader;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Abilities, Call, Exported, Turn,
    guard::BoxFuture,
    initialize::Active,
    shared::{Origin, Shared},
};
use crate::{
    Fault, FaultCode,
    wire::{
        AgentInvoke, Health, Initialize, LookupResult, OperatorAsk, ScheduleFire, ToolCall, ToolLookup, op,
    },
};

/// One instance: nothing yet, or the author's state.
pub(super) struct Instance<E: Exported> {
    pub(super) shared: Arc<Shared>,
    pub(super) abilities: Abilities<E>,
    begun: AtomicBool,
    pub(super) active: RwLock<Option<Arc<Active<E>>>>,
}

/// An operation that is ready to run: what it is, for messages, and its future.
pub(super) struct Prepared {
    pub(super) what: Box<str>,
    pub(super) work: BoxFuture<'static, Result<Vec<u8>, Fault>>,
}

impl Prepared {
    fn operation(
        operation: &str,
        work: impl Future<Output = Result<Vec<u8>, Fault>> + Send + 'static,
    ) -> Result<Self, Fault> {
        Ok(Self { what: format!("operation `{operation}`").into(), work: Box::pin(work) })
    }
}

fn read<T: DeserializeOwned>(operation: &str, payload: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(payload)
        .map_err(|e| Fault::invalid(format!("the payload of `{operation}` cannot be read: {e}")))
}

fn write(value: &impl Serialize) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(value).map_err(|e| Fault::internal(format!("an answer cannot be written: {e}")))
}

pub(super) fn origin(header: &CallHeader) -> Origin {
    Origin {
        deadline_ms: header.deadline_ms,
        token: header.parent_token.as_str().to_owned(),
        trace: header.trace.as_str().to_owned(),
    }
}

impl<E: Exported> Instance<E> {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, abilities: E::abilities(), begun: AtomicBool::new(false), active: RwLock::new(None) }
    }

    pub(super) fn active(&self) -> Result<Arc<Active<E>>, Fault> {
        let active = self.active.read().unwrap_or_else(PoisonError::into_inner).clone();
        active.ok_or_else(|| {
            Fault::new(FaultCode::Unavailable, "the extension is not initialized, or was closed")
        })
    }

    pub(super) fn prepare(
        self: &Arc<Self>,
        header: &CallHeader,
        operation: &str,
        payload: &[u8],
    ) -> Result<Prepared, Fault> {
        match operation {
            op::INITIALIZE => {
                let given = read(operation, payload)?;
                Prepared::operation(operation, self.clone().initialize(given))
            }
            op::START | op::STOP | op::HEALTH => self.life(operation),
            op::TOOL_CALL => self.tool_call(header, payload),
            op::TOOL_PREVIEW => self.tool_preview(header, payload),
            op::TOOL_LOOKUP => self.tool_lookup(payload),
            op::AGENT_INVOKE => self.agent_invoke(header, payload),
            op::CHANNEL_START | op::CHANNEL_SEND | op::CHANNEL_STREAM => self.channel(operation, payload),
            op::SERVICE_RUN => self.service(operation),
            op::SCHEDULER_EXECUTE => self.scheduler(operation, payload),
            op::CONTEXT_GET => self.context(header, operation, payload),
            op::HOOK_ON => self.hook(operation, payload),
            op::OPERATOR_ASK => self.operator(operation, payload),
            op::AGENT_SERVERS => self.agent_servers(operation, payload),
            _ => Err(Fault::unsupported(operation)),
        }
    }

    async fn initialize(self: Arc<Self>, given: Initialize) -> Result<Vec<u8>, Fault> {
        if self.begun.swap(true, Ordering::AcqRel) {
            let message = format!("extension `{}` was initialized before; open it anew", given.id);
            return Err(Fault::invalid(message));
        }
        let active = Active::make(self.shared.clone(), &self.abilities, given).await?;
        *self.active.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(active));
        write(&())
    }

    fn life(&self, operation: &str) -> Result<Prepared, Fault> {
        let active = self.active()?;
        match operation {
            op::START => {
                Prepared::operation(operation, async move { write(&active.extension.start().await?) })
            }
            op::STOP => {
                self.shared.shutdown.fire();
                Prepared::operation(operation, async move { write(&active.extension.stop().await?) })
            }
            _ => Prepared::operation(operation, async move {
                let (ok, detail) = match active.extension.health().await {
                    Ok(()) => (true, None),
                    Err(fault) => (false, Some(fault.to_string())),
                };
                write(&Health { ok, detail })
            }),
        }
    }

    fn tool_call(&self, header: &CallHeader, payload: &[u8]) -> Result<Prepared, Fault> {
        let active = self.toolful(op::TOOL_CALL)?;
        let ToolCall { name, params, context } = read(op::TOOL_CALL, payload)?;
        let handler = active.tools().get(&name)?.handler.clone();
        let what = format!("tool `{name}`").into();
        let call = Call::new(self.shared.clone(), origin(header), context, Some(name));
        let state = active.extension.clone();
        let work = async move { write(&handler.call(state, params, call).await?) };
        Ok(Prepared { what, work: Box::pin(work) })
    }

    fn tool_preview(&self, header: &CallHeader, payload: &[u8]) -> Result<Prepared, Fault> {
        let active = self.toolful(op::TOOL_PREVIEW)?;
        let ToolCall { name, params, context } = read(op::TOOL_PREVIEW, payload)?;
        let preview = active.tools().get(&name)?.preview.clone();
        let preview = preview.ok_or_else(|| Fault::unsupported(op::TOOL_PREVIEW))?;
        let what = format!("the preview of tool `{name}`").into();
        let call = Call::new(self.shared.clone(), origin(header), context, Some(name));
        let state = active.extension.clone();
        // It is no text but a map, so what a model would read of it is its JSON.
        let work = async move { Ok(preview.call(state, params, call).await?.content.into_bytes()) };
        Ok(Prepared { what, work: Box::pin(work) })
    }

    fn tool_lookup(&self, payload: &[u8]) -> Result<Prepared, Fault> {
        let active = self.toolful(op::TOOL_LOOKUP)?;
        let ToolLookup { name, effect_id } = read(op::TOOL_LOOKUP, payload)?;
        let lookup = active.tools().get(&name)?.lookup.clone();
        let what = format!("the lookup of tool `{name}`").into();
        let state = active.extension.clone();
        let work = async move {
            write(&match lookup {
                Some(lookup) => lookup.call(state, effect_id).await?,
                None => LookupResult::Unknown,
            })
        };
        Ok(Prepared { what, work: Box::pin(work) })
    }

    fn toolful(&self, operation: &str) -> Result<Arc<Active<E>>, Fault> {
        match self.abilities.tools {
            Some(_) => self.active(),
            None => Err(Fault::unsupported(operation)),
        }
    }

    fn agent_invoke(&self, header: &CallHeader, payload: &[u8]) -> Result<Prepared, Fault> {
        let invoke =
            self.abilities.agent.as_ref().ok_or_else(|| Fault::unsupported(op::AGENT_INVOKE))?.invoke;
        let active = self.active()?;
        let AgentInvoke { task, context, call } = read(op::AGENT_INVOKE, payload)?;
        let what = format!("agent `{}`", active.host.id()).into();
        let call = Call::new(self.shared.clone(), origin(header), call, None);
        let work = async move { write(&invoke(&active.extension, task, context, call).await) };
        Ok(Prepared { what, work: Box::pin(work) })
    }

    fn channel(&self, operation: &str, payload: &[u8]) -> Result<Prepared, Fault> {
        let channel = self.abilities.channel.as_ref().ok_or_else(|| Fault::unsupported(operation))?;
        let active = self.active()?;
        match operation {
            op::CHANNEL_START => {
                let start = channel.start;
                Prepared::operation(operation, async move { write(&start(&active.extension).await?) })
            }
            op::CHANNEL_SEND => {
                let (send, message) = (channel.send, read(operation, payload)?);
                Prepared::operation(operation, async move { write(&send(&active.extension, message).await?) })
            }
            _ => {
                let (stream, part) = (channel.stream, read(operation, payload)?);
                Prepared::operation(operation, async move { write(&stream(&active.extension, part).await?) })
            }
        }
    }

    fn service(&self, operation: &str) -> Result<Prepared, Fault> {
        let run = self.abilities.service.ok_or_else(|| Fault::unsupported(operation))?;
        let active = self.active()?;
        let shutdown = self.shared.shutdown.shutdown();
        Prepared::operation(operation, async move { write(&run(&active.extension, shutdown).await?) })
    }

    fn scheduler(&self, operation: &str, payload: &[u8]) -> Result<Prepared, Fault> {
        let scheduler = self.abilities.scheduler.as_ref().ok_or_else(|| Fault::unsupported(operation))?;
        let active = self.active()?;
        let execute = scheduler.execute;
        let ScheduleFire { name } = read(operation, payload)?;
        Prepared::operation(operation, async move { write(&execute(&active.extension, name).await?) })
    }

    fn context(&self, header: &CallHeader, operation: &str, payload: &[u8]) -> Result<Prepared, Fault> {
        let context = self.abilities.context.ok_or_else(|| Fault::unsupported(operation))?;
        let active = self.active()?;
        let turn = Turn::new(self.shared.clone(), origin(header), read(operation, payload)?);
        Prepared::operation(operation, async move { write(&context(&active.extension, turn).await?) })
    }

    fn operator(&self, operation: &str, payload: &[u8]) -> Result<Prepared, Fault> {
        let active = self.active()?;
        let OperatorAsk { ask, params } = read(operation, payload)?;
        Prepared::operation(operation, async move { write(&active.extension.asked(ask, params).await?) })
    }

    fn agent_servers(&self, operation: &str, payload: &[u8]) -> Result<Prepared, Fault> {
        let active = self.active()?;
        let given = read(operation, payload)?;
        Prepared::operation(operation, async move { write(&active.extension.agent_servers(given).await?) })
    }

    fn hook(&self, operation: &str, payload: &[u8]) -> Result<Prepared, Fault> {
        let on = self.abilities.hook.as_ref().ok_or_else(|| Fault::unsupported(operation))?.on;
        let active = self.active()?;
        let call = read(operation, payload)?;
        Prepared::operation(operation, async move { write(&on(&active.extension, call).await?) })
    }
}
