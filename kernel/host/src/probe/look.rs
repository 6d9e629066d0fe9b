//! Looks at a library as a daemon would take it in, and at what it says of itself, without a kernel behind it.

use std::time::Duration;

use abi_stable::sabi_trait::TD_Opaque;
use drupe_extension_abi::Host_TO;
use drupe_extension_api::wire::{Description, Initialize, op};

use super::Nobody;
use crate::{Code, Header, HostProcess, Place, open};

/// How long opening it, and how long `initialize`, may take: as in a daemon.
const LOAD: Duration = Duration::from_secs(10);
const INITIALIZE: Duration = Duration::from_secs(30);

/// What a library says of itself.
#[derive(Debug)]
pub struct Said {
    /// Once it is open.
    pub open: Description,
    /// Once it is initialized, tools and all; else why it could not be.
    pub initialized: Result<Description, String>,
}

/// Opens a library in a process of its own and initializes it, with a host that offers nothing. Whoever calls has seen to
/// it that it is [sound](super::judge). Blocks as long as that takes; the process is gone in the end.
///
/// # Errors
///
/// A sentence where it cannot be opened.
pub fn look(code: Code, place: HostProcess, given: &Initialize) -> Result<Said, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let host = Host_TO::from_value(Nobody, TD_Opaque);
        let opening = tokio::time::timeout(LOAD, open(code, Place::Process(place), host)).await;
        let opened = opening.map_err(|_| format!("it did not load within {LOAD:?}"))?;
        let (instance, description) = opened.map_err(|error| error.to_string())?;
        let header = Header { timeout: Some(INITIALIZE), ..Header::default() };
        let begun = instance.call::<serde_json::Value>(op::INITIALIZE, given, header).await;
        let initialized = match begun {
            Ok(_) => match tokio::time::timeout(LOAD, instance.describe()).await {
                Ok(described) => described.map_err(|fault| fault.to_string()),
                Err(_) => Err("it did not describe itself".to_owned()),
            },
            Err(fault) => Err(format!("`initialize` failed: {fault}")),
        };
        instance.close().await;
        Ok(Said { open: description, initialized })
    })
}
