//! Each system call that the filter names, made with arguments that do no harm where it is not refused: an invalid
//! address, number or flag, which the kernel answers with another error.
//!
//! The same call is made unconfined; if it gave the same error there, the row would prove nothing. A few that only
//! root gets past the first look are compared for root only.

use drupe_confine::Profile;
use libc::{EACCES, ENOSYS, EPERM};
use rustix::process::geteuid;
use start::{confined, free, narrow};

mod start;

/// No process has this id, no user this number.
const NOBODY: i64 = 4_194_305;
/// No memory is here.
const NOWHERE: i64 = 1;
/// The upper half of an address alone.
const HIGH: i64 = 1 << 40;

/// A call with its arguments.
type Call<'a> = (&'a str, i64, &'a [i64]);

fn list(calls: &[Call]) -> Vec<String> {
    let numbers = |call: &Call| {
        let all: Vec<String> = std::iter::once(&call.1).chain(call.2).map(i64::to_string).collect();
        all.join(",")
    };
    std::iter::once("calls".to_owned()).chain(calls.iter().map(numbers)).collect()
}

/// The answer to each call, by its name.
fn answers(text: &str, calls: &[Call]) -> Vec<(String, String)> {
    let answers: Vec<&str> = text.split(' ').collect();
    assert_eq!(answers.len(), calls.len(), "{text}");
    calls
        .iter()
        .zip(answers)
        .map(|(call, answer)| (format!("{} {:?}", call.0, call.2), answer.to_owned()))
        .collect()
}

/// Every call is refused with `errno`, and is not where nothing confines it.
fn refused(profile: &Profile, errno: i32, calls: &[Call]) {
    for (call, answer) in answers(&confined(profile.clone(), &list(calls)), calls) {
        assert_eq!(answer, errno.to_string(), "confined: {call}");
    }
    for (call, answer) in answers(&free(&list(calls)), calls) {
        assert_ne!(answer, errno.to_string(), "unconfined: {call}");
    }
}

/// As [`refused`], for calls that others than root are refused anyway.
fn refused_to_root(calls: &[Call]) {
    if geteuid().is_root() {
        refused(&narrow(), EPERM, calls);
    } else {
        let answers = answers(&confined(narrow(), &list(calls)), calls);
        assert!(answers.iter().all(|(_, answer)| *answer == EPERM.to_string()), "{answers:?}");
    }
}

fn open(profile: &Profile, calls: &[Call]) {
    for (call, answer) in answers(&confined(profile.clone(), &list(calls)), calls) {
        let refused = [EPERM, EACCES, ENOSYS].map(|errno| errno.to_string());
        assert!(!refused.contains(&answer), "{call}: {answer}");
    }
}

#[test]
fn calls_around_the_filter_and_into_other_processes_are_refused() {
    refused(
        &narrow(),
        EPERM,
        &[
            ("io_uring_enter", libc::SYS_io_uring_enter, &[-1]),
            ("io_uring_register", libc::SYS_io_uring_register, &[-1]),
            ("ptrace", libc::SYS_ptrace, &[libc::PTRACE_ATTACH as i64, NOBODY]),
            ("process_vm_readv", libc::SYS_process_vm_readv, &[NOBODY]),
            ("process_vm_writev", libc::SYS_process_vm_writev, &[NOBODY]),
            ("process_madvise", libc::SYS_process_madvise, &[-1]),
            ("process_mrelease", libc::SYS_process_mrelease, &[-1]),
            ("move_pages", libc::SYS_move_pages, &[NOBODY, 0, 0, 0, 0, 64]),
            ("migrate_pages", libc::SYS_migrate_pages, &[NOBODY]),
            ("kcmp", libc::SYS_kcmp, &[NOBODY, NOBODY]),
            ("pidfd_getfd", libc::SYS_pidfd_getfd, &[-1]),
            ("perf_event_open", libc::SYS_perf_event_open, &[NOWHERE]),
            ("keyctl", libc::SYS_keyctl, &[-1]),
            ("add_key", libc::SYS_add_key, &[NOWHERE]),
            ("request_key", libc::SYS_request_key, &[NOWHERE]),
        ],
    );
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    if disabled.trim().is_empty() || disabled.trim() == "0" {
        refused(&narrow(), EPERM, &[("io_uring_setup", libc::SYS_io_uring_setup, &[0, NOWHERE])]);
    }
}

#[test]
fn memory_and_queues_by_number_or_name_are_refused() {
    refused(
        &narrow(),
        EPERM,
        &[
            ("shmget", libc::SYS_shmget, &[0, 0]),
            ("shmat", libc::SYS_shmat, &[-1]),
            ("shmctl", libc::SYS_shmctl, &[-1]),
            ("msgget", libc::SYS_msgget, &[7]),
            ("msgsnd", libc::SYS_msgsnd, &[-1]),
            ("msgrcv", libc::SYS_msgrcv, &[-1]),
            ("msgctl", libc::SYS_msgctl, &[-1]),
            ("semget", libc::SYS_semget, &[0, -1]),
            ("semop", libc::SYS_semop, &[-1]),
            ("semtimedop", libc::SYS_semtimedop, &[-1]),
            ("semctl", libc::SYS_semctl, &[-1]),
            ("mq_open", libc::SYS_mq_open, &[NOWHERE]),
            ("mq_unlink", libc::SYS_mq_unlink, &[NOWHERE]),
        ],
    );
}

#[test]
fn other_views_of_the_file_system_are_refused() {
    refused(
        &narrow(),
        EPERM,
        &[
            ("umount2", libc::SYS_umount2, &[0, -1]),
            ("chroot", libc::SYS_chroot, &[NOWHERE]),
            ("inotify_init1", libc::SYS_inotify_init1, &[0]),
            ("inotify_add_watch", libc::SYS_inotify_add_watch, &[-1, NOWHERE]),
            ("setns", libc::SYS_setns, &[-1]),
            ("unshare", libc::SYS_unshare, &[0]),
            ("unshare user", libc::SYS_unshare, &[(libc::CLONE_NEWUSER | libc::CLONE_VM) as i64]),
        ],
    );
    refused_to_root(&[
        ("mount", libc::SYS_mount, &[NOWHERE, NOWHERE]),
        ("pivot_root", libc::SYS_pivot_root, &[NOWHERE, NOWHERE]),
        ("open_tree", libc::SYS_open_tree, &[-1, NOWHERE]),
        ("open_tree_attr", 467, &[-1, NOWHERE]),
        ("move_mount", libc::SYS_move_mount, &[-1, NOWHERE, -1, NOWHERE]),
        ("fsopen", libc::SYS_fsopen, &[NOWHERE]),
        ("fsconfig", libc::SYS_fsconfig, &[-1]),
        ("fsmount", libc::SYS_fsmount, &[-1]),
        ("fspick", libc::SYS_fspick, &[-1, NOWHERE]),
        ("mount_setattr", libc::SYS_mount_setattr, &[-1, NOWHERE]),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, &[-1, NOWHERE]),
        ("fanotify_init", libc::SYS_fanotify_init, &[-1]),
    ]);
}

#[test]
fn namespaces_are_refused_whatever_way_they_are_asked_for() {
    // A copy of the handlers without the memory is no valid combination, so that nothing is started.
    let flags = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWCGROUP,
    ]
    .map(|flag| [(flag | libc::CLONE_SIGHAND) as i64]);
    let calls: Vec<Call> = flags.iter().map(|flag| ("clone", libc::SYS_clone, &flag[..])).collect();
    refused(&narrow(), EPERM, &calls);
    refused(&narrow(), ENOSYS, &[("clone3", libc::SYS_clone3, &[NOWHERE, 0])]);
    open(&narrow(), &[("clone", libc::SYS_clone, &[libc::CLONE_SIGHAND as i64])]);
}

#[test]
fn calls_to_the_kernel_itself_are_refused() {
    refused_to_root(&[
        ("bpf", libc::SYS_bpf, &[-1]),
        ("userfaultfd", libc::SYS_userfaultfd, &[-1]),
        ("kexec_load", libc::SYS_kexec_load, &[0, 0, 0, -1]),
        ("kexec_file_load", libc::SYS_kexec_file_load, &[-1, -1, 0, 0, -1]),
        ("init_module", libc::SYS_init_module, &[NOWHERE, 0, NOWHERE]),
        ("finit_module", libc::SYS_finit_module, &[-1, NOWHERE, -1]),
        ("delete_module", libc::SYS_delete_module, &[NOWHERE]),
        ("reboot", libc::SYS_reboot, &[0, 0]),
        ("swapon", libc::SYS_swapon, &[NOWHERE, -1]),
        ("swapoff", libc::SYS_swapoff, &[NOWHERE]),
        ("syslog", libc::SYS_syslog, &[10]),
    ]);
}

#[test]
fn keys_limits_priorities_and_personality_are_refused() {
    refused(
        &narrow(),
        EPERM,
        &[
            ("TIOCSTI", libc::SYS_ioctl, &[-1, libc::TIOCSTI as i64]),
            ("TIOCSTI with more bits", libc::SYS_ioctl, &[-1, libc::TIOCSTI as i64 | HIGH]),
            ("TIOCLINUX", libc::SYS_ioctl, &[-1, libc::TIOCLINUX as i64]),
            ("TIOCSETD", libc::SYS_ioctl, &[-1, libc::TIOCSETD as i64]),
            ("setrlimit", if cfg!(target_arch = "x86_64") { 160 } else { 164 }, &[999, NOWHERE]),
            ("prlimit64", libc::SYS_prlimit64, &[0, 7, NOWHERE]),
            ("prlimit64 far up", libc::SYS_prlimit64, &[0, 7, HIGH]),
            ("prlimit64 of another", libc::SYS_prlimit64, &[NOBODY, 7, NOWHERE]),
            ("setpriority", libc::SYS_setpriority, &[libc::PRIO_PROCESS as i64, NOBODY, 19]),
            ("setpriority of a user", libc::SYS_setpriority, &[libc::PRIO_USER as i64, NOBODY, 19]),
            ("setpriority of what does not exist", libc::SYS_setpriority, &[3, 0, 19]),
            ("ioprio_set", libc::SYS_ioprio_set, &[1, NOBODY]),
            ("sched_setscheduler", libc::SYS_sched_setscheduler, &[NOBODY]),
            ("sched_setparam", libc::SYS_sched_setparam, &[NOBODY]),
            ("sched_setattr", libc::SYS_sched_setattr, &[NOBODY]),
            ("sched_setaffinity", libc::SYS_sched_setaffinity, &[NOBODY]),
            ("personality", libc::SYS_personality, &[libc::ADDR_NO_RANDOMIZE as i64]),
        ],
    );
    open(
        &narrow(),
        &[
            ("FIONREAD", libc::SYS_ioctl, &[-1, libc::FIONREAD as i64]),
            ("prlimit64", libc::SYS_prlimit64, &[0, 7, 0, 0]),
            ("setpriority", libc::SYS_setpriority, &[libc::PRIO_PROCESS as i64, 0, 19]),
            ("ioprio_set", libc::SYS_ioprio_set, &[1, 0, -1]),
            ("sched_setaffinity", libc::SYS_sched_setaffinity, &[0, 0, NOWHERE]),
            ("personality", libc::SYS_personality, &[0xffff_ffff]),
        ],
    );
}

#[test]
fn sockets_are_refused_but_for_tcp_with_the_network() {
    let stream = i64::from(libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    let (datagram, seqpacket) = (i64::from(libc::SOCK_DGRAM), i64::from(libc::SOCK_SEQPACKET));
    let (local, four, six) = (i64::from(libc::AF_UNIX), i64::from(libc::AF_INET), i64::from(libc::AF_INET6));
    let socket = libc::SYS_socket;
    let others: &[Call] = &[
        ("local stream", socket, &[local, stream]),
        ("local datagram", socket, &[local, datagram]),
        ("local packets", socket, &[local, seqpacket]),
        ("UDP", socket, &[four, datagram]),
        ("UDP 6", socket, &[six, datagram]),
        ("netlink", socket, &[libc::AF_NETLINK.into(), libc::SOCK_RAW.into()]),
        ("a protocol that nobody has", socket, &[four, stream, 77]),
        ("alg", socket, &[libc::AF_ALG.into(), seqpacket]),
        ("vsock", socket, &[libc::AF_VSOCK.into(), stream]),
        ("a family that nobody has", socket, &[200, stream]),
    ];
    let tcp: &[Call] = &[("TCP", socket, &[four, stream]), ("TCP 6", socket, &[six, stream, 6])];
    for profile in [narrow(), Profile { network: true, ..narrow() }] {
        refused(&profile, EACCES, others);
    }
    refused(&narrow(), EACCES, tcp);
    open(&Profile { network: true, ..narrow() }, tcp);
    if geteuid().is_root() {
        let raw: &[Call] = &[
            ("raw", socket, &[four, libc::SOCK_RAW.into(), 1]),
            ("packets", socket, &[libc::AF_PACKET.into(), libc::SOCK_RAW.into(), 768]),
        ];
        refused(&Profile { network: true, ..narrow() }, EACCES, raw);
    }
    let pair = libc::SYS_socketpair;
    refused(
        &narrow(),
        EACCES,
        &[
            ("datagram pair", pair, &[local, datagram, 0, NOWHERE]),
            ("raw pair", pair, &[local, libc::SOCK_RAW.into(), 0, NOWHERE]),
            ("pair of another family", pair, &[libc::AF_TIPC.into(), stream, 0, NOWHERE]),
        ],
    );
    open(&narrow(), &[("stream pair", pair, &[local, stream, 0, NOWHERE])]);
}

#[test]
fn attributes_by_path_are_refused_unless_the_profile_allows_them() {
    #[cfg(target_arch = "x86_64")]
    let old: &[Call] = &[
        ("chmod", libc::SYS_chmod, &[NOWHERE]),
        ("chown", libc::SYS_chown, &[NOWHERE]),
        ("lchown", libc::SYS_lchown, &[NOWHERE]),
        ("utime", libc::SYS_utime, &[NOWHERE]),
        ("utimes", libc::SYS_utimes, &[NOWHERE]),
        ("futimesat", libc::SYS_futimesat, &[-1, NOWHERE]),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let old: &[Call] = &[];
    let new: &[Call] = &[
        ("fchmodat", libc::SYS_fchmodat, &[-1, NOWHERE]),
        ("fchmodat2", 452, &[-1, NOWHERE]),
        ("fchownat", libc::SYS_fchownat, &[-1, NOWHERE]),
        ("setxattr", libc::SYS_setxattr, &[NOWHERE, NOWHERE]),
        ("lsetxattr", libc::SYS_lsetxattr, &[NOWHERE, NOWHERE]),
        ("setxattrat", 463, &[-1, NOWHERE]),
        ("removexattr", libc::SYS_removexattr, &[NOWHERE, NOWHERE]),
        ("lremovexattr", libc::SYS_lremovexattr, &[NOWHERE, NOWHERE]),
        ("removexattrat", 466, &[-1, NOWHERE]),
        ("file_setattr", 469, &[-1, NOWHERE]),
        ("utimensat", libc::SYS_utimensat, &[-1, NOWHERE]),
        ("utimensat far up", libc::SYS_utimensat, &[-1, HIGH]),
    ];
    let all = [old, new].concat();
    refused(&narrow(), EPERM, &all);
    let by_descriptor: &[Call] = &[
        ("fchmod", libc::SYS_fchmod, &[-1]),
        ("fchown", libc::SYS_fchown, &[-1]),
        ("fsetxattr", libc::SYS_fsetxattr, &[-1, NOWHERE]),
        ("futimens", libc::SYS_utimensat, &[-1, 0]),
    ];
    open(&narrow(), by_descriptor);
    let known: Vec<Call> = all.into_iter().filter(|call| call.1 < 463).collect();
    open(&Profile { attributes: true, ..narrow() }, &known);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn calls_by_another_table_kill() {
    for way in ["second_table", "as_32_bits"] {
        let said = confined(narrow(), &[way]);
        assert!(said.contains("SIGSYS") || said.contains("status: 159"), "{way}: {said}");
        // Systems without that table give an error, or end the program by another signal.
        assert!(["ok", "38", ""].contains(&free(&[way]).as_str()), "unconfined: {way}");
    }
}
