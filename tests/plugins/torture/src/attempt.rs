//! One thing that a confined process must not do, and the error that the system gives for it.

use std::{
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
            What::Allocate => map(number(argument)?),
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

fn map(bytes: usize) -> Result<()> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
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
