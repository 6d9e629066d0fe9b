//! The methods that stream: one implementation for whoever pulls it, a client on the control socket or an extension by a
//! handle. What each of them asks, what they must be able to do, and what they are given is the same.

use std::sync::Arc;

use drupe_bus::{Events, Kept};
use drupe_extension_api::{
    Event, Fault, SessionId,
    control::{EventsSubscribe, Power, method},
    wire::host,
};
use drupe_handles::Source;
use drupe_journal::Store;
use drupe_surface::principal::Principal;
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::value::RawValue;

use crate::kernel::Kernel;

type Opened = Result<Box<dyn Source>, Fault>;

/// A method that streams.
pub struct Stream {
    /// Its name.
    pub name: &'static str,
    /// What whoever asks must be able to do.
    pub needs: Power,
    open: fn(&Kernel, &Principal, &RawValue) -> Opened,
}

/// The table; [`method::STREAMING`] has their names, for who knows no kernel.
pub static STREAMS: &[Stream] =
    &[Stream { name: method::EVENTS_SUBSCRIBE, needs: Power::Read, open: events }];

/// Opens a method that streams.
pub fn open(kernel: &Kernel, by: &Principal, name: &str, params: &RawValue) -> Opened {
    let Some(stream) = STREAMS.iter().find(|stream| stream.name == name) else {
        return Err(Fault::unsupported(name).help(format!(
            "`{}` opens methods that stream, which are: {}",
            host::CONTROL_OPEN,
            method::STREAMING.join(", ")
        )));
    };
    by.needs(stream.needs, name)?;
    (stream.open)(kernel, by, params)
}

/// Refuses a method that streams where one answer is expected.
pub fn refuse(name: &str) -> Result<(), Fault> {
    match method::STREAMING.contains(&name) {
        false => Ok(()),
        true => {
            Err(Fault::unsupported(name).help(format!("it streams: open it by `{}`", host::CONTROL_OPEN)))
        }
    }
}

fn events(kernel: &Kernel, by: &Principal, params: &RawValue) -> Opened {
    let ask: EventsSubscribe = super::methods::take(params)?;
    by.reaches(&ask.session)?;
    let kept = Arc::new(Rows(kernel.store.clone()));
    Ok(Box::new(Events::new(&kernel.roster.bus, kept, Arc::clone(&kernel.base.clock), ask)))
}

/// The journal, for the events that it keeps.
struct Rows(Store);

impl Kept for Rows {
    fn events_after<'a>(
        &'a self,
        session: &'a SessionId,
        after: u64,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, Fault>> {
        async move { Ok(self.0.events_after(session, after, most).await?) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_to_stream_is_what_does() {
        let names: Vec<_> = STREAMS.iter().map(|stream| stream.name).collect();
        assert_eq!(names, method::STREAMING);
        assert!(refuse("status").is_ok());
    }
}
