//! The unit that systemd is given, as text. Pure.
//!
//! What confines the unit must leave drupe the means to confine what it starts: its own namespaces of users and mounts,
//! `openat2`, and a view of who owns which file. `docs/decisions/0058-installation.md` says what is left out for that.

use std::{fmt::Write as _, path::Path};

/// The first line. A unit without it is somebody else's.
pub const MARKER: &str = "# Written by `drupe service install`, and taken away by `drupe service remove`.";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// That of the manager of a user's services, which is that user's already.
    User,
    /// The machine's, run as this user.
    System(String),
}

/// What a unit is made of. All paths are absolute.
#[derive(Debug)]
pub struct UnitFile<'a> {
    pub program: &'a Path,
    pub home: &'a Path,
    pub config: Option<&'a Path>,
    pub whose: Whose,
    /// Names of credentials and the files that hold them.
    pub credentials: &'a [(String, String)],
    /// Where else the daemon writes: parts of its home that are links.
    pub written: &'a [std::path::PathBuf],
}

/// A path that no unit file can hold.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot stand in a unit file: it is not text, or holds a control character")]
pub struct Unwritable(String);

/// How both kinds of service run, ends and are watched.
const RUNS: &str = "\
ExecReload=kill -HUP $MAINPID
# The supervisor asks the kernel to drain; a signal to both would end the kernel in the middle of its turns.
KillMode=mixed
# A daemon whose configuration lets turns take longer says so when it stops.
TimeoutStopSec=60
# The daemon says that it lives as long as its journal writes. A slow disk may take a while.
WatchdogSec=60
Restart=on-failure
# A start that finds no room on the disk ends with 75. Five ends within ten seconds, and systemd would try no more.
RestartSec=5
# 1 means that somebody asked for the stop, and that it had to be forced; 74 that the journal is damaged or of another release.
RestartPreventExitStatus=1 69 73 74 78
# A program of an agent that the machine has no memory for is that program's end, and not the daemon's.
OOMPolicy=continue
UMask=0077
";

/// What filters of system calls keep from the daemon and from all that it starts. None of it needs a namespace.
const FILTERS: &str = "\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
# drupe closes what lies around an agent's programs by mounts of their own.
RestrictNamespaces=user mnt
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=~@clock @cpu-emulation @module @obsolete @raw-io @reboot @swap
SystemCallErrorNumber=EPERM
";

/// What a service of the machine is denied beyond that.
const CLOSED: &str = "\
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=read-only
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
";

impl UnitFile<'_> {
    pub fn text(&self) -> Result<String, Unwritable> {
        let mut run = format!("{} run --home {}", quoted(self.program)?, argument(self.home)?);
        if let Some(config) = self.config {
            let _ = write!(run, " --config {}", argument(config)?);
        }
        let mut text = format!("{MARKER}\n[Unit]\nDescription=drupe, an assistant that stays up\n");
        text.push_str("Documentation=man:drupe(1)\n");
        if self.whose != Whose::User {
            text.push_str("Wants=network-online.target\nAfter=network-online.target\n");
        }
        let _ = write!(text, "\n[Service]\nType=notify\nNotifyAccess=main\nExecStart={run}\n{RUNS}");
        for (name, file) in self.credentials {
            let _ = writeln!(text, "LoadCredential={name}:{}", plain(Path::new(file))?);
        }
        text.push('\n');
        text.push_str(FILTERS);
        if let Whose::System(user) = &self.whose {
            let _ = writeln!(text, "User={user}");
            text.push_str(CLOSED);
            match self.state_folder() {
                Some(name) => {
                    let _ = writeln!(text, "StateDirectory={name}\nStateDirectoryMode=0700");
                }
                None => {
                    let _ = writeln!(text, "ReadWritePaths={}", quoted(self.home)?);
                }
            }
            for place in self.written {
                let _ = writeln!(text, "ReadWritePaths={}", quoted(place)?);
            }
            // Its own `/tmp` would hide a home that lies there.
            let shared = ["/tmp", "/var/tmp"];
            if !shared.iter().any(|folder| self.home.starts_with(folder)) {
                text.push_str("PrivateTmp=yes\n");
            }
        }
        let target = if self.whose == Whose::User { "default.target" } else { "multi-user.target" };
        let _ = write!(text, "\n[Install]\nWantedBy={target}\n");
        Ok(text)
    }

    /// The name of the home below `/var/lib`, where systemd makes it for the service's user.
    pub fn state_folder(&self) -> Option<&str> {
        let name = self.home.strip_prefix("/var/lib").ok()?.to_str()?;
        let simple = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        (!name.is_empty() && !name.starts_with('.') && name.chars().all(simple)).then_some(name)
    }
}

/// A path as text in which systemd finds no specifier.
fn plain(path: &Path) -> Result<String, Unwritable> {
    let text = path.to_str().filter(|text| !text.chars().any(char::is_control));
    let text = text.ok_or_else(|| Unwritable(path.display().to_string()))?;
    Ok(text.replace('%', "%%"))
}

/// The same as one word, whatever it holds.
fn quoted(path: &Path) -> Result<String, Unwritable> {
    Ok(format!("\"{}\"", plain(path)?.replace('\\', "\\\\").replace('"', "\\\"")))
}

/// The same where variables are filled in.
fn argument(path: &Path) -> Result<String, Unwritable> {
    Ok(quoted(path)?.replace('$', "$$"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn unit<'a>(home: &'a Path, whose: Whose, credentials: &'a [(String, String)]) -> UnitFile<'a> {
        let (program, config, written) = (Path::new("/usr/bin/drupe"), None, &[]);
        UnitFile { program, home, config, whose, credentials, written }
    }

    fn system() -> Whose {
        Whose::System("drupe".into())
    }

    #[test]
    fn a_unit_of_a_user_has_nothing_that_needs_a_namespace_of_users() {
        let text = unit(Path::new("/home/ada/.local/share/drupe"), Whose::User, &[]).text().expect("a unit");
        assert!(text.starts_with(MARKER) && text.ends_with("WantedBy=default.target\n"), "{text}");
        // Where each of these holds, files of root seem to be nobody's, and what ships counts as a stranger's.
        for mount in ["Protect", "Private", "ReadWritePaths", "StateDirectory", "User="] {
            assert!(!text.contains(mount), "{mount}: {text}");
        }
    }

    #[test]
    fn neither_kind_is_denied_what_drupe_confines_with_or_what_libraries_and_programs_need() {
        for whose in [Whose::User, system()] {
            let text = unit(Path::new("/var/lib/drupe"), whose, &[]).text().expect("a unit");
            for key in ["MemoryDenyWriteExecute", "RestrictSUIDSGID", "PrivateUsers", "ProtectProc"] {
                assert!(!text.contains(key), "{key}");
            }
            assert!(text.contains("\nRestrictNamespaces=user mnt\n"));
        }
    }

    #[test]
    fn a_service_of_the_machine_writes_its_home_alone_wherever_that_is() {
        let check = |home: &str, expected: &[&str], absent: &str| {
            let text = unit(Path::new(home), system(), &[]).text().expect("a unit");
            for line in expected {
                assert!(text.contains(&format!("\n{line}\n")), "{home}: {line}\n{text}");
            }
            assert!(!text.contains(absent), "{home}: {absent}");
        };
        check(
            "/var/lib/drupe",
            &["User=drupe", "StateDirectory=drupe", "ProtectSystem=strict", "PrivateTmp=yes"],
            "ReadWritePaths",
        );
        check("/srv/a b", &["ReadWritePaths=\"/srv/a b\"", "PrivateTmp=yes"], "StateDirectory");
        check("/var/lib/a/b", &["ReadWritePaths=\"/var/lib/a/b\""], "StateDirectory");
        check("/tmp/home", &["ReadWritePaths=\"/tmp/home\""], "PrivateTmp");
    }

    #[test]
    fn whatever_a_path_holds_it_stays_one_word_and_means_itself() {
        let home = Path::new("/h/50% \"$HOME\" \\");
        let text = unit(home, Whose::User, &[]).text().expect("a unit");
        let line = r#"ExecStart="/usr/bin/drupe" run --home "/h/50%% \"$$HOME\" \\""#;
        assert!(text.contains(&format!("\n{line}\n")), "{text}");
        let broken = PathBuf::from("/h/a\n[Service]\nExecStart=/bin/sh");
        assert!(unit(&broken, Whose::User, &[]).text().is_err());
        let credentials = [("KEY".to_owned(), "/etc/100%".to_owned())];
        let text = unit(Path::new("/h"), Whose::User, &credentials).text().expect("a unit");
        assert!(text.contains("\nLoadCredential=KEY:/etc/100%%\n"), "{text}");
    }
}
