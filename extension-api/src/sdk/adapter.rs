//! Between the table that the kernel calls and the author's traits.
//!
//! It guards and decides nothing: what an operation does is in [`operations`](super::operations).

use std::sync::{Arc, PoisonError, atomic::Ordering};

use drupe_extension_abi::{
    self as abi, CallHeader, Reply,
    abi_stable::std_types::{RString, RVec},
    async_ffi::{FfiFuture, FutureExt as _},
};

use super::{
    Exported,
    guard::{self, Guarded},
    initialize::describe,
    operations::{Instance, Prepared, origin},
    shared::Shared,
};
use crate::Fault;

/// One instance of an extension, as the kernel holds it.
pub(crate) struct Adapter<E: Exported> {
    instance: Arc<Instance<E>>,
}

impl<E: Exported> Adapter<E> {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { instance: Arc::new(Instance::new(shared)) }
    }
}

impl<E: Exported> abi::Extension for Adapter<E> {
    fn describe(&self) -> RVec<u8> {
        let instance = &self.instance;
        let described = guard::catch(|| {
            let _inside = instance.shared.enter();
            let active = instance.active().ok();
            if let Some(active) = &active
                && instance.shared.refused.swap(false, Ordering::AcqRel)
            {
                active.restore_tools();
            }
            if let Some(active) = &active
                && instance.shared.tools_changed.swap(false, Ordering::AcqRel)
            {
                *instance.shared.unannounced() = active.refresh_tools(&instance.abilities).err();
            }
            serde_json::to_vec(&describe(&instance.abilities, active.as_deref())).unwrap_or_default()
        });
        described.unwrap_or_default().into()
    }

    fn call(&self, header: CallHeader, operation: RString, payload: RVec<u8>) -> FfiFuture<Reply> {
        let prepared = guard::catch(|| self.instance.prepare(&header, &operation, &payload));
        let prepared = prepared.unwrap_or_else(|panic| Err(panic.fault(&format!("operation `{operation}`"))));
        match prepared {
            Ok(Prepared { what, work }) => {
                let work = Guarded::new(self.instance.shared.clone(), what, work);
                let work = match header.parent_token.is_empty() {
                    true => work,
                    false => work.on_behalf_of(origin(&header)),
                };
                async move { reply(work.await.flatten()) }.into_ffi()
            }
            Err(fault) => std::future::ready(reply(Err(fault))).into_ffi(),
        }
    }

    fn close(&self) {
        let shared = &self.instance.shared;
        // Before the state goes: what waits for the signal may hold it.
        shared.shutdown.fire();
        let active = self.instance.active.write().unwrap_or_else(PoisonError::into_inner).take();
        shared.discard("the extension's state", active);
        // Guarded for the sake of the kernel's table and of the runtime's tasks.
        if guard::catch(|| shared.close()).is_err() {
            shared.report("the extension panicked while it was closed");
        }
    }
}

fn reply(outcome: Result<Vec<u8>, Fault>) -> Reply {
    match outcome {
        Ok(body) => Reply { status: Reply::OK, body: body.into() },
        Err(fault) => {
            Reply { status: Reply::FAULT, body: serde_json::to_vec(&fault).unwrap_or_default().into() }
        }
    }
}
