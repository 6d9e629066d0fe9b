//! A system without Landlock, as a thread and all that it starts see it.

/// Does `work` on a thread for which Landlock is not there, nor for the threads and processes that it starts.
pub fn without_landlock<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            refuse_landlock();
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Lets its calls be answered as by a system that does not know them.
fn refuse_landlock() {
    const CALLS: [i64; 3] =
        [libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule, libc::SYS_landlock_restrict_self];
    let step = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut filter = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for call in CALLS {
        filter.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 1));
        filter.push(step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32, 0));
    }
    filter.push(step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0));
    let len = u16::try_from(filter.len()).expect("it is short");
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: a switch of this thread, without memory.
    let bound = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the system reads the instructions, which live until the call returns, and writes nothing.
    let installed =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    assert_eq!((bound, installed), (0, 0), "{}", std::io::Error::last_os_error());
}
