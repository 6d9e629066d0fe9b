//! A plugin of an older release: it speaks through the same tables, and knows less than is known today.
//!
//! Written by hand, because what it must lack is what the SDK adds by itself: its description has no release,
//! no agent, no schedules and no hooks, its tool no annotations, and its faults say nothing of trying again.

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

struct Older {
    _host: HostBox,
}

/// What it says of itself.
pub fn description() -> Value {
    json!({
        "payload_version": 0,
        "capabilities": ["tool"],
        "tools": [{
            "name": "older_echo",
            "description": "Gives back its parameters.",
            "input_schema": {"type": "object"},
        }],
    })
}

/// What it answers.
pub fn answer(operation: &str, payload: &[u8]) -> Result<Value, Value> {
    let payload: Value = serde_json::from_slice(payload).unwrap_or_default();
    match operation {
        "initialize" | "start" | "stop" => Ok(Value::Null),
        "health" => Ok(json!({"ok": true})),
        "tool.call" => Ok(json!({"content": payload["params"].to_string()})),
        _ => Err(
            json!({"code": "unsupported", "message": format!("operation `{operation}` is not supported")}),
        ),
    }
}

impl abi::Extension for Older {
    fn describe(&self) -> RVec<u8> {
        description().to_string().into_bytes().into()
    }

    fn call(&self, _header: CallHeader, operation: RString, payload: RVec<u8>) -> FfiFuture<Reply> {
        let (status, body) = match answer(&operation, &payload) {
            Ok(body) => (Reply::OK, body),
            Err(fault) => (Reply::FAULT, fault),
        };
        std::future::ready(Reply { status, body: body.to_string().into_bytes().into() }).into_ffi()
    }

    fn close(&self) {}
}

extern "C" fn open(host: HostBox) -> ExtensionBox {
    Extension_TO::from_value(Older { _host: host }, TD_Opaque)
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
    use drupe_extension_api::{Fault, FaultCode, ToolAnnotations, wire::Description};

    use super::*;

    #[test]
    fn what_it_says_can_be_read_by_this_release() {
        let description: Description = serde_json::from_value(description()).expect("a description");
        assert_eq!((description.payload_version, description.api_release.as_str()), (0, ""));
        assert_eq!(description.tools[0].annotations, ToolAnnotations::default());
        let fault = answer("channel.send", b"null").expect_err("a fault");
        let fault: Fault = serde_json::from_value(fault).expect("a fault");
        assert_eq!((fault.code, fault.retriable), (FaultCode::Unsupported, false));
    }
}
