//! Notes who runs, around futures in either direction.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use abi_stable::{
    sabi_trait::TD_Opaque,
    std_types::{RString, RVec},
};
use async_ffi::{FfiFuture, FutureExt as _};
use drupe_blame::{Entered, Operation, Who};
use drupe_extension_abi::{CallHeader, Host, Host_TO, HostBox, Reply};

/// A future of an extension: polls and its drop are noted.
pub struct Blamed {
    who: Who,
    operation: Operation,
    inner: Option<FfiFuture<Reply>>,
}

impl Blamed {
    pub fn new(who: Who, operation: Operation, inner: FfiFuture<Reply>) -> Self {
        Self { who, operation, inner: Some(inner) }
    }
}

impl Future for Blamed {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let _entered = drupe_blame::enter(self.who, self.operation);
        poll_then_drop(&mut self.inner, cx)
    }
}

impl Drop for Blamed {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            let _entered = drupe_blame::enter(self.who, self.operation);
            drop(inner);
        }
    }
}

/// The kernel's table for an extension in this process: nobody is blamed while the kernel's own code runs.
pub fn without_blame(host: HostBox) -> HostBox {
    Host_TO::from_value(Unblamed(host), TD_Opaque)
}

#[derive(Clone)]
struct Unblamed(HostBox);

impl Host for Unblamed {
    fn describe(&self) -> RVec<u8> {
        let _left = drupe_blame::leave();
        self.0.describe()
    }

    fn call(&self, header: CallHeader, operation: RString, payload: RVec<u8>) -> FfiFuture<Reply> {
        let _left = drupe_blame::leave();
        let inner = Some(self.0.call(header, operation, payload));
        UnblamedCall { inner }.into_ffi()
    }

    fn close(&self) {
        let _left = drupe_blame::leave();
        self.0.close();
    }
}

struct UnblamedCall {
    inner: Option<FfiFuture<Reply>>,
}

impl Future for UnblamedCall {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let _left: Entered = drupe_blame::leave();
        poll_then_drop(&mut self.inner, cx)
    }
}

impl Drop for UnblamedCall {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            let _left = drupe_blame::leave();
            drop(inner);
        }
    }
}

/// Polls, and drops a future that is done while its note still holds.
fn poll_then_drop(inner: &mut Option<FfiFuture<Reply>>, cx: &mut Context<'_>) -> Poll<Reply> {
    let Some(future) = inner.as_mut() else { return Poll::Pending };
    let polled = Pin::new(future).poll(cx);
    if polled.is_ready() {
        inner.take();
    }
    polled
}
