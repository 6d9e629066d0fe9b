//! A small kernel that the tests let die: it installs the page that it gets as its standard input, opens the library that
//! the first argument names, and plays the scene that the second names, with the library doing what the third says.

#![expect(clippy::print_stdout, reason = "its output is for the test that started it")]

use std::{
    env,
    ffi::{CStr, CString, c_char, c_int, c_void},
    hint::black_box,
    io, mem,
    os::fd::AsFd,
    process, ptr, thread,
    time::{Duration, Instant},
};

use drupe_blame::{Operation, Who, disarm, enter, install, leave, overdue, register, sees_threads};
use rustix::process::{Resource, Rlimit, setrlimit};

fn main() {
    // Dying is the point; nobody looks at the remains.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).expect("a lower limit");
    // A victim that does not die as it should must not stay either, whether it waits or turns in circles.
    setrlimit(Resource::Cpu, Rlimit { current: Some(20), maximum: Some(20) }).expect("a lower limit");
    // SAFETY: asks for a signal, which no handler takes.
    unsafe { libc::alarm(30) };
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [library, scene, what] = arguments.as_slice() else {
        return measure();
    };
    let page = io::stdin().as_fd().try_clone_to_owned().expect("a page as standard input");
    if scene == "not installed" {
        let a = register("a", "1");
        drop(
            (a == Who::NOBODY).then(|| enter(a, Operation::ToolCall)).expect("nobody before it is installed"),
        );
        return;
    }
    let library = Library::open(library);
    if scene == "in a that crashes after exit" {
        library.run("crash at the end of exit", 0);
    }
    install(page).expect("it installs");
    play(scene, &library, what);
}

fn play(scene: &str, library: &Library, what: &str) {
    let (a, b) = (register("a", "hash of a"), register("b", "hash of b"));
    assert!(a != b && a == register("a", "hash of a") && a != Who::NOBODY);
    match scene {
        "in nobody" => library.run(what, 0),
        "in a" | "in a that crashes after exit" => inside(a, || library.run(what, 0)),
        "on a thread of a" => inside(a, || library.run(what, 1)),
        "on a thread of a thread of a" => inside(a, || library.run(what, 2)),
        "in a on a thread of the kernel" => thread::scope(|scope| {
            scope.spawn(|| inside(a, || library.run(what, 0)));
        }),
        "in b inside of a" => inside(a, || inside(b, || library.run(what, 0))),
        "in a after b inside of it" => inside(a, || {
            inside(b, || library.run("return", 0));
            library.run(what, 0);
        }),
        "in the kernel that a called" => inside(a, || {
            let _kernel = leave();
            library.run(what, 0);
        }),
        "on a thread of the kernel that a called" => inside(a, || {
            let _kernel = leave();
            library.run(what, 1);
        }),
        "in a after it called the kernel" => inside(a, || {
            drop(leave());
            library.run(what, 0);
        }),
        "in the kernel that a thread of a called" => inside(a, || {
            thread::scope(|scope| {
                scope.spawn(|| {
                    let _kernel = leave();
                    library.run(what, 0);
                });
            });
        }),
        "in b while a thread of a lives" => {
            inside(a, || library.run("start one that crashes later", 0));
            inside(b, || library.run(what, 0));
        }
        "in a and in b until killed" => thread::scope(|scope| {
            scope.spawn(|| inside(a, wait_for_ever));
            let _b = enter(b, Operation::ChannelSend);
            while overdue(Duration::from_millis(20)).len() < 2 {
                thread::yield_now();
            }
            println!("ready");
            wait_for_ever();
        }),
        "in a after thousands of threads" => {
            for _ in 0..3000 {
                thread::scope(|scope| scope.spawn(|| drop(enter(b, Operation::Health))).join())
                    .expect("it ends");
            }
            thread::scope(|scope| scope.spawn(|| inside(a, || library.run(what, 0))).join())
                .expect("it ends");
        }
        "in b while a has a thousand threads" => {
            inside(a, || library.run("start a thousand", 0));
            thread::scope(|scope| scope.spawn(|| inside(b, || library.run(what, 0))).join())
                .expect("it ends");
        }
        "on one more of a thousand threads of a" => inside(a, || {
            library.run("start a thousand", 0);
            library.run(what, 1);
        }),
        "in a with a full table" => {
            let (id, hash) = ("é".repeat(24), "0".repeat(64));
            assert_ne!(register(&id, &hash), Who::NOBODY);
            for (id, hash) in [("", ""), (&*(id.clone() + "x"), ""), ("c", &*(hash + "0"))] {
                assert_eq!(register(id, hash), Who::NOBODY, "{id} {hash}");
            }
            assert!((0..4093).all(|number| register("filler", &number.to_string()) != Who::NOBODY));
            assert_eq!(register("one too many", ""), Who::NOBODY);
            assert_eq!(register("filler", "7"), register("filler", "7"));
            inside(a, || library.run(what, 0));
        }
        "a is overdue" => tell_overdue(a, library),
        "in a while a fork of it was elsewhere" => inside(a, || {
            let process = process::id();
            library.run("fork and go on", 0);
            if process::id() == process {
                library.run(what, 0);
            } else {
                let _elsewhere = enter(b, Operation::Drop);
                library.run("_exit", 0);
            }
        }),
        "in order" => {
            inside(a, || library.run(what, 1));
            disarm();
        }
        other => panic!("no scene `{other}`"),
    }
}

fn inside(who: Who, act: impl FnOnce()) {
    let _running = enter(who, Operation::ToolCall);
    act();
}

fn wait_for_ever() {
    loop {
        thread::park();
    }
}

/// Tells what another thread sees of a poll that does not return, beside one that did and a thread of the plugin's own.
fn tell_overdue(a: Who, library: &Library) {
    inside(a, || library.run("start one that crashes later", 0));
    let limit = Duration::from_millis(50);
    let watcher = thread::spawn(move || {
        loop {
            let found = overdue(limit);
            if !found.is_empty() {
                return found;
            }
            thread::yield_now();
        }
    });
    let found = {
        let _running = enter(a, Operation::AgentInvoke);
        assert!(overdue(limit).is_empty(), "it only began");
        let found = watcher.join().expect("it watches");
        let _kernel = leave();
        assert!(overdue(limit).is_empty(), "the kernel's own code is nobody's");
        found
    };
    assert!(overdue(limit).is_empty(), "it ended");
    println!("{} {found:?}", sees_threads());
    disarm();
}

/// Prints what it costs to note a poll.
fn measure() {
    let page = drupe_blame::Page::create().expect("a page");
    install(page.fd().try_clone_to_owned().expect("a descriptor")).expect("it installs");
    let a = register("a", "hash of a");
    let mut rounds: Vec<f64> = (0..25)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..400_000 {
                drop(black_box(enter(black_box(a), Operation::ToolCall)));
            }
            begin.elapsed().as_secs_f64() * 1e9 / 400_000.0
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("enter and drop: {:.1} ns (median of 25 rounds, best {:.1})", rounds[12], rounds[0]);
    println!("threads of plugins are seen: {}", sees_threads());
    disarm();
}

/// The library, opened as plugins are.
struct Library {
    run: extern "C" fn(*const c_char, c_int),
}

// The function is plain code, and the library is never closed.
impl Library {
    fn open(path: &str) -> Self {
        let path = CString::new(path).expect("a path");
        // SAFETY: the tests built the library, which does nothing when it is opened.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "the library opens");
        let name: &CStr = c"plugin_run";
        // SAFETY: the handle is open, the name ends with a zero.
        let found: *mut c_void = unsafe { libc::dlsym(handle, name.as_ptr()) };
        assert!(!ptr::eq(found, ptr::null()), "the library has its function");
        // SAFETY: this is the function's type.
        Self { run: unsafe { mem::transmute::<*mut c_void, extern "C" fn(*const c_char, c_int)>(found) } }
    }

    fn run(&self, what: &str, depth: c_int) {
        let what = CString::new(what).expect("no zero");
        (self.run)(what.as_ptr(), depth);
    }
}
