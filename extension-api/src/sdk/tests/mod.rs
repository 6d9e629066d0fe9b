//! The adapter, driven through the harness: the same bytes as across a library's boundary.

mod calls;
mod life;
mod panics;
mod processes;

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use crate::{
    Fault, FaultCode,
    testing::{Harness, block_on},
};

/// Polls a future once, without anyone to wake.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Begins a future and drops it.
fn cancel(future: impl Future) {
    assert!(poll_once(pin!(future)).is_pending());
}

fn message(outcome: Result<impl std::fmt::Debug, Fault>, code: FaultCode) -> String {
    let fault = outcome.expect_err("a fault");
    assert_eq!(fault.code, code, "{fault}");
    fault.message
}

fn started<E: super::Exported>() -> Harness<E> {
    block_on(Harness::start(serde_json::json!({}))).expect("it starts")
}
