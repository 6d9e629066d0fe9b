//! A plugin of a newer release: it speaks through the same tables, and says more than is known today.
//!
//! Written by hand, because what it must have does not exist yet: fields that nobody knows in whatever it
//! says, a capability `telepathy` beside `tool`, and a fault with a code of the future. Its tool asks the kernel for what
//! `ask` says, which may be an operation that nobody knows.

use drupe_extension_abi::{
    self as abi, CallHeader, Extension_TO, ExtensionBox, HostBox, Plugin, PluginRef, Reply,
    abi_stable::{
        library::{__call_root_module_loader, CheckTypeLayout, LibHeader, RootModuleResult},
        prefix_type::PrefixTypeTrait as _,
        sabi_trait::TD_Opaque,
        std_types::{RString, RVec},
    },
    async_ffi::{FfiFuture, FutureExt as _},
};
use serde_json::{Value, json};

struct Newer {
    host: HostBox,
}

/// What the kernel is to be asked, where a call wants that: an operation and its payload.
fn asked(operation: &str, payload: &[u8]) -> Option<(String, Value)> {
    let mut payload: Value = serde_json::from_slice(payload).ok()?;
    let ask = payload["params"]["ask"].take();
    let named = ask["operation"].as_str().filter(|_| operation == "tool.call")?.to_owned();
    Some((named, ask["payload"].clone()))
}

/// What it says of itself.
pub fn description() -> Value {
    json!({
        "payload_version": 99,
        "api_release": "99.0.0",
        "capabilities": ["tool", "telepathy"],
        "minds": ["yours"],
        "tools": [{
            "name": "newer_echo",
            "description": "Gives back its parameters.",
            "input_schema": {"type": "object"},
            "annotations": {"read_only": true, "effect": "pure", "colour": "blue"},
            "aura": {"strength": 7},
        }],
    })
}

/// What it answers.
pub fn answer(operation: &str, payload: &[u8]) -> Result<Value, Value> {
    let payload: Value = serde_json::from_slice(payload).unwrap_or_default();
    match operation {
        "initialize" | "start" | "stop" => Ok(json!({"mood": "good"})),
        "health" => Ok(json!({"ok": true, "mood": "good"})),
        "tool.call" if payload["params"]["fail"] == true => Err(
            json!({"code": "bored", "message": "it was told to be bored", "retriable": false, "planet": "mars"}),
        ),
        "tool.call" => Ok(json!({"content": payload["params"].to_string(), "telepathic": false})),
        _ => Err(
            json!({"code": "unsupported", "message": format!("operation `{operation}` is not supported"), "planet": "mars"}),
        ),
    }
}

impl abi::Extension for Newer {
    fn describe(&self) -> RVec<u8> {
        description().to_string().into_bytes().into()
    }

    fn call(&self, header: CallHeader, operation: RString, payload: RVec<u8>) -> FfiFuture<Reply> {
        if let Some((operation, payload)) = asked(&operation, &payload) {
            let asking = self.host.call(header, operation.into(), payload.to_string().into_bytes().into());
            return async move {
                let reply = asking.await;
                let said: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
                let content = json!({"ok": reply.status == Reply::OK, "said": said}).to_string();
                Reply { status: Reply::OK, body: json!({"content": content}).to_string().into_bytes().into() }
            }
            .into_ffi();
        }
        let (status, body) = match answer(&operation, &payload) {
            Ok(body) => (Reply::OK, body),
            Err(fault) => (Reply::FAULT, fault),
        };
        std::future::ready(Reply { status, body: body.to_string().into_bytes().into() }).into_ffi()
    }

    fn close(&self) {}
}

extern "C" fn open(host: HostBox) -> ExtensionBox {
    Extension_TO::from_value(Newer { host }, TD_Opaque)
}

fn module() -> PluginRef {
    Plugin { open }.leak_into_prefix()
}

extern "C" fn load() -> RootModuleResult {
    __call_root_module_loader(module)
}

// SAFETY: the name is that of the loader's symbol, and nothing else of this library bears it.
#[unsafe(export_name = "_1as_0lib_1header_0root_bmodule_bloader")]
static HEADER: LibHeader =
    // SAFETY: `load` gives a `PluginRef`.
    unsafe { LibHeader::from_constructor::<PluginRef>(load, CheckTypeLayout::Yes) };

#[cfg(test)]
mod tests {
    use drupe_extension_api::{Fault, FaultCode, wire::Description};

    use super::*;

    #[test]
    fn what_it_says_can_be_read_by_this_release() {
        let description: Description = serde_json::from_value(description()).expect("a description");
        assert_eq!(description.payload_version, 99);
        assert_eq!(description.capabilities, ["tool", "telepathy"]);
        assert!(description.tools[0].annotations.read_only);
        let fault = answer("tool.call", br#"{"params": {"fail": true}}"#).expect_err("a fault");
        let fault: Fault = serde_json::from_value(fault).expect("a fault");
        assert_eq!(fault.code, FaultCode::Other);
    }
}
