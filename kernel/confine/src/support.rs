//! What the running kernel can enforce, asked before anything is started.

use crate::{filter, restrict};

/// What the running kernel can enforce. A caller that must not start anything unconfined asks once, and tells the
/// operator what is [missing](Support::missing).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Support {
    /// The version of Landlock: 1 binds files, 4 TCP, 6 signals and abstract sockets; 0 where there is none.
    pub landlock: i32,
    /// Whether system calls can be filtered.
    pub seccomp: bool,
}

/// Asks the kernel. Cheap, without an effect on this process.
pub fn support() -> Support {
    Support { landlock: restrict::landlock_version(), seccomp: filter::available() }
}

impl Support {
    /// Why a [strict](crate::Profile::strict) profile would be refused here, as a sentence for the operator; nothing
    /// if it would not.
    pub fn missing(&self) -> Option<String> {
        let landlock = match self.landlock {
            0 => Some(
                "Landlock is missing (it came with Linux 5.13 and must be in the kernel's `lsm=` list)"
                    .into(),
            ),
            old @ 1..=5 => {
                Some(format!("Landlock has version {old}, and signals are bound from 6 on (Linux 6.12)"))
            }
            _ => None,
        };
        let seccomp = (!self.seccomp).then(|| "system calls cannot be filtered (seccomp)".to_owned());
        let missing: Vec<String> = landlock.into_iter().chain(seccomp).collect();
        (!missing.is_empty()).then(|| format!("this system cannot confine programs: {}", missing.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_in_a_sentence() {
        let missing = |landlock, seccomp| Support { landlock, seccomp }.missing().unwrap_or_default();
        assert_eq!(missing(6, true), "");
        assert_eq!(missing(9, true), "");
        assert!(missing(0, true).contains("Landlock is missing"));
        assert!(missing(4, true).contains("version 4"));
        assert!(missing(6, false).contains("seccomp"));
        assert!(missing(3, false).contains("version 3") && missing(3, false).contains("seccomp"));
    }
}
