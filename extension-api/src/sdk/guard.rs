//! Panics of an extension's code become values.
//!
//! The tables of the boundary end the process when a panic reaches them, and so does a future that panics
//! while it is dropped. Therefore everything of the author's runs inside [`catch`] or [`Guarded`]. A library
//! has its own copy of `std` and so its own panic hook: the one installed here notes message and place, and
//! leaves the kernel's alone.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    fmt,
    future::Future,
    panic::{self, AssertUnwindSafe, PanicHookInfo},
    pin::Pin,
    sync::{Arc, Once},
    task::{Context, Poll},
};

use super::shared::{self, Origin, Shared};
use crate::{Fault, FaultCode};

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A panic that was caught, or seen by the hook.
#[derive(Debug, Clone)]
pub(crate) struct Panic {
    message: String,
    place: Option<String>,
}

impl Panic {
    /// As a fault; `what` names the author's thing: ``tool `words_count` ``.
    pub(crate) fn fault(&self, what: &str) -> Fault {
        Fault::new(FaultCode::Panicked, format!("{what} {self}"))
            .help("this is a fault of the extension: report it to its author")
    }

    fn seen(info: &PanicHookInfo<'_>) -> Self {
        let place = info.location().map(ToString::to_string);
        Self { message: text(info.payload()), place }
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "panicked at {place}: {}", self.message),
            None => write!(f, "panicked: {}", self.message),
        }
    }
}

thread_local! {
    /// How many [`catch`] are on this thread's stack.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static NOTED: RefCell<Option<Panic>> = const { RefCell::new(None) };
    /// The call whose future this thread polls.
    static BEHALF: RefCell<Option<Arc<Origin>>> = const { RefCell::new(None) };
}

/// On whose behalf the code that runs on this thread does so: empty where no call is polled here.
pub(crate) fn behalf() -> Arc<Origin> {
    BEHALF.with_borrow(Clone::clone).unwrap_or_default()
}

/// Runs `work`; a panic in it is given back with its message and place.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(depth);
    outcome.map_err(|payload| {
        let noted = NOTED.take();
        let caught = noted.unwrap_or_else(|| Panic { message: text(&*payload), place: None });
        discard(payload);
        caught
    })
}

/// A payload may panic when it is dropped; what that panic carries is left in memory.
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(second) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
        NOTED.take();
    }
}

fn text(payload: &(dyn Any + Send)) -> String {
    let known = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    known.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "(no message)".to_owned())
}

/// Installs the hook of this library, once. Outside a guard, on a thread that the author started, it logs;
/// where there is nobody to tell, it does what the hook before it did.
pub(crate) fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let seen = Panic::seen(info);
            if DEPTH.try_with(Cell::get).is_ok_and(|depth| depth > 0) {
                // Fails only while the thread ends; the panic then has no place.
                let _ = NOTED.try_with(|noted| noted.replace(Some(seen)));
            } else {
                // What it says may hold a secret: the kernel takes that out, and the standard error stream does not.
                if !shared::report_to_all(&format!("a thread of the extension {seen}")) {
                    previous(info);
                }
            }
        }));
    });
}

/// A future whose polls and drop are guarded, and which has the extension's runtime around both.
pub(crate) struct Guarded<T> {
    shared: Arc<Shared>,
    what: Box<str>,
    behalf: Option<Arc<Origin>>,
    inner: Option<BoxFuture<'static, T>>,
}

impl<T> Guarded<T> {
    pub(crate) fn new(shared: Arc<Shared>, what: Box<str>, inner: BoxFuture<'static, T>) -> Self {
        Self { shared, what, behalf: None, inner: Some(inner) }
    }

    /// What is asked of the kernel while this is polled is asked on behalf of a call.
    pub(crate) fn on_behalf_of(mut self, origin: Origin) -> Self {
        self.behalf = Some(Arc::new(origin));
        self
    }

    fn end(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        self.shared.discard(&self.what, inner);
    }
}

impl<T> Future for Guarded<T> {
    type Output = Result<T, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(inner) = this.inner.as_mut() else {
            return Poll::Ready(Err(Fault::internal("a call was polled after its end")));
        };
        let outcome = {
            let _inside = this.shared.enter();
            let outer = BEHALF.replace(this.behalf.clone());
            let outcome = catch(|| inner.as_mut().poll(cx));
            BEHALF.set(outer);
            outcome
        };
        let outcome = match outcome {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(value)) => Ok(value),
            Err(panic) => {
                let fault = panic.fault(&this.what);
                this.shared.report(&fault.message);
                Err(fault)
            }
        };
        this.end();
        Poll::Ready(outcome)
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        self.end();
    }
}
