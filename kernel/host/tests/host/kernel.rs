//! A kernel as an extension sees it: it answers a few operations and remembers what it heard.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use abi_stable::std_types::{RString, RVec};
use async_ffi::{FfiFuture, FutureExt as _};
use drupe_extension_abi::{CallHeader, Host, HostBox, Reply};
use drupe_extension_api::Fault;
use serde_json::{Value, json};

#[derive(Clone, Default)]
pub struct Kernel(Arc<Memory>);

#[derive(Default)]
struct Memory {
    heard: Mutex<Vec<Heard>>,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
    closed: AtomicUsize,
    /// Long answers are given from now on.
    released: AtomicBool,
}

/// A call that came.
#[derive(Debug, Clone)]
pub struct Heard {
    pub operation: String,
    pub token: String,
    pub bytes: usize,
    /// Who the blame page says runs while the kernel's own code does.
    pub blamed: Vec<String>,
}

impl Kernel {
    pub fn table(&self) -> HostBox {
        drupe_host::table(self.clone())
    }

    pub fn heard(&self, operation: &str) -> Vec<Heard> {
        self.0.heard.lock().unwrap().iter().filter(|heard| heard.operation == operation).cloned().collect()
    }

    /// Calls that were begun and neither answered nor cancelled.
    pub fn under_way(&self) -> usize {
        self.0.under_way.load(Ordering::SeqCst)
    }

    pub fn most_under_way(&self) -> usize {
        self.0.most_under_way.load(Ordering::SeqCst)
    }

    /// Gives all long answers.
    pub fn release(&self) {
        self.0.released.store(true, Ordering::SeqCst);
    }

    /// How often the extension was done with the kernel.
    pub fn closed(&self) -> usize {
        self.0.closed.load(Ordering::SeqCst)
    }
}

/// Counts a call as long as its future lives.
struct UnderWay(Arc<Memory>);

impl UnderWay {
    fn new(memory: &Arc<Memory>) -> Self {
        let now = memory.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        memory.most_under_way.fetch_max(now, Ordering::SeqCst);
        Self(Arc::clone(memory))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Host for Kernel {
    fn describe(&self) -> RVec<u8> {
        b"{}".as_slice().into()
    }

    fn call(&self, header: CallHeader, operation: RString, payload: RVec<u8>) -> FfiFuture<Reply> {
        let blamed = if operation == "tool.call" { crate::inproc::running() } else { Vec::new() };
        let blamed = blamed.into_iter().map(|running| running.extension).collect();
        let heard = Heard {
            operation: operation.to_string(),
            token: header.parent_token.to_string(),
            bytes: payload.len(),
            blamed,
        };
        self.0.heard.lock().unwrap().push(heard);
        assert!(operation != "w", "the kernel panics before there is a future");
        let (under_way, memory) = (UnderWay::new(&self.0), Arc::clone(&self.0));
        async move {
            let _under_way = under_way;
            let payload: Value = serde_json::from_slice(&payload).unwrap_or_default();
            let answer = match operation.as_str() {
                "host.sleep" => {
                    tokio::time::sleep(Duration::from_millis(payload.as_u64().unwrap())).await;
                    Value::Null
                }
                "tool.call" if payload["name"] == "other" => {
                    json!({"content": format!("for {} in {}", header.parent_token, header.trace)})
                }
                "tool.call" if payload["name"] == "long" => {
                    while !memory.released.load(Ordering::SeqCst) {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    // Written by hand: a debug build takes seconds to write it otherwise.
                    let body = format!(r#"{{"content": "{}"}}"#, "x".repeat(15 << 20));
                    return Reply { status: Reply::OK, body: body.into_bytes().into() };
                }
                // An operation that no kernel knows.
                "y" => panic!("the kernel panics"),
                "tool.call" | "x" => std::future::pending().await,
                "host.emit" | "host.log" => Value::Null,
                other => return reply(Reply::FAULT, &Fault::unsupported(other)),
            };
            reply(Reply::OK, &answer)
        }
        .into_ffi()
    }

    fn close(&self) {
        self.0.closed.fetch_add(1, Ordering::SeqCst);
    }
}

fn reply(status: u32, body: &impl serde::Serialize) -> Reply {
    Reply { status, body: serde_json::to_vec(body).unwrap().into() }
}
