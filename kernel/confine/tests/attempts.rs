//! What a confined program tries, and the error that the system gives it. Each attempt is also made unconfined, where
//! it must succeed: else its failure would prove nothing.

use std::{
    fs,
    net::{TcpListener, UdpSocket},
    os::{
        fd::{AsRawFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::{
            fs::{PermissionsExt, chown, symlink},
            net::{SocketAddr, UnixListener},
        },
    },
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use drupe_confine::{Confined, Limits, Profile, Stopped};
use libc::{EACCES, EBUSY, EPERM, EROFS, EXDEV};
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
    process::geteuid,
};
use start::{confined, example, free, narrow, prepared};

#[path = "../../../tests/harness/copied.rs"]
mod copied;
mod start;

/// Tries `args` under `profile` and without one.
fn denied(profile: &Profile, args: &[&str], errno: i32) {
    assert_eq!(confined(profile.clone(), args), errno.to_string(), "confined: {args:?}");
    assert_eq!(free(args), "ok", "unconfined: {args:?}");
}

fn allowed(profile: &Profile, args: &[&str]) {
    assert_eq!(confined(profile.clone(), args), "ok", "{args:?}");
}

/// A home with what must stay out of reach, and one folder for the program.
struct Home {
    folder: tempfile::TempDir,
    profile: Profile,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["state", "data/own", "run"] {
            fs::create_dir_all(folder.path().join(name)).expect("a folder");
        }
        for name in ["token", "journal.sqlite", "state/quarantine.json", "drupe.yaml", "data/own/file"] {
            fs::write(folder.path().join(name), "secret").expect("a file");
        }
        symlink("../../token", folder.path().join("data/own/link")).expect("a link");
        let profile = narrow().write(folder.path().join("data/own"));
        Self { folder, profile }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

/// Whether this system lets the user of the test have mounts.
fn has_mounts() -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let profile = Profile { strict: false, ..narrow() }.keep(folder.path());
    let outcome = prepared(profile, &["user"]).run(1024).expect("it starts");
    outcome.enforcement.kept
}

#[test]
fn what_is_to_stay_as_it_is_is_read_and_not_changed_whatever_lies_around_it() {
    let home = Home::new();
    fs::create_dir_all(home.path("data/own/.git/hooks")).expect("a folder");
    fs::write(home.path("data/own/.git/config"), "its own").expect("a file");
    let (kept, link) = (home.path("data/own/.git"), home.path("data/own/linked"));
    symlink(home.path("data/own/.git"), &link).expect("a link");
    let profile = home.profile.clone().keep(&kept);
    if !has_mounts() {
        let refused = prepared(profile, &["user"]).spawn().expect_err("it cannot be kept");
        assert!(refused.to_string().contains("what is to stay as it is would stay open"), "{refused}");
        return;
    }
    let (config, moved) = (home.path("data/own/.git/config"), home.path("data/own/moved"));
    allowed(&profile, &["read", &config]);
    allowed(&profile, &["write", &home.path("data/own/beside")]);
    for (args, errno) in [
        (&["write", &config][..], EROFS),
        (&["write", &home.path("data/own/.git/hooks/new")], EROFS),
        (&["write", &home.path("data/own/linked/config")], EROFS),
        (&["mode", &config], EPERM),
        (&["remove", &config], EROFS),
        (&["rename", &config, &moved], EXDEV),
        (&["rename", &kept, &moved], EBUSY),
        (&["link", &config, &moved], EXDEV),
    ] {
        assert_eq!(confined(profile.clone(), args), errno.to_string(), "{args:?}");
    }
    // Where the same is not kept, each of these can be done.
    assert_eq!(fs::read(&config).expect("it is left"), b"its own");
    allowed(&home.profile, &["write", &config]);
    // From within as well.
    let within =
        prepared(profile.clone(), &["write", "config"]).directory(&kept).run(1024).expect("it starts");
    assert_eq!(String::from_utf8_lossy(&within.stdout).trim(), EROFS.to_string());
    // Where a link stands in its place, nothing is started.
    let refused = prepared(home.profile.clone().keep(&link), &["user"]).spawn().expect_err("it is a link");
    assert!(refused.to_string().contains("linked"), "{refused}");
    // Nobody else sees the mount.
    fs::write(&config, "changed").expect("it can be changed from outside");
}

#[test]
fn files_of_the_home_are_out_of_reach() {
    let home = Home::new();
    for secret in ["token", "journal.sqlite", "state/quarantine.json", "drupe.yaml", "data/own/link"] {
        denied(&home.profile, &["read", &home.path(secret)], EACCES);
        denied(&home.profile, &["write", &home.path(secret)], EACCES);
    }
    for folder in ["", "state", "data"] {
        denied(&home.profile, &["list", &home.path(folder)], EACCES);
    }
    denied(&home.profile, &["write", &home.path("state/new")], EACCES);
    denied(&home.profile, &["rename", &home.path("drupe.yaml"), &home.path("drupe.old")], EACCES);
    denied(&home.profile, &["link", &home.path("token"), &home.path("data/own/stolen")], EXDEV);
    denied(&home.profile, &["rename", &home.path("token"), &home.path("data/own/taken")], EACCES);
    denied(&home.profile, &["remove", &home.path("journal.sqlite")], EACCES);
    assert_eq!(fs::read(home.path("state/quarantine.json")).expect("it is left"), b"secret");
}

#[test]
fn its_own_folder_and_the_system_are_within_reach() {
    let home = Home::new();
    allowed(&home.profile, &["read", &home.path("data/own/file")]);
    allowed(&home.profile, &["write", &home.path("data/own/new")]);
    allowed(&home.profile, &["rename", &home.path("data/own/new"), &home.path("data/own/newer")]);
    allowed(&home.profile, &["remove", &home.path("data/own/newer")]);
    for file in ["/etc/hosts", "/etc/passwd", "/dev/urandom", "/dev/full", "/proc/meminfo"] {
        allowed(&home.profile, &["read", file]);
    }
    allowed(&home.profile, &["write", "/dev/null"]);
    allowed(&home.profile, &["list", "/usr/lib"]);
}

#[test]
fn a_folder_that_may_be_read_cannot_be_changed() {
    let home = Home::new();
    let profile = home.profile.clone().read(home.path("state"));
    allowed(&profile, &["read", &home.path("state/quarantine.json")]);
    denied(&profile, &["write", &home.path("state/quarantine.json")], EACCES);
    denied(&profile, &["write", &home.path("state/new")], EACCES);
}

#[test]
fn modes_are_changed_by_path_only_where_the_profile_says() {
    let home = Home::new();
    for file in ["token", "data/own/file"] {
        denied(&home.profile, &["mode", &home.path(file)], EPERM);
    }
    allowed(&home.profile, &["mode_of_own", &home.path("data/own/file")]);
    let profile = Profile { attributes: true, ..home.profile.clone() };
    allowed(&profile, &["mode", &home.path("data/own/file")]);
    allowed(&profile, &["write", &home.path("data/own/new")]);
    // Landlock binds this to no folder; a mount does, where this system lets users have one.
    let outside = if has_mounts() { EROFS.to_string() } else { "ok".to_owned() };
    assert_eq!(confined(profile, &["mode", &home.path("token")]), outside);
}

#[test]
fn local_sockets_are_denied_but_for_pairs() {
    let home = Home::new();
    let path = home.path("data/own/socket");
    let _listener = UnixListener::bind(&path).expect("a socket");
    let name = format!("drupe-confine-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("an address");
    let _abstract = UnixListener::bind_addr(&address).expect("a socket");
    for profile in [home.profile.clone(), Profile { network: true, ..home.profile.clone() }] {
        denied(&profile, &["unix", &path], EACCES);
        denied(&profile, &["abstract", &name], EACCES);
        allowed(&profile, &["pair"]);
    }
}

#[test]
fn a_local_socket_made_outside_does_not_reach_abstract_names_either() {
    let name = format!("drupe-passed-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("an address");
    let _listener = UnixListener::bind_addr(&address).expect("a socket");
    let kind = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC);
    let socket = socket_with(kind.0, kind.1, kind.2, None).expect("a socket");
    assert_eq!(by_passing(narrow(), socket, &["abstract_by", "N", &name]), EPERM.to_string());
}

#[test]
fn tcp_needs_the_network_and_other_protocols_are_denied_with_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port().to_string();
    denied(&narrow(), &["tcp", &port], EACCES);
    allowed(&Profile { network: true, ..narrow() }, &["tcp", &port]);
    let socket = || {
        let kind = (AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC);
        socket_with(kind.0, kind.1, kind.2, None).expect("a socket")
    };
    assert_eq!(by_passing(narrow(), socket(), &["tcp_by", "N", &port]), EACCES.to_string());
    assert_eq!(by_passing(Profile { network: true, ..narrow() }, socket(), &["tcp_by", "N", &port]), "ok");
    // Names of the file of hosts are found without a socket for datagrams.
    allowed(&Profile { network: true, ..narrow() }, &["lookup", "localhost"]);
    drop(UdpSocket::bind("127.0.0.1:0").expect("this system has datagrams"));
}

/// What the attempt says that got `descriptor`; `N` stands for its number.
fn by_passing(profile: Profile, descriptor: OwnedFd, args: &[&str]) -> String {
    let number = descriptor.as_raw_fd().to_string();
    let args: Vec<&str> = args.iter().map(|arg| if *arg == "N" { &number } else { *arg }).collect();
    let (start, _) = prepared(profile, &args).pass(descriptor);
    String::from_utf8_lossy(&start.run(1024).expect("it starts").stdout).trim().to_owned()
}

#[test]
fn processes_outside_are_out_of_reach() {
    static SECRET: u8 = 7;
    let own = std::process::id();
    let (pid, address) = (own.to_string(), (&raw const SECRET as usize).to_string());
    denied(&narrow(), &["kill", &pid], EPERM);
    denied(&narrow(), &["attach", &pid], EPERM);
    denied(&narrow(), &["peek", &pid, &address], EPERM);
}

#[test]
fn what_a_debugger_could_see_stays_hidden_even_with_proc_readable() {
    let own = format!("/proc/{}", std::process::id());
    let profile = narrow().read("/proc");
    allowed(&profile, &["read", &format!("{own}/cmdline")]);
    allowed(&profile, &["read", "/proc/self/environ"]);
    for file in ["environ", "mem", "maps", "root/etc/hostname", "cwd/Cargo.toml", "exe", "fd/0", "auxv"] {
        let path = format!("{own}/{file}");
        assert_eq!(confined(profile.clone(), &["read", &path]), EACCES.to_string(), "{path}");
        // The first page of memory is never mapped: reading it is another error than not being allowed to open it.
        let free = free(&["read", &path]);
        assert!(free == "ok" || (file == "mem" && free == libc::EIO.to_string()), "{path}: {free}");
    }
    for link in ["root", "cwd", "exe", "fd/0"] {
        denied(&profile, &["follow", &format!("{own}/{link}")], EACCES);
    }
    denied(&narrow(), &["read", &format!("{own}/cmdline")], EACCES);
    denied(&narrow(), &["list", "/proc"], EACCES);
}

#[test]
fn memory_is_bounded_and_cannot_be_unbounded() {
    let bound = |limits| Profile { limits, ..narrow() };
    let data = bound(Limits { data: Some(64 << 20), ..Limits::default() });
    let space = bound(Limits { address_space: Some(64 << 20), ..Limits::default() });
    for profile in [data, space] {
        allowed(&profile, &["memory", "1048576"]);
        denied(&profile, &["memory", "134217728"], libc::ENOMEM);
    }
}

#[test]
fn memory_that_no_limit_counts_is_refused_where_memory_is_bounded() {
    let data = Profile { limits: Limits { data: Some(64 << 20), ..Limits::default() }, ..narrow() };
    let together =
        Profile { limits: Limits { tree_memory: Some(64 << 20), ..Limits::default() }, ..narrow() };
    for profile in [data, together] {
        for attempt in [&["shared", "1048576"][..], &["growing", "1048576"], &["nameless"]] {
            denied(&profile, attempt, EPERM);
            allowed(&narrow(), attempt);
        }
        denied(&profile, &["read", "/dev/zero"], EACCES);
        allowed(&profile, &["memory", "1048576"]);
    }
}

/// What it was killed for, with the bounds on all that it started.
fn exceeded(limits: Limits, args: &[&str]) -> Option<String> {
    let outcome = prepared(Profile { limits, ..narrow() }, args).run(1024).expect("it starts");
    assert!(!outcome.timed_out, "{args:?} goes on");
    outcome.exceeded
}

#[test]
fn memory_that_was_made_read_only_is_counted_with_all_the_rest() {
    let limits = Limits { data: Some(64 << 20), tree_memory: Some(96 << 20), ..Limits::default() };
    let found = exceeded(limits, &["hoard", "268435456"]);
    assert_eq!(found.as_deref(), Some("held more than 96 MiB of memory together"));
}

#[test]
fn threads_and_processes_are_bounded_together_whoever_started_them() {
    let limits = Limits { tree_tasks: Some(40), ..Limits::default() };
    let expected = Some("had more than 40 processes and threads");
    assert_eq!(exceeded(limits.clone(), &["threads", "64"]).as_deref(), expected);
    let script = "for i in $(seq 8); do sh -c 'for i in $(seq 8); do sleep 1000 & done; wait' & done; wait";
    let sh = Confined::new(example("confined"), Profile { limits, ..Profile::read_only() }, "/bin/sh");
    let sh = sh.args(["-c", script]).env("PATH", "/usr/bin:/bin").deadline(Duration::from_secs(20));
    let outcome = sh.run(1024).expect("it starts");
    assert_eq!(outcome.exceeded.as_deref(), expected);
}

#[test]
fn who_kills_what_is_being_killed_learns_why() {
    let limits = Limits { tree_tasks: Some(40), ..Limits::default() };
    let mut child = prepared(Profile { limits, ..narrow() }, &["threads", "64"]).spawn().expect("it starts");
    while child.try_wait().expect("it can be asked").is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (_, stopped) = child.kill().expect("it is ours");
    assert!(matches!(stopped, Some(Stopped::Exceeded(_))), "{stopped:?}");
}

#[test]
fn a_program_gives_way_and_never_less_than_this_process() {
    let nice = |nice| Profile { limits: Limits { nice: Some(nice), ..Limits::default() }, ..narrow() };
    let own = rustix::process::getpriority_process(None).expect("it has one").max(5);
    // Of this test's thread only, whose children inherit it.
    rustix::process::setpriority_process(None, own).expect("less is always allowed");
    allowed(&nice(10), &["nice", &own.max(10).to_string()]);
    allowed(&nice(0), &["nice", &own.to_string()]);
    allowed(&nice(200), &["nice", "19"]);
}

#[test]
fn a_setuid_file_gives_no_more_rights() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let other = folder.path().join("other");
    copied::copy_program(example("attempt"), &other);
    let own = geteuid().as_raw();
    if geteuid().is_root() {
        chown(&other, Some(65534), None).expect("root may");
    }
    fs::set_permissions(&other, fs::Permissions::from_mode(0o4755)).expect("its owner may");
    let run = |program: &Path| {
        let profile = narrow().read(folder.path());
        let start = Confined::new(example("confined"), profile, program).arg("user");
        String::from_utf8_lossy(&start.run(1024).expect("it starts").stdout).trim().to_owned()
    };
    assert_eq!(run(&other), format!("{own} 1"));
    assert_eq!(free(&["user"]), format!("{own} 0"));
    if geteuid().is_root() {
        assert_eq!(start::said(&other, &["user"]), "65534 0", "set-user-id files work here");
    }
}

#[test]
fn root_has_no_more_rights_than_others() {
    let home = Home::new();
    let file = home.path("data/own/file");
    assert_eq!(confined(home.profile.clone(), &["give", &file]), EPERM.to_string());
    if geteuid().is_root() {
        assert_eq!(free(&["give", &file]), "ok");
    }
}

#[test]
fn a_program_gets_the_standard_streams_and_what_it_is_passed() {
    let leaked = rustix::io::dup(fs::File::open("/etc/passwd").expect("it exists")).expect("open on exec");
    assert_eq!(confined(narrow(), &["descriptors"]), "0 1 2");
    let (one, other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let (start, first) = prepared(narrow(), &["descriptors"]).pass(one.into());
    let (start, second) = start.pass(other.into());
    let outcome = start.run(1024).expect("it starts");
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let (low, high) = (first.min(second), first.max(second));
    assert_eq!(said.trim(), format!("0 1 2 {low} {high}"));
    drop(leaked);
}

#[test]
fn a_passed_socket_works_and_no_process_between_holds_it() {
    use std::io::{Read, Write};
    let (mut own, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let leaked = rustix::io::dup(&own).expect("a copy that stays open on exec");
    let number = theirs.as_raw_fd().to_string();
    let (start, _) = prepared(narrow(), &["answer", &number]).pass(theirs.into());
    let child = start.stdin(Stdio::piped()).spawn().expect("it starts");
    // Shorter than the deadline: the end of everything would close the socket, too.
    own.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket has one");
    own.write_all(b"hello").expect("it listens");
    let mut answer = Vec::new();
    // The program closes its end and runs on, so that the end of the stream comes only if nobody else has a copy.
    own.read_to_end(&mut answer).expect("the program answers");
    assert_eq!(answer, b"hello");
    let held: Vec<PathBuf> = fs::read_dir(format!("/proc/{}/fd", child.id()))
        .expect("the reaper runs")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .collect();
    assert!(held.iter().all(|link| link != &peer(&leaked)), "the reaper holds {held:?}");
    let environment = fs::read(format!("/proc/{}/environ", child.id())).expect("the reaper runs");
    assert!(environment.is_empty(), "the reaper has variables of this process");
    child.kill().expect("it runs");
}

/// What `/proc` calls a descriptor of this process.
fn peer(descriptor: &OwnedFd) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd())).expect("it is open")
}

#[test]
fn a_compiler_and_what_it_makes_run_confined() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let (source, made) = (folder.path().join("hello.rs"), folder.path().join("hello"));
    let text = "fn main() { std::thread::spawn(|| println!(\"hello\")).join().unwrap() }";
    fs::write(&source, text).expect("a file");
    let tools = Path::new(env!("CARGO")).parent().expect("cargo is in a folder");
    let sysroot = tools.parent().expect("that is in the toolchain");
    let profile = Profile { strict: true, ..Profile::program() }.read(sysroot).write(folder.path());
    // The linker makes its output executable, by its path.
    let compiler = Confined::new(
        example("confined"),
        Profile { attributes: true, ..profile.clone() },
        tools.join("rustc"),
    );
    let compiler = compiler.arg(&source).arg("-o").arg(&made).directory(folder.path());
    let compiler = compiler.env("PATH", "/usr/bin:/bin").env("TMPDIR", folder.path());
    let outcome = compiler.deadline(Duration::from_secs(120)).run(64 * 1024).expect("it starts");
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    let outcome = Confined::new(example("confined"), profile, &made).run(1024).expect("it starts");
    assert_eq!(outcome.stdout, b"hello\n");
}
