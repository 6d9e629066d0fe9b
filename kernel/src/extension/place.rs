//! Where the code of an extension runs, and what it may do there.

use drupe_config::{Isolation, Manifest, Right};
use drupe_folders::discovery::Origin;
use drupe_host::{Bounds, HostProcess, Place, own_program};

use crate::kernel::Kernel;

/// What its manifest asks for, else what its origin is trusted with; one that may have ended a kernel runs apart.
pub fn isolation(kernel: &Kernel, origin: Origin, manifest: &Manifest) -> Isolation {
    if kernel.verdicts().suspects.iter().any(|suspect| suspect == manifest.id.as_str()) {
        return Isolation::Process;
    }
    let usual = if origin == Origin::Shipped { Isolation::Inproc } else { Isolation::Process };
    manifest.isolation.unwrap_or(usual)
}

/// Whether what it starts, its own process first, may use TCP.
pub fn has_network(kernel: &Kernel, manifest: &Manifest) -> bool {
    manifest.rights.contains(&Right::Network) || kernel.config.sandbox.hosts.network.contains(&manifest.id)
}

/// Where its code is to run.
pub fn place(kernel: &Kernel, manifest: &Manifest, isolation: Isolation) -> Result<Place, String> {
    if isolation == Isolation::Inproc {
        return Ok(Place::Inproc);
    }
    let sandbox = &kernel.config.sandbox;
    let data = kernel.home.make_data(&manifest.id)?;
    let program = &own_program(&kernel.start.exe);
    Ok(Place::Process(HostProcess::confined(&Bounds {
        exe: program,
        read: &[&manifest.folder, &kernel.home.libraries(), program],
        write: &[&data, kernel.home.workspace()],
        memory: u64::from(sandbox.hosts.memory_mb) * 1024 * 1024,
        network: has_network(kernel, manifest),
        strict: !sandbox.allow_unconfined,
    })))
}
