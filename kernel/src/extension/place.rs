//! Where the code of an extension runs, and what it may do there.

use std::{collections::BTreeMap, ffi::OsString};

use drupe_config::{Isolation, Manifest};
use drupe_confine::{Limits, Profile};
use drupe_folders::discovery::Origin;
use drupe_host::{HostProcess, Place};

use crate::kernel::Kernel;

/// Lets its name resolution use TCP: other sockets are denied to a confined process.
const RESOLVE: (&str, &str) = ("RES_OPTIONS", "use-vc");

/// Open files of one process.
const FILES: u64 = 1024;

/// What an isolation is called.
pub fn name(isolation: Isolation) -> String {
    match isolation {
        Isolation::Inproc => "inproc".into(),
        _ => "process".into(),
    }
}

/// What its manifest asks for, else what its origin is trusted with; one that may have ended a kernel runs apart.
pub fn isolation(kernel: &Kernel, origin: Origin, manifest: &Manifest) -> Isolation {
    if kernel.verdicts().suspects.iter().any(|suspect| suspect == manifest.id.as_str()) {
        return Isolation::Process;
    }
    let usual = if origin == Origin::Shipped { Isolation::Inproc } else { Isolation::Process };
    manifest.isolation.unwrap_or(usual)
}

/// Where its code is to run.
pub fn place(kernel: &Kernel, manifest: &Manifest, isolation: Isolation) -> Result<Place, String> {
    if isolation == Isolation::Inproc {
        return Ok(Place::Inproc);
    }
    let sandbox = &kernel.config.sandbox;
    let data = kernel.home.data(&manifest.id);
    std::fs::create_dir_all(&data)
        .map_err(|error| format!("`{}` cannot be made: {error}", data.display()))?;
    let network = sandbox.hosts.network.contains(&manifest.id);
    let profile = Profile {
        limits: Limits {
            data: Some(u64::from(sandbox.hosts.memory_mb) * 1024 * 1024),
            open_files: Some(FILES),
            ..Limits::default()
        },
        strict: !sandbox.allow_unconfined,
        ..Profile::program()
            .read(&manifest.folder)
            .read(kernel.home.libraries())
            .read(&kernel.start.exe)
            .write(&data)
            .write(kernel.home.workspace())
            .network(network)
    };
    let mut env = BTreeMap::new();
    if network {
        env.insert(RESOLVE.0.to_owned(), OsString::from(RESOLVE.1));
    }
    Ok(Place::Process(HostProcess { exe: kernel.start.exe.clone(), profile, env, directory: data }))
}
