//! The places in a home that supervisor, kernel and command line must agree on.
//!
//! Only names, and the one way to reach the daemon that serves a home. What is in the folders is their owners'.

use std::{
    fs, io,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{DirBuilderExt, MetadataExt, PermissionsExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, open},
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
        sockopt::socket_peercred,
    },
    process::geteuid,
};

/// The longest path of a socket: 108 bytes with the zero at its end.
const MAX_SOCKET_PATH: usize = 107;
/// The name of the control socket in its folder.
const SOCKET: &str = "control.sock";

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
        home.make_folders()?;
        Ok(home)
    }

    /// Makes `state` and `run` of a home that exists, where they are missing.
    pub fn make_folders(&self) -> io::Result<()> {
        [self.state(), self.run()].iter().try_for_each(|folder| {
            match fs::DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                made => made,
            }
        })
    }

    /// Takes from others what they may do in a home that somebody made open, and says so: what lies there is private, and
    /// what others write there would count as the operator's.
    pub fn close_to_others(&self) -> Option<String> {
        let home = self.path();
        let mode = fs::metadata(home).ok()?.mode() & 0o777;
        if mode & 0o077 == 0 {
            return None;
        }
        let home_shown = home.display();
        Some(match fs::set_permissions(home, fs::Permissions::from_mode(0o700)) {
            Ok(()) if mode & 0o022 == 0 => {
                format!(
                    "`{home_shown}` could be read by others (mode {mode:o}); it is open to its owner alone now"
                )
            }
            Ok(()) => format!(
                "`{home_shown}` could be changed by others (mode {mode:o}); it is open to its owner alone now: look whether \
                 everything in it is yours"
            ),
            Err(error) => {
                format!(
                    "`{home_shown}` is open to others (mode {mode:o}) and stays so: {error}; `chmod 700` it"
                )
            }
        })
    }

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

    /// The file that names the supervisor's process, for people: what keeps others out is the
    /// [lock](crate::HomeLock).
    pub fn pid_file(&self) -> PathBuf {
        self.run().join("pid")
    }

    /// The file that holds the token of the control socket.
    pub fn token(&self) -> PathBuf {
        self.run().join("token")
    }

    /// The last configuration with which a kernel became ready.
    pub fn good_config(&self) -> PathBuf {
        self.state().join("drupe.good.yaml")
    }

    pub fn socket(&self) -> PathBuf {
        self.run().join(SOCKET)
    }

    /// Listens there, in a folder that nobody else could have made.
    pub fn listen(&self) -> io::Result<UnixListener> {
        let folder = self.run();
        let found = fs::symlink_metadata(&folder)?;
        if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("`{}` belongs to another user or is writable for others", folder.display()),
            ));
        }
        self.at_socket(|path| UnixListener::bind(path))
    }

    /// Connects to the daemon of this home. Refuses a listener of another user than the one who owns the token,
    /// since a client sends that token first.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let owner = fs::metadata(self.token())?.uid();
        let stream = self.at_socket(|path| UnixStream::connect(path))?;
        let peer = socket_peercred(&stream)?;
        if peer.uid.as_raw() != owner {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("the control socket of `{}` is served by another user", self.path.display()),
            ));
        }
        Ok(stream)
    }

    /// Connects without waiting, now or later: a full queue of connections is an error.
    pub fn connect_at_once(&self) -> io::Result<UnixStream> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        self.at_socket(|path| Ok(connect(&socket, &SocketAddrUnix::new(path)?)?))?;
        Ok(socket.into())
    }

    /// Uses the path of the socket. Where it is too long for an address it leads through a descriptor of its folder, so
    /// that the socket of a home is in the home, whatever that is called.
    fn at_socket<T>(&self, using: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let direct = self.socket();
        if direct.as_os_str().len() <= MAX_SOCKET_PATH {
            return using(&direct);
        }
        let folder = open(self.run(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        using(&PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd())))
    }
}

fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

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
    fn a_long_home_has_its_socket_inside_as_well_and_is_reached_there() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::create(folder.path().join("x".repeat(120))).unwrap();
        assert!(home.socket().as_os_str().len() > MAX_SOCKET_PATH);
        let listener = home.listen().unwrap();
        assert!(fs::symlink_metadata(home.socket()).unwrap().file_type().is_socket());
        ControlToken::create(&home).unwrap();
        home.connect().unwrap();
        home.connect_at_once().unwrap();
        drop(listener);
        assert_eq!(home.connect().unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_folder_that_others_may_write_to_holds_no_socket() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::create(folder.path()).unwrap();
        fs::set_permissions(home.run(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(home.listen().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn two_spellings_of_a_folder_are_one_home() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::create(folder.path().join("home")).unwrap();
        assert_eq!(Home::new(folder.path().join("home/../home/")).unwrap(), home);
    }
}
