//! From a file to a running instance.

use std::{collections::BTreeMap, ffi::OsString, io, net::TcpListener, path::PathBuf, sync::Arc};

use drupe_confine::{ConfineError, Profile};
use drupe_extension_abi::HostBox;
use drupe_extension_api::{ExtensionId, Fault, wire::Description};
use drupe_redact::Redactor;

use crate::{
    Ended, Instance, LibraryError,
    inproc::Inproc,
    instance::{Side, description},
    process::Process,
};

#[derive(Debug, Clone)]
pub struct Code {
    /// Whose it is.
    pub id: ExtensionId,
    /// The library: the copy that [`probe::checked`](crate::probe::checked) gave.
    pub file: PathBuf,
    pub hash: String,
    /// Sockets that it is handed, in the order of its manifest.
    pub listening: Vec<Arc<TcpListener>>,
    /// What must not stand in anything that it says.
    pub redactor: Redactor,
}

#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "one is made for each start of an extension, and moved once")]
pub enum Place {
    Inproc,
    /// In a process of its own.
    Process(HostProcess),
}

/// A process for one extension.
#[derive(Debug, Clone)]
pub struct HostProcess {
    /// drupe's own program, which must call [`child::main`](crate::child::main) under
    /// [`child::VERB`](crate::child::VERB) and [`drupe_confine::main`] under [`drupe_confine::VERB`].
    pub exe: PathBuf,
    /// What it may do. It must be able to read `exe`, the library, and what these are linked with.
    pub profile: Profile,
    /// Its whole environment.
    pub env: BTreeMap<String, OsString>,
    /// The folder it starts in.
    pub directory: PathBuf,
}

/// Why there is no instance.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The library is none that can be run here.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The library is none that can be run, says the process that was to run it; or it cannot say what it is.
    #[error("{0}")]
    Refused(Fault),
    /// The process could not be started.
    #[error("no process for extension `{id}`: {reason}")]
    Process { id: ExtensionId, reason: ConfineError },
    /// The process ended while the library was opened or described itself.
    #[error("extension `{id}` ended its process in `{}`: {}", ended.operation, ended.how)]
    Ended { id: ExtensionId, ended: Ended },
    /// The system refused a socket or a thread.
    #[error("extension `{id}` could not be opened: {reason}")]
    Io {
        id: ExtensionId,
        /// The system's words.
        reason: io::Error,
    },
}

/// Opens a library, makes an instance and asks what it is. `host` is the kernel's side, which the instance may call
/// from now on.
///
/// Takes as long as the library does: the caller sets the deadline. Dropping the future kills a process that was
/// started; in this process code that hangs cannot be ended, it keeps one blocking thread.
pub async fn open(code: Code, place: Place, host: HostBox) -> Result<(Instance, Description), OpenError> {
    let Code { id, listening, redactor, .. } = code.clone();
    let (side, described) = match place {
        Place::Inproc => {
            let inproc = Inproc::open(code, host).await?;
            let described = inproc.describe().await;
            (Side::Here(inproc), described)
        }
        Place::Process(place) => {
            let process = Process::open(&code, place, host).await?;
            let described = process.describe().await;
            if let Some(ended) = described.as_ref().err().and_then(|_| process.has_ended()) {
                return Err(OpenError::Ended { id, ended });
            }
            (Side::There(process), described)
        }
    };
    let description =
        described.and_then(|body| description(&id, &redactor.json(&body))).map_err(OpenError::Refused)?;
    Ok((Instance::new(id, side, listening, redactor), description))
}
