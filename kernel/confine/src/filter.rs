//! Turns the list of refused system calls into a seccomp filter, and installs it.
//!
//! Written out rather than taken from a library: with one refusal per row, two errors and the second table of calls on
//! x86-64, the program is shorter than what it would take to tell a library. Calls that no row names are allowed by
//! their number alone, which the kernel remembers: they cost nothing more.

use std::io;

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS, sock_filter, sock_fprog,
};

use crate::{
    Profile,
    syscalls::{ALWAYS, NO_ATTRIBUTES, NO_SOCKETS, NO_UNCOUNTED_MEMORY, Refused, Rule, TCP_SOCKETS, Test},
};

/// What the kernel calls this architecture. A program for another one, such as 32-bit code, has other numbers for
/// its calls and is killed.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the filter of system calls is written for x86-64 and aarch64");

/// From here on, numbers of x86-64 mean its second table (x32). No other architecture has calls up here.
const SECOND_TABLE: u32 = 0x4000_0000;

/// Where the filter finds what: number, architecture, (address,) six arguments of 64 bits.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

/// Filters the calls of the calling thread, which must be the only one, and of all that it starts. Needs
/// `no_new_privs`.
pub fn install(profile: &Profile) -> io::Result<()> {
    let program = program(profile);
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel reads `len` instructions from `filter`, which live until the call returns, and writes nothing.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether the running kernel takes such a filter.
pub fn available() -> bool {
    let action = SECCOMP_RET_KILL_PROCESS;
    // SAFETY: the kernel reads one number behind the pointer, and changes nothing.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) == 0 }
}

fn program(profile: &Profile) -> Vec<sock_filter> {
    let sockets = if profile.network { TCP_SOCKETS } else { NO_SOCKETS };
    let attributes = if profile.attributes { &[] } else { NO_ATTRIBUTES };
    let memory = if profile.limits.memory() { NO_UNCOUNTED_MEMORY } else { &[] };
    let mut program = vec![
        load(ARCHITECTURE_AT),
        jump(BPF_JEQ, ARCHITECTURE, 1, 0),
        answer(SECCOMP_RET_KILL_PROCESS),
        load(NUMBER_AT),
        jump(BPF_JGE, SECOND_TABLE, 0, 1),
        answer(SECCOMP_RET_KILL_PROCESS),
    ];
    for rule in [ALWAYS, sockets, attributes, memory].into_iter().flatten() {
        let body = body(rule);
        for call in rule.calls {
            program.push(jump(BPF_JEQ, *call as u32, 0, body.len()));
            program.extend_from_slice(&body);
        }
    }
    program.push(answer(SECCOMP_RET_ALLOW));
    program
}

/// What happens to a call that a rule names. Each way through it answers: it may load an argument over the number.
fn body(rule: &Rule) -> Vec<sock_filter> {
    let (refuse, allow) = (answer(SECCOMP_RET_ERRNO | rule.errno as u32), answer(SECCOMP_RET_ALLOW));
    let mut body = Vec::new();
    match &rule.refused {
        Refused::Always => body.push(refuse),
        Refused::If(tests) => {
            for test in *tests {
                skip_if(test, &mut body);
                // To the next test, whatever was compared.
                body.extend([jump(BPF_JEQ, 0, 1, 1), refuse]);
            }
            body.push(allow);
        }
        Refused::Unless(tests) => {
            for test in *tests {
                skip_if(test, &mut body);
                body.push(refuse);
            }
            body.push(allow);
        }
    }
    body
}

/// Skips the instruction that is added next if the test holds.
fn skip_if(test: &Test, body: &mut Vec<sock_filter>) {
    body.push(load(ARGUMENTS_AT + 8 * test.argument + if test.upper { 4 } else { 0 }));
    body.push(sock_filter { code: (BPF_ALU | BPF_AND | BPF_K) as u16, jt: 0, jf: 0, k: test.mask });
    for (at, value) in test.values.iter().enumerate() {
        body.push(jump(BPF_JEQ, *value, test.values.len() - at, 0));
    }
}

/// Loads 32 bits; both architectures have the lower half of an argument first.
fn load(offset: u32) -> sock_filter {
    sock_filter { code: (BPF_LD | BPF_W | BPF_ABS) as u16, jt: 0, jf: 0, k: offset }
}

/// Compares what was loaded last, and skips so many instructions. A distance that does not fit would let a call
/// through, so that it must not be cut.
fn jump(comparison: u32, value: u32, yes: usize, no: usize) -> sock_filter {
    let [jt, jf] =
        [yes, no].map(|distance| u8::try_from(distance).expect("a rule is a few instructions long"));
    sock_filter { code: (BPF_JMP | comparison | BPF_K) as u16, jt, jf, k: value }
}

fn answer(action: u32) -> sock_filter {
    sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k: action }
}

#[cfg(test)]
mod tests;
