//! Which system calls a confined program is refused, and with what error.
//!
//! What Landlock binds (opening files, connecting TCP, signals) is left to it; this list is about what no rule of
//! Landlock covers. It is a list of refusals, not of permissions: programs that we have not seen must run, and a new
//! system call of a new kernel is no reason to break them. A call is judged by its numbers only, since memory behind
//! a pointer may change after the look.

use libc::{EACCES, ENOSYS, EPERM};

/// One row: these calls, refused when this is so, with this error.
pub struct Rule {
    pub calls: &'static [i64],
    pub refused: Refused,
    pub errno: i32,
}

/// When a call is refused.
pub enum Refused {
    Always,
    /// When one of the tests holds.
    If(&'static [Test]),
    /// Unless all tests hold.
    Unless(&'static [Test]),
}

/// Whether 32 bits of an argument, less those outside `mask`, are one of the values.
pub struct Test {
    /// Which argument, from 0.
    pub argument: u32,
    /// Its upper half, where only a pointer has any.
    pub upper: bool,
    pub mask: u32,
    pub values: &'static [u32],
}

const fn is(argument: u32, values: &'static [u32]) -> Test {
    masked(argument, u32::MAX, values)
}

const fn masked(argument: u32, mask: u32, values: &'static [u32]) -> Test {
    Test { argument, upper: false, mask, values }
}

/// The upper half of a pointer that must be null; the lower half is tested with [`is`].
const fn upper_null(argument: u32) -> Test {
    Test { argument, upper: true, mask: u32::MAX, values: &[0] }
}

const fn never(calls: &'static [i64], errno: i32) -> Rule {
    Rule { calls, refused: Refused::Always, errno }
}

/// Calls that `libc` does not name on every architecture; numbers from 424 are the same on all of them.
mod number {
    #[cfg(target_arch = "x86_64")]
    pub const SETRLIMIT: i64 = libc::SYS_setrlimit;
    #[cfg(not(target_arch = "x86_64"))]
    pub const SETRLIMIT: i64 = 164;
    pub const MEMFD_SECRET: i64 = 447;
    pub const FCHMODAT2: i64 = 452;
    pub const SETXATTRAT: i64 = 463;
    pub const REMOVEXATTRAT: i64 = 466;
    pub const OPEN_TREE_ATTR: i64 = 467;
    pub const FILE_SETATTR: i64 = 469;
}

/// What every confined program is refused.
pub const ALWAYS: &[Rule] = &[
    // Runs other system calls out of the filter's sight.
    never(&[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register], EPERM),
    // Memory, descriptors and secrets of other processes.
    never(
        &[
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_process_madvise,
            libc::SYS_process_mrelease,
            libc::SYS_move_pages,
            libc::SYS_migrate_pages,
            libc::SYS_kcmp,
            libc::SYS_pidfd_getfd,
            libc::SYS_perf_event_open,
        ],
        EPERM,
    ),
    never(&[libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key], EPERM),
    // Memory and queues that the processes of a user share by number or name, out of reach of any rule on files.
    never(
        &[
            libc::SYS_shmget,
            libc::SYS_shmat,
            libc::SYS_shmctl,
            libc::SYS_msgget,
            libc::SYS_msgsnd,
            libc::SYS_msgrcv,
            libc::SYS_msgctl,
            libc::SYS_semget,
            libc::SYS_semop,
            libc::SYS_semtimedop,
            libc::SYS_semctl,
            libc::SYS_mq_open,
            libc::SYS_mq_unlink,
        ],
        EPERM,
    ),
    // Another view of the file system than the one that the rules on files were made for.
    never(
        &[
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_chroot,
            libc::SYS_open_tree,
            number::OPEN_TREE_ATTR,
            libc::SYS_move_mount,
            libc::SYS_fsopen,
            libc::SYS_fsconfig,
            libc::SYS_fsmount,
            libc::SYS_fspick,
            libc::SYS_mount_setattr,
            libc::SYS_open_by_handle_at,
            libc::SYS_fanotify_init,
        ],
        EPERM,
    ),
    // What happens in folders that it cannot list: a watch asks for no right that Landlock knows.
    never(
        &[
            #[cfg(target_arch = "x86_64")]
            libc::SYS_inotify_init,
            libc::SYS_inotify_init1,
            libc::SYS_inotify_add_watch,
        ],
        EPERM,
    ),
    // Namespaces: with one for users comes every capability, and with that most of the kernel's weak spots. The flags
    // of `clone3` lie behind a pointer; told that there is none, the C libraries fall back to `clone`.
    never(&[libc::SYS_setns, libc::SYS_unshare], EPERM),
    Rule {
        calls: &[libc::SYS_clone],
        refused: Refused::Unless(&[masked(0, NAMESPACES, &[0])]),
        errno: EPERM,
    },
    never(&[libc::SYS_clone3], ENOSYS),
    // The kernel itself.
    never(
        &[
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
        ],
        EPERM,
    ),
    // Keys pressed in the name of whoever sits at the terminal; another discipline for its lines, which are parts of the
    // kernel for modems and radios that hardly anybody looks after.
    Rule {
        calls: &[libc::SYS_ioctl],
        refused: Refused::If(&[is(
            1,
            &[libc::TIOCSTI as u32, libc::TIOCLINUX as u32, libc::TIOCSETD as u32],
        )]),
        errno: EPERM,
    },
    // Limits, its own and, by process id, those of others. Reading stays open.
    never(&[number::SETRLIMIT], EPERM),
    Rule {
        calls: &[libc::SYS_prlimit64],
        refused: Refused::Unless(&[is(2, &[0]), upper_null(2)]),
        errno: EPERM,
    },
    // How other processes of the user are scheduled. Its own thread is 0.
    Rule {
        calls: &[libc::SYS_setpriority, libc::SYS_ioprio_set],
        refused: Refused::Unless(&[is(0, &[libc::PRIO_PROCESS, IOPRIO_WHO_PROCESS]), is(1, &[0])]),
        errno: EPERM,
    },
    Rule {
        calls: &[
            libc::SYS_sched_setscheduler,
            libc::SYS_sched_setparam,
            libc::SYS_sched_setattr,
            libc::SYS_sched_setaffinity,
        ],
        refused: Refused::Unless(&[is(0, &[0])]),
        errno: EPERM,
    },
    // Asking is fine; changes make addresses guessable and pages executable.
    Rule { calls: &[libc::SYS_personality], refused: Refused::Unless(&[is(0, &[u32::MAX])]), errno: EPERM },
    // A stream pair is connected for good. An end of a datagram pair can be turned to any path.
    Rule {
        calls: &[libc::SYS_socketpair],
        refused: Refused::Unless(&[
            is(0, &[libc::AF_UNIX as u32]),
            masked(1, SOCKET_TYPE, &[libc::SOCK_STREAM as u32, libc::SOCK_SEQPACKET as u32]),
        ]),
        errno: EACCES,
    },
];

/// Sockets of a program without the network: none. That takes the local ones, too, whose paths Landlock of most
/// kernels does not bind.
pub const NO_SOCKETS: &[Rule] = &[never(&[libc::SYS_socket], EACCES)];

/// Sockets of a program with the network: TCP, without its relatives that Landlock and firewalls know less well.
pub const TCP_SOCKETS: &[Rule] = &[Rule {
    calls: &[libc::SYS_socket],
    refused: Refused::Unless(&[
        is(0, &[libc::AF_INET as u32, libc::AF_INET6 as u32]),
        masked(1, SOCKET_TYPE, &[libc::SOCK_STREAM as u32]),
        is(2, &[0, libc::IPPROTO_TCP as u32]),
    ]),
    errno: EACCES,
}];

/// Memory that the limit on a process's own does not count: shared without a file, in files without a name, and stacks
/// that grow by themselves, which threads have not.
pub const NO_UNCOUNTED_MEMORY: &[Rule] = &[
    never(&[libc::SYS_memfd_create, number::MEMFD_SECRET], EPERM),
    Rule {
        calls: &[libc::SYS_mmap],
        refused: Refused::If(&[
            masked(3, MAPPING_TYPE | libc::MAP_ANONYMOUS as u32, &[SHARED_MEMORY, SHARED_MEMORY_CHECKED]),
            masked(3, libc::MAP_GROWSDOWN as u32, &[libc::MAP_GROWSDOWN as u32]),
        ]),
        errno: EPERM,
    },
];

/// Modes, owners, times and extended attributes by path: any path, since Landlock binds these to no folder. By
/// descriptor they stay open, which takes a file that could be opened.
pub const NO_ATTRIBUTES: &[Rule] = &[
    #[cfg(target_arch = "x86_64")]
    never(
        &[
            libc::SYS_chmod,
            libc::SYS_chown,
            libc::SYS_lchown,
            libc::SYS_utime,
            libc::SYS_utimes,
            libc::SYS_futimesat,
        ],
        EPERM,
    ),
    never(
        &[
            libc::SYS_fchmodat,
            number::FCHMODAT2,
            libc::SYS_fchownat,
            libc::SYS_setxattr,
            libc::SYS_lsetxattr,
            number::SETXATTRAT,
            libc::SYS_removexattr,
            libc::SYS_lremovexattr,
            number::REMOVEXATTRAT,
            number::FILE_SETATTR,
        ],
        EPERM,
    ),
    // Without a path it is about the descriptor.
    Rule {
        calls: &[libc::SYS_utimensat],
        refused: Refused::Unless(&[is(1, &[0]), upper_null(1)]),
        errno: EPERM,
    },
];

/// Every flag of `clone` that makes a namespace. The one for time shares its bit with the exit signal there, so that
/// only `unshare` and `clone3` can ask for it.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP) as u32;

/// The bits of a mapping's flags that tell whether it is shared.
const MAPPING_TYPE: u32 = 0xf;

/// Shared, and of no file.
const SHARED_MEMORY: u32 = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u32;

/// The same, with flags that are looked at more closely.
const SHARED_MEMORY_CHECKED: u32 = (libc::MAP_SHARED_VALIDATE | libc::MAP_ANONYMOUS) as u32;

/// The bits of a socket's type that are not flags.
const SOCKET_TYPE: u32 = 0xf;

/// The `which` of `ioprio_set` that means a thread.
const IOPRIO_WHO_PROCESS: u32 = 1;
