//! One thing that a confined process must not do, and the error that the system gives for it.

use std::{
    ffi::CString,
    fs::{self, OpenOptions},
    io::{Error, ErrorKind, Read as _, Result},
    net::{TcpStream, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixStream},
    },
    ptr,
};

use schemars::JsonSchema;
use serde::Deserialize;

/// What is tried, with what.
#[derive(Deserialize, JsonSchema)]
pub struct Attempt {
    /// What is tried.
    what: What,
    /// A path, a name, an address, a process or a number of bytes.
    argument: String,
}

#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum What {
    /// Reads the beginning of a file.
    Read,
    /// Opens a file for appending; makes it.
    Write,
    /// Removes a file.
    Remove,
    /// Lists a folder.
    List,
    /// Connects to a socket that has a path.
    Connect,
    /// Connects to a socket that has a name.
    Abstract,
    /// Sends a datagram to an address.
    Udp,
    /// Connects to an address.
    Tcp,
    /// Becomes the tracer of a process.
    Ptrace,
    /// Asks whether it may send a signal to a process.
    Kill,
    /// Takes so many bytes of memory.
    Allocate,
    /// Takes so many bytes of memory that several processes could share.
    Share,
    /// Makes a file that has no name and lies in memory.
    Nameless,
    /// Watches what happens in a folder.
    Watch,
    /// Sets the limit on files that are open to what it is.
    Limit,
}

impl Attempt {
    /// `ok`, or the name of the error.
    pub fn outcome(&self) -> String {
        self.make().map_or_else(|error| name(&error), |()| "ok".into())
    }

    fn make(&self) -> Result<()> {
        let argument = self.argument.as_str();
        match self.what {
            What::Read => fs::File::open(argument)?.read(&mut [0; 16]).map(drop),
            What::Write => OpenOptions::new().append(true).create(true).open(argument).map(drop),
            What::Remove => fs::remove_file(argument),
            What::List => fs::read_dir(argument).map(drop),
            What::Connect => UnixStream::connect(argument).map(drop),
            What::Abstract => UnixStream::connect_addr(&SocketAddr::from_abstract_name(argument)?).map(drop),
            What::Udp => UdpSocket::bind("127.0.0.1:0")?.send_to(b"x", argument).map(drop),
            What::Tcp => TcpStream::connect(argument).map(drop),
            What::Ptrace => seize(number(argument)?),
            What::Kill => kill(number(argument)?),
            What::Allocate => map(number(argument)?, libc::MAP_PRIVATE),
            What::Share => map(number(argument)?, libc::MAP_SHARED),
            What::Nameless => nameless(argument),
            What::Watch => watch(argument),
            What::Limit => limit(),
        }
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::from(ErrorKind::InvalidInput))
}

fn checked(failed: bool) -> Result<()> {
    if failed { Err(Error::last_os_error()) } else { Ok(()) }
}

fn seize(pid: libc::pid_t) -> Result<()> {
    let nothing = ptr::null_mut::<libc::c_void>();
    // SAFETY: takes a process id and no memory of this process.
    checked(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, nothing, nothing) } < 0)
}

fn kill(pid: libc::pid_t) -> Result<()> {
    // SAFETY: signal 0 only asks for permission.
    checked(unsafe { libc::kill(pid, 0) } < 0)
}

fn nameless(argument: &str) -> Result<()> {
    let name = CString::new(argument)?;
    // SAFETY: reads the name, which lives until the call returns.
    let file = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    checked(file < 0)?;
    // SAFETY: the descriptor made above, which nothing else refers to.
    checked(unsafe { libc::close(file) } < 0)
}

fn watch(folder: &str) -> Result<()> {
    let folder = CString::new(folder)?;
    // SAFETY: takes a number.
    let watches = unsafe { libc::inotify_init1(libc::IN_CLOEXEC) };
    checked(watches < 0)?;
    // SAFETY: reads the path, which lives until the call returns.
    let watch =
        checked(unsafe { libc::inotify_add_watch(watches, folder.as_ptr(), libc::IN_ALL_EVENTS) } < 0);
    // SAFETY: the descriptor made above, which nothing else refers to.
    checked(unsafe { libc::close(watches) } < 0)?;
    watch
}

fn limit() -> Result<()> {
    let mut files = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes to the value above.
    checked(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut files) } < 0)?;
    // SAFETY: reads the value above.
    checked(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files) } < 0)
}

fn map(bytes: usize, shared: libc::c_int) -> Result<()> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = shared | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping wherever the system likes, which nothing refers to and which is given back.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0) };
    checked(mapped == libc::MAP_FAILED)?;
    // SAFETY: the mapping made above.
    checked(unsafe { libc::munmap(mapped, bytes) } < 0)
}

/// The name of an error, as the system's manual has it.
fn name(error: &Error) -> String {
    let Some(code) = error.raw_os_error() else { return error.to_string() };
    match code {
        libc::EACCES => "EACCES".into(),
        libc::EAFNOSUPPORT => "EAFNOSUPPORT".into(),
        libc::ECONNREFUSED => "ECONNREFUSED".into(),
        libc::ENOENT => "ENOENT".into(),
        libc::ENOMEM => "ENOMEM".into(),
        libc::ENOSYS => "ENOSYS".into(),
        libc::EPERM => "EPERM".into(),
        libc::ESRCH => "ESRCH".into(),
        _ => format!("error {code}"),
    }
}
