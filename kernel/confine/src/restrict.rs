//! Gives rights up, in the process that becomes the program.
//!
//! Nothing here can be undone by the process itself or by anything that it starts.

use std::{io, path::PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{Enforcement, Limits, Profile};

/// The newest Landlock whose rights are asked for. An older kernel enforces those that it knows.
const NEWEST: ABI = ABI::V6;

/// Applies a profile to the calling thread, which must be the only one.
pub fn restrict(profile: &Profile) -> io::Result<Enforcement> {
    limit(&profile.limits)?;
    rustix::thread::set_no_new_privs(true)?;
    let enforcement = landlock(profile).map_err(io::Error::other)?;
    if profile.strict && !enforcement.complete() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "this kernel cannot confine the program as asked (Landlock version {}): {}",
                enforcement.landlock,
                missing(&enforcement)
            ),
        ));
    }
    Ok(enforcement)
}

fn missing(enforcement: &Enforcement) -> String {
    let all = [(enforcement.files, "files"), (enforcement.network, "TCP"), (enforcement.scope, "signals")];
    let missing: Vec<_> = all.iter().filter(|(enforced, _)| !enforced).map(|(_, name)| *name).collect();
    format!("{} would stay open", missing.join(", "))
}

fn limit(limits: &Limits) -> io::Result<()> {
    let all = [
        (Resource::Core, Some(0)),
        (Resource::Cpu, limits.cpu_seconds),
        (Resource::As, limits.address_space),
        (Resource::Nofile, limits.open_files),
        (Resource::Fsize, limits.file_size),
        (Resource::Nproc, limits.processes),
    ];
    for (resource, value) in all {
        let Some(value) = value else { continue };
        let value = getrlimit(resource).maximum.map_or(value, |most| most.min(value));
        setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    }
    Ok(())
}

fn landlock(profile: &Profile) -> Result<Enforcement, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?;
    if !profile.network {
        ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST))?;
    }
    let ruleset = allow(ruleset.create()?, &profile.read, AccessFs::from_read(NEWEST))?;
    let ruleset = allow(ruleset, &profile.write, AccessFs::from_all(NEWEST))?;
    let status = ruleset.restrict_self()?;
    let abi = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi as i32,
        _ => 0,
    };
    // Files, TCP and scopes came with these versions of Landlock.
    Ok(Enforcement {
        files: abi >= ABI::V1 as i32,
        network: profile.network || abi >= ABI::V4 as i32,
        scope: abi >= ABI::V6 as i32,
        landlock: abi,
    })
}

/// Allows `access` beneath each path that exists.
fn allow(
    mut ruleset: RulesetCreated,
    paths: &[PathBuf],
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    for path in paths {
        let Ok(found) = PathFd::new(path) else { continue };
        // A rule for a file must not name rights that only folders have.
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
        ruleset = ruleset.add_rule(PathBeneath::new(found, access))?;
    }
    Ok(ruleset)
}
