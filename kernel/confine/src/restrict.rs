//! Gives rights up, in the process that becomes the program.
//!
//! Nothing here can be undone by the process itself or by anything that it starts.

use std::{io, os::fd::OwnedFd, path::PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2},
    process::{Resource, Rlimit, getpriority_process, getrlimit, setpriority_process, setrlimit},
    thread::{CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities},
};

use crate::{Enforcement, Limits, Profile, filter, tree};

/// The newest Landlock whose rights are asked for. An older kernel enforces those that it knows.
const NEWEST: ABI = ABI::V6;

/// Applies a profile to the calling thread, which must be the only one. `kept`: whether [`mounts`](crate::mounts) could do
/// their part.
pub fn restrict(profile: &Profile, kept: bool) -> io::Result<Enforcement> {
    limit(&profile.limits)?;
    drop_capabilities()?;
    rustix::thread::set_no_new_privs(true)?;
    let mut enforcement = landlock(profile)?;
    enforcement.kept = kept;
    // Last: it refuses some of what is done above.
    enforcement.syscalls = filter::install(profile).is_ok();
    // A program that gets no socket has no TCP either, also where Landlock does not know of it.
    enforcement.network |= enforcement.syscalls;
    accept(profile, &enforcement)?;
    Ok(enforcement)
}

/// Refuses what is less than a strict profile asks for.
fn accept(profile: &Profile, enforcement: &Enforcement) -> io::Result<()> {
    let open = enforcement.open();
    if !profile.strict || open.is_empty() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        format!(
            "this kernel cannot confine the program as asked (Landlock version {}): {} would stay open",
            enforcement.landlock,
            open.join(", ")
        ),
    ))
}

/// The version of Landlock in the running kernel; 0 where there is none, or where it is not switched on.
pub fn landlock_version() -> i32 {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the kernel wants no attributes, and the call returns a number and changes nothing.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION) };
    i32::try_from(version).unwrap_or(0).max(0)
}

/// Takes what root can do beyond the files that it owns. With `no_new_privs` no later program gets it back.
fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    clear_ambient_capability_set()?;
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

fn limit(limits: &Limits) -> io::Result<()> {
    // The system counts by user and not by tree. It holds at once, where a look at the tree comes late; root is not bound by it.
    // Twice as many, so that whoever has too many is seen to have them and ended, and not left with what fails.
    let of_user = limits.tree_tasks.map(|most| 2 * most + tree::tasks_of_user());
    let all = [
        (Resource::Core, Some(0)),
        (Resource::Cpu, limits.cpu_seconds),
        (Resource::Data, limits.data),
        (Resource::As, limits.address_space),
        (Resource::Nofile, limits.open_files),
        (Resource::Fsize, limits.file_size),
        (Resource::Nproc, limits.processes.or(of_user)),
    ];
    for (resource, value) in all {
        let Some(value) = value else { continue };
        let value = getrlimit(resource).maximum.map_or(value, |most| most.min(value));
        setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    }
    if let Some(nice) = limits.nice {
        setpriority_process(None, getpriority_process(None)?.max(i32::from(nice).min(19)))?;
    }
    Ok(())
}

fn landlock(profile: &Profile) -> io::Result<Enforcement> {
    let (read, write) = (unlinked(&profile.read_unlinked)?, unlinked(&profile.write_unlinked)?);
    rules(profile, read, write).map_err(io::Error::other)
}

/// Opens paths on which there must be no link.
pub fn unlinked(paths: &[PathBuf]) -> io::Result<Vec<OwnedFd>> {
    let open = |path: &PathBuf| {
        let (flags, resolve) = (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::NO_SYMLINKS);
        openat2(CWD, path, flags, Mode::empty(), resolve)
            .map_err(|error| io::Error::new(error.kind(), format!("`{}`: {error}", path.display())))
    };
    paths.iter().map(open).collect()
}

fn rules(profile: &Profile, read: Vec<OwnedFd>, write: Vec<OwnedFd>) -> Result<Enforcement, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?;
    if !profile.network {
        ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST))?;
    }
    let ruleset = allow(ruleset.create()?, &profile.read, AccessFs::from_read(NEWEST))?;
    let mut ruleset = allow(ruleset, &profile.write, AccessFs::from_all(NEWEST))?;
    for (folders, access) in [(read, AccessFs::from_read(NEWEST)), (write, AccessFs::from_all(NEWEST))] {
        for found in folders {
            ruleset = ruleset.add_rule(PathBeneath::new(&found, fitting(&found, access)))?;
        }
    }
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
        syscalls: false,
        kept: false,
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

/// A rule for a file must not name rights that only folders have.
fn fitting(found: &OwnedFd, access: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    let folder = fstat(found).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
    if folder { access } else { access & AccessFs::from_file(NEWEST) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strict_profile_is_refused_where_anything_would_stay_open() {
        let all =
            Enforcement { files: true, network: true, scope: true, syscalls: true, kept: true, landlock: 6 };
        let strict = Profile { strict: true, ..Profile::default() };
        assert!(accept(&strict, &all).is_ok());
        for (lacking, word) in [
            (Enforcement { files: false, ..all }, "files"),
            (Enforcement { network: false, ..all }, "TCP"),
            (Enforcement { scope: false, ..all }, "signals"),
            (Enforcement { syscalls: false, ..all }, "system calls"),
            (Enforcement { kept: false, ..all }, "what is to stay as it is"),
        ] {
            let refused = accept(&strict, &lacking).expect_err("it is not complete");
            assert!(refused.to_string().contains(&format!("{word} would stay open")), "{refused}");
            assert!(accept(&Profile::default(), &lacking).is_ok());
        }
    }
}
