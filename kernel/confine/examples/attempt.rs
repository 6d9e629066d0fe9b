//! The program that the tests of this crate start confined: it tries one thing and prints `ok`, or the number of the
//! error that the system gave.

use std::{
    env,
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    net::TcpStream,
    os::{
        fd::RawFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    },
    process::exit,
};

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["calls", calls @ ..] => {
            return say(&calls.iter().map(|call| by_number(call)).collect::<Vec<_>>().join(" "));
        }
        ["descriptors"] => return say(&descriptors()),
        ["user"] => return say(&user()),
        ["answer", number] => answer(parse(number)),
        ["chains", count] => chains(parse(count)),
        ["hoard", bytes] => hoard(parse(bytes)),
        ["threads", count] => threads(parse(count)),
        args => attempt(args),
    };
    say(&shown(result));
}

/// Tries one thing.
fn attempt(args: &[&str]) -> io::Result<()> {
    match args {
        ["read", path] => fs::File::open(path)?.read(&mut [0; 16]).map(drop),
        ["follow", link] => fs::read_link(link).map(drop),
        ["list", path] => fs::read_dir(path).map(drop),
        ["write", path] => OpenOptions::new().append(true).create(true).open(path).map(drop),
        ["remove", path] => fs::remove_file(path),
        ["rename", from, to] => fs::rename(from, to),
        ["link", from, to] => fs::hard_link(from, to),
        ["mode", path] => fs::set_permissions(path, fs::metadata(path)?.permissions()),
        ["mode_of_own", path] => {
            let file = OpenOptions::new().append(true).create(true).open(path)?;
            file.set_permissions(file.metadata()?.permissions())
        }
        ["give", path] => {
            std::os::unix::fs::fchown(OpenOptions::new().append(true).open(path)?, Some(12345), None)
        }
        ["unix", path] => UnixStream::connect(path).map(drop),
        ["abstract", name] => UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?).map(drop),
        ["abstract_by", number, name] => connect_abstract(parse(number), name),
        ["pair"] => pair(),
        ["tcp", port] => TcpStream::connect(("127.0.0.1", parse(port))).map(drop),
        ["tcp_by", number, port] => connect_tcp(parse(number), parse(port)),
        ["lookup", name] => std::net::ToSocketAddrs::to_socket_addrs(&(*name, 1)).map(drop),
        ["kill", pid] => result(call_kernel(libc::SYS_kill, &[parse(pid), 0])),
        ["attach", pid] => attach(parse(pid)),
        ["peek", pid, address] => peek(parse(pid), parse(address)),
        ["memory", bytes] => memory(parse(bytes), libc::MAP_PRIVATE).map(drop),
        ["shared", bytes] => memory(parse(bytes), libc::MAP_SHARED).map(drop),
        ["growing", bytes] => memory(parse(bytes), libc::MAP_PRIVATE | libc::MAP_GROWSDOWN).map(drop),
        ["nameless"] => result(call_kernel(libc::SYS_memfd_create, &[c"x".as_ptr() as i64, 0])),
        ["nice", least] => {
            // The call answers 20 less what people know as niceness.
            let nice = 20 - call_kernel(libc::SYS_getpriority, &[0, 0]);
            if nice == parse::<i64>(least) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ERANGE)) }
        }
        ["second_table"] => second_table(),
        ["as_32_bits"] => as_32_bits(),
        _ => exit(2),
    }
}

fn say(text: &str) {
    if writeln!(io::stdout(), "{text}").is_err() {
        exit(3);
    }
}

fn shown(result: io::Result<()>) -> String {
    result.map_or_else(|error| error.raw_os_error().unwrap_or(-1).to_string(), |()| "ok".to_owned())
}

fn parse<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| exit(2))
}

fn call_kernel(number: i64, arguments: &[i64]) -> i64 {
    let argument = |at: usize| arguments.get(at).copied().unwrap_or_default();
    // SAFETY: the tests pass numbers and addresses that are null, invalid, or valid for what the call does; what a
    // wrong one breaks is this process, which tries one thing and ends.
    unsafe {
        libc::syscall(number, argument(0), argument(1), argument(2), argument(3), argument(4), argument(5))
    }
}

fn result(returned: i64) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `NUMBER,ARGUMENT,…`: makes the call.
fn by_number(call: &str) -> String {
    let numbers: Vec<i64> = call.split(',').map(parse).collect();
    shown(result(call_kernel(numbers[0], &numbers[1..])))
}

/// The numbers of the open descriptors. Asked one by one: a list of them would be one more.
fn descriptors() -> String {
    let open = |number: &i64| call_kernel(libc::SYS_fcntl, &[*number, libc::F_GETFD.into()]) >= 0;
    (0..4096).filter(open).map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
}

/// The effective user, and whether a program file can give more rights.
fn user() -> String {
    let no_new_privileges = call_kernel(libc::SYS_prctl, &[libc::PR_GET_NO_NEW_PRIVS.into()]);
    format!("{} {no_new_privileges}", call_kernel(libc::SYS_geteuid, &[]))
}

/// Answers one line on a descriptor that it was passed, closes it, and waits for the end of its input.
fn answer(number: RawFd) -> io::Result<()> {
    // SAFETY: this process has just begun and owns nothing yet.
    let mut socket = UnixStream::from(unsafe { drupe_confine::inherited(number) }?);
    let mut line = [0; 5];
    socket.read_exact(&mut line)?;
    socket.write_all(&line)?;
    drop(socket);
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}

fn pair() -> io::Result<()> {
    let (mut one, mut other) = UnixStream::pair()?;
    one.write_all(b"x")?;
    other.read_exact(&mut [0])
}

fn connect_abstract(number: RawFd, name: &str) -> io::Result<()> {
    let mut address = vec![libc::AF_UNIX as u8, 0, 0];
    address.extend_from_slice(name.as_bytes());
    connect(number, &address)
}

fn connect_tcp(number: RawFd, port: u16) -> io::Result<()> {
    let mut address = vec![libc::AF_INET as u8, 0];
    address.extend_from_slice(&port.to_be_bytes());
    address.extend_from_slice(&[127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    connect(number, &address)
}

fn connect(number: RawFd, address: &[u8]) -> io::Result<()> {
    let call = [number.into(), address.as_ptr() as i64, address.len() as i64];
    result(call_kernel(libc::SYS_connect, &call))
}

fn attach(pid: i64) -> io::Result<()> {
    result(call_kernel(libc::SYS_ptrace, &[libc::PTRACE_SEIZE.into(), pid]))?;
    result(call_kernel(libc::SYS_ptrace, &[libc::PTRACE_DETACH.into(), pid])).or(Ok(()))
}

/// Reads a byte of another process.
fn peek(pid: i64, address: i64) -> io::Result<()> {
    let mut byte = [0_u8];
    let here = [byte.as_mut_ptr() as i64, 1_i64];
    let there = [address, 1_i64];
    let call = [pid, here.as_ptr() as i64, 1, there.as_ptr() as i64, 1];
    result(call_kernel(libc::SYS_process_vm_readv, &call))
}

/// Takes so many bytes of memory, as a mapping of its own of this kind.
fn memory(bytes: i64, kind: i32) -> io::Result<i64> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, kind | libc::MAP_ANONYMOUS);
    let address = call_kernel(libc::SYS_mmap, &[0, bytes, access.into(), kind.into(), -1]);
    result(address).map(|()| address)
}

/// Holds so many bytes that no limit on memory to write counts: each part is written, then made read-only.
fn hoard(bytes: i64) -> io::Result<()> {
    const PART: i64 = 4 << 20;
    for _ in 0..bytes / PART {
        let address = memory(PART, libc::MAP_PRIVATE)?;
        for page in (0..PART).step_by(4096) {
            // SAFETY: a page of the mapping that was made above, which nothing else refers to.
            unsafe {
                std::ptr::with_exposed_provenance_mut::<u8>((address + page) as usize).write_volatile(1)
            };
        }
        result(call_kernel(libc::SYS_mprotect, &[address, PART, libc::PROT_READ.into()]))?;
    }
    pause()
}

/// Starts so many threads, which wait.
fn threads(count: usize) -> io::Result<()> {
    for _ in 0..count {
        std::thread::Builder::new().stack_size(16 * 1024).spawn(pause)?;
    }
    pause()
}

fn pause() -> io::Result<()> {
    loop {
        std::thread::park();
    }
}

/// Starts so many chains of processes without end, each of which starts the next and is gone.
fn chains(count: usize) -> io::Result<()> {
    for _ in 0..count {
        // SAFETY: this process has one thread, and its copy only starts the next one and ends.
        if unsafe { libc::fork() } == 0 {
            loop {
                // SAFETY: as above.
                if unsafe { libc::fork() } != 0 {
                    // SAFETY: ends the process without anything that it has in common with its parent.
                    unsafe { libc::_exit(0) }
                }
            }
        }
    }
    pause()
}

/// Asks for its process id by the second table of calls of x86-64.
fn second_table() -> io::Result<()> {
    result(call_kernel(libc::SYS_getpid | 0x4000_0000, &[]))
}

/// Asks for its process id as a program of 32 bits does.
#[cfg(target_arch = "x86_64")]
fn as_32_bits() -> io::Result<()> {
    const GETPID: i64 = 20;
    let mut answer = GETPID;
    // SAFETY: the call takes no arguments, touches no memory, and changes the registers named here.
    unsafe {
        std::arch::asm!("int 0x80", inout("rax") answer, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    result(answer)
}

#[cfg(not(target_arch = "x86_64"))]
fn as_32_bits() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
