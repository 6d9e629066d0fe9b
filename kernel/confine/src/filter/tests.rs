//! The filter as the kernel runs it, for what a process cannot show: calls that a program without capabilities is
//! refused anyway, and calls of another architecture.

use std::collections::BTreeSet;

use super::*;

/// Runs a filter over one call. Knows the instructions that [`program`] writes, and no others.
fn judge(program: &[sock_filter], architecture: u32, call: i64, arguments: [u64; 6]) -> u32 {
    let (mut at, mut loaded) = (0, 0);
    loop {
        let step = program[at];
        let code = u32::from(step.code);
        at += 1;
        if code == BPF_RET | BPF_K {
            return step.k;
        } else if code == BPF_LD | BPF_W | BPF_ABS {
            let argument = |at: u32| arguments[(at - ARGUMENTS_AT) as usize / 8];
            loaded = match step.k {
                NUMBER_AT => call as u32,
                ARCHITECTURE_AT => architecture,
                at if at % 8 == 0 => argument(at) as u32,
                at => (argument(at) >> 32) as u32,
            };
        } else if code == BPF_ALU | BPF_AND | BPF_K {
            loaded &= step.k;
        } else {
            let holds = match code {
                c if c == BPF_JMP | BPF_JEQ | BPF_K => loaded == step.k,
                c if c == BPF_JMP | BPF_JGE | BPF_K => loaded >= step.k,
                other => panic!("instruction {other:#x} is not written by this crate"),
            };
            at += usize::from(if holds { step.jt } else { step.jf });
        }
    }
}

fn here(call: i64, arguments: [u64; 6]) -> u32 {
    judge(&program(&Profile::default()), ARCHITECTURE, call, arguments)
}

const REFUSED: u32 = SECCOMP_RET_ERRNO | libc::EPERM as u32;

#[test]
fn calls_of_the_administrator_are_refused_by_the_filter_as_well() {
    let calls = [
        libc::SYS_mount,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_open_tree,
        467,
        libc::SYS_move_mount,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        libc::SYS_open_by_handle_at,
        libc::SYS_fanotify_init,
        libc::SYS_bpf,
        libc::SYS_userfaultfd,
        libc::SYS_kexec_load,
        libc::SYS_kexec_file_load,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_syslog,
    ];
    for call in calls {
        assert_eq!(here(call, [0; 6]), REFUSED, "call {call}");
    }
}

#[test]
fn calls_of_another_architecture_or_table_kill() {
    const I386: u32 = 0x4000_0003;
    const ARM: u32 = 0x4000_0028;
    let program = program(&Profile::default());
    for architecture in [I386, ARM, 0] {
        assert_eq!(judge(&program, architecture, libc::SYS_read, [0; 6]), SECCOMP_RET_KILL_PROCESS);
    }
    for call in [0x4000_0000, 0x4000_0000 | libc::SYS_read, 0x7fff_ffff, -1] {
        assert_eq!(here(call, [0; 6]), SECCOMP_RET_KILL_PROCESS, "call {call}");
    }
}

#[test]
fn everyday_calls_are_allowed_whatever_their_arguments() {
    let calls = [
        libc::SYS_read,
        libc::SYS_openat,
        libc::SYS_mmap,
        libc::SYS_execve,
        libc::SYS_futex,
        libc::SYS_connect,
        libc::SYS_sendmsg,
        libc::SYS_recvmsg,
        libc::SYS_wait4,
        libc::SYS_pidfd_open,
        libc::SYS_memfd_create,
        libc::SYS_getrandom,
        libc::SYS_rseq,
        libc::SYS_landlock_restrict_self,
        libc::SYS_seccomp,
        500,
    ];
    for call in calls {
        for arguments in [[0; 6], [u64::MAX; 6]] {
            assert_eq!(here(call, arguments), SECCOMP_RET_ALLOW, "call {call}");
        }
    }
}

#[test]
fn the_longest_filter_is_within_what_the_kernel_takes() {
    for network in [false, true] {
        let limits = crate::Limits { data: Some(1), ..crate::Limits::default() };
        let length = program(&Profile { network, limits, ..Profile::default() }).len();
        assert!((100..4096).contains(&length), "{length} instructions");
    }
}

#[test]
fn no_call_has_two_rules_since_the_second_would_never_be_asked() {
    let calls = [ALWAYS, TCP_SOCKETS, NO_ATTRIBUTES, NO_UNCOUNTED_MEMORY]
        .into_iter()
        .flatten()
        .flat_map(|rule| rule.calls);
    let mut seen = BTreeSet::new();
    for call in calls {
        assert!(seen.insert(call), "call {call} is listed twice");
    }
}
