//! The places in a home that supervisor, kernel and command line must agree on.
//!
//! Only names, and the one way to reach the daemon that serves a home. What is in the folders is their owners'.

use std::{
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use rustix::{net::sockopt::socket_peercred, process::geteuid};

/// The longest path of a socket: 108 bytes with the zero at its end.
const MAX_SOCKET_PATH: usize = 107;

/// The folder of one daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    path: PathBuf,
}

impl Home {
    /// Names a home, which need not exist yet. Two spellings of one folder are the same home once it does.
    pub fn new(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = std::path::absolute(path.as_ref())?;
        Ok(Self { path: fs::canonicalize(&path).unwrap_or(path) })
    }

    /// Makes the home with its `state` and `run` folders for the owner alone, where they are missing.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        make_private(path.as_ref())?;
        let home = Self::new(path)?;
        make_private(&home.state())?;
        make_private(&home.run())?;
        Ok(home)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `HOME/state`: what the supervisor remembers.
    pub fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    /// `HOME/run`: what exists while a daemon runs.
    pub fn run(&self) -> PathBuf {
        self.path.join("run")
    }

    /// The locked file that holds the supervisor's process id.
    pub fn lock(&self) -> PathBuf {
        self.run().join("lock")
    }

    /// The file that holds the token of the control socket.
    pub fn token(&self) -> PathBuf {
        self.run().join("token")
    }

    /// The last configuration with which a kernel became ready.
    pub fn good_config(&self) -> PathBuf {
        self.state().join("drupe.good.yaml")
    }

    /// The control socket: `HOME/run/control.sock`, or, where that is too long for a socket address, a name made
    /// of the home's hash in the user's runtime folder.
    ///
    /// The runtime folder is not taken from the environment: a service and a shell of the same user must find
    /// each other.
    pub fn socket(&self) -> PathBuf {
        let direct = self.run().join("control.sock");
        if direct.as_os_str().len() <= MAX_SOCKET_PATH {
            return direct;
        }
        let hash = fnv(self.path.as_os_str().as_bytes());
        runtime_folder().join(format!("{hash:016x}.sock"))
    }

    /// Makes the folder of the control socket and refuses one that somebody else could have made.
    pub fn prepare_socket_folder(&self) -> io::Result<()> {
        let socket = self.socket();
        let folder = socket.parent().unwrap_or(&self.path);
        make_private(folder)?;
        let found = fs::symlink_metadata(folder)?;
        if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("`{}` belongs to another user or is writable for others", folder.display()),
            ));
        }
        Ok(())
    }

    /// The process id that the lock file names; none if it has none. The process may be gone.
    pub fn lock_holder(&self) -> Option<u32> {
        fs::read_to_string(self.lock()).ok()?.trim().parse().ok()
    }

    /// Connects to the daemon of this home. Refuses a listener of another user than the one who owns the token,
    /// since a client sends that token first.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let owner = fs::metadata(self.token())?.uid();
        let stream = UnixStream::connect(self.socket())?;
        let peer = socket_peercred(&stream)?;
        if peer.uid.as_raw() != owner {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("the control socket of `{}` is served by another user", self.path.display()),
            ));
        }
        Ok(stream)
    }
}

fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// `/run/user/UID` where the system made one, else a folder of ours below `/tmp`.
fn runtime_folder() -> PathBuf {
    let uid = geteuid().as_raw();
    let system = PathBuf::from(format!("/run/user/{uid}"));
    match fs::metadata(&system) {
        Ok(found) if found.is_dir() && found.uid() == uid => system.join("drupe"),
        _ => PathBuf::from(format!("/tmp/drupe-{uid}")),
    }
}

/// FNV-1a, 64 bits. The standard library's hash may change between releases of the compiler, and an upgraded
/// client must find a daemon that still runs. Nobody gains by a collision: the homes are one user's.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::ControlToken;

    #[test]
    fn a_new_home_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::create(folder.path().join("a/b")).unwrap();
        for path in [home.path(), &home.state(), &home.run()] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o700, "{}", path.display());
        }
    }

    #[test]
    fn a_short_home_has_its_socket_inside() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::create(folder.path()).unwrap();
        assert_eq!(home.socket(), home.path().join("run/control.sock"));
    }

    #[test]
    fn a_long_home_is_reached_through_a_hashed_name() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::create(folder.path().join("x".repeat(120))).unwrap();
        let other = Home::create(folder.path().join("y".repeat(120))).unwrap();
        assert!(home.socket().as_os_str().len() <= MAX_SOCKET_PATH);
        assert_ne!(home.socket(), other.socket());

        home.prepare_socket_folder().unwrap();
        let listener = UnixListener::bind(home.socket()).unwrap();
        ControlToken::create(&home).unwrap();
        home.connect().unwrap();
        drop(listener);
        fs::remove_file(home.socket()).unwrap();
    }

    #[test]
    fn two_spellings_of_a_folder_are_one_home() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::create(folder.path().join("home")).unwrap();
        assert_eq!(Home::new(folder.path().join("home/../home/")).unwrap(), home);
    }
}
