//! The kernel's table as it crosses the boundary: a panic in an entry is a fault of that call.
//!
//! Whoever calls through the table cannot catch it, since a panic must not cross the boundary and ends the process there.

use std::panic::{AssertUnwindSafe, catch_unwind};

use abi_stable::{
    sabi_trait::TD_Opaque,
    std_types::{RString, RVec},
};
use async_ffi::{FfiFuture, FutureExt as _};
use drupe_extension_abi::{CallHeader, Host, Host_TO, HostBox, Reply};
use drupe_extension_api::Fault;

/// Makes the table of a kernel.
pub fn table(kernel: impl Host) -> HostBox {
    Host_TO::from_value(Guarded(kernel), TD_Opaque)
}

#[derive(Clone)]
struct Guarded<H>(H);

impl<H: Host> Host for Guarded<H> {
    fn describe(&self) -> RVec<u8> {
        caught("describe", || self.0.describe()).unwrap_or_else(|()| b"{}".as_slice().into())
    }

    fn call(&self, header: CallHeader, operation: RString, payload: RVec<u8>) -> FfiFuture<Reply> {
        let named = operation.clone();
        caught(&named, || self.0.call(header, operation, payload)).unwrap_or_else(|()| {
            let fault = Fault::internal(format!("the kernel panicked in `{named}`"));
            // A fault is plain text; it always has a form in JSON.
            let body = serde_json::to_vec(&fault).unwrap_or_default().into();
            std::future::ready(Reply { status: Reply::FAULT, body }).into_ffi()
        })
    }

    fn close(&self) {
        // There is nobody to tell.
        let _ = caught("close", || self.0.close());
    }
}

fn caught<T>(entry: &str, work: impl FnOnce() -> T) -> Result<T, ()> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|_| tracing::error!(entry, "the kernel panicked on behalf of an extension"))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[derive(Clone)]
    struct Panics;

    impl Host for Panics {
        fn describe(&self) -> RVec<u8> {
            panic!("while it describes itself")
        }

        fn call(&self, _: CallHeader, operation: RString, _: RVec<u8>) -> FfiFuture<Reply> {
            panic!("before there is a future of `{operation}`")
        }

        fn close(&self) {
            panic!("while it is closed")
        }
    }

    #[test]
    fn a_panic_before_there_is_a_future_is_a_fault_of_the_call_and_not_the_end_of_the_process() {
        let table = table(Panics);
        let header = CallHeader { call_id: 0, deadline_ms: 0, parent_token: "".into(), trace: "".into() };
        let reply = table.call(header, "host.log".into(), RVec::new()).now_or_never().expect("it is done");
        let fault: Fault = serde_json::from_slice(&reply.body).expect("a fault");
        assert_eq!(reply.status, Reply::FAULT);
        assert!(fault.to_string().contains("panicked in `host.log`"), "{fault}");
        assert_eq!(table.describe().as_slice(), b"{}");
        table.close();
    }
}
