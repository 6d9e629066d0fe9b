//! Programs that run in a terminal of their own.

use std::time::{Duration, Instant};

use drupe_extension_api::{
    FaultCode,
    wire::{ProcessExit, ProcessSpec, TerminalSize},
};
use drupe_programs::Opened;

use crate::home::{Home, all, bytes, exit};

fn ended(status: i32) -> ProcessExit {
    ProcessExit { status: Some(status), ..ProcessExit::default() }
}

fn shell(home: &Home, script: &str) -> ProcessSpec {
    ProcessSpec { terminal: Some(TerminalSize::default()), ..home.shell(script) }
}

async fn open(home: &Home, script: &str) -> Opened {
    home.open(&shell(home, script)).await.unwrap()
}

/// What a script writes that nobody types anything to, and how it ends.
async fn told(home: &Home, script: &str) -> (String, ProcessExit) {
    let mut program = open(home, script).await;
    drop(program.stdin);
    let said = String::from_utf8(all(&mut *program.stdout).await).unwrap();
    assert!(all(&mut *program.stderr).await.is_empty());
    (said.replace("\r\n", "\n"), exit(&mut *program.exit).await)
}

#[tokio::test]
async fn its_streams_are_a_terminal_of_the_size_that_was_asked_for_and_its_own() {
    let home = Home::new();
    let script = "test -t 0 && test -t 1 && test -t 2 && tty && stty size && ps -o tty= -p $$ || echo no; echo said >&2";
    let (said, exit) = told(&home, script).await;
    assert!(said.starts_with("/dev/pts/") && said.contains("\n40 120\n"), "{said}");
    assert!(said.ends_with("said\n") && exit == ended(0), "{said}");
    let small = Some(TerminalSize { columns: 1, rows: 500 });
    let ran = home.run(ProcessSpec { terminal: small, ..home.shell("stty size") }).await.unwrap();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.status), ("500 1\r\n", "", Some(0)));
    for (columns, rows) in [(0, 40), (120, 0), (501, 40), (120, 501)] {
        let terminal = Some(TerminalSize { columns, rows });
        let refused = home.run(ProcessSpec { terminal, ..home.shell("true") }).await.unwrap_err();
        assert_eq!(refused.code, FaultCode::Invalid, "{refused}");
    }
    let ran = home.run(home.shell("test -t 0 || test -t 1 || test -t 2; echo $?")).await.unwrap();
    assert_eq!(ran.stdout, "1\n", "without one there is none");
}

#[tokio::test]
async fn what_is_typed_is_read_and_nothing_that_was_written_is_lost_when_it_ends() {
    let home = Home::new();
    let mut program = open(&home, "read line; echo \"<$line>\"").await;
    program.stdin.put(b"hello\n".to_vec()).await.unwrap();
    let said = String::from_utf8(all(&mut *program.stdout).await).unwrap();
    assert_eq!(said, "hello\r\n<hello>\r\n", "it is echoed, as terminals do");
    assert_eq!(exit(&mut *program.exit).await, ended(0));
    // Nobody reads until it has ended; and of more than fits it waits.
    drop(program);
    let mut program = open(&home, "perl -e 'print \"x\" x 8000'").await;
    assert_eq!(exit(&mut *program.exit).await, ended(0));
    assert!(all(&mut *program.stdout).await == vec![b'x'; 8000]);
    drop(program);
    let mut program = open(&home, "perl -e 'print \"y\" x 3000000'; exit 3").await;
    assert!(all(&mut *program.stdout).await == vec![b'y'; 3_000_000]);
    assert_eq!(exit(&mut *program.exit).await, ended(3));
    drop(program);
    home.until_free().await;
}

#[tokio::test]
async fn what_asks_where_nobody_answers_reads_the_end() {
    let home = Home::new();
    let (said, exit) = told(&home, "cat; cat; read x; echo \"read $?\"").await;
    assert_eq!((said.as_str(), exit), ("read 1\n", ended(0)));
    // Who asks for a password throws away what was typed before.
    let flush = "perl -MPOSIX -e 'tcflush(0, TCIFLUSH)'; printf 'Password: '; read x; echo \"read $?\"";
    let (said, exit) = told(&home, &[flush; 3].join(";")).await;
    assert_eq!((said.as_str(), exit), ("Password: read 1\n".repeat(3).as_str(), ended(0)));
    // One that reads each key gets it a few times and no more, whatever it writes.
    let keys = "perl -MPOSIX -e 'tcflush(0, TCIFLUSH); exec @ARGV' sh -c \
                'stty raw -echo; printf x; for k in 1 2 3; do head -c 1 | od -An -tx1; printf x; done'";
    let (said, exit) = told(&home, keys).await;
    assert_eq!((said.matches("04").count(), exit), (3, ended(0)), "{said}");
    let ever = "stty raw -echo; printf x; while :; do head -c 1 > /dev/null; printf x; done";
    let ever = ProcessSpec { timeout_ms: Some(1500), ..shell(&home, ever) };
    let mut program = home.open(&ever).await.unwrap();
    drop(program.stdin);
    let said = all(&mut *program.stdout).await;
    assert!((1..64).contains(&said.len()), "{}", String::from_utf8_lossy(&said));
}

#[tokio::test]
async fn its_end_is_seen_though_others_hold_the_terminal_open() {
    let home = Home::new();
    let began = Instant::now();
    let hold = "(setsid sleep 1000 &); trap '' HUP; sleep 1000 & set -m; sleep 1000 & echo $!";
    let (said, exit) = told(&home, hold).await;
    assert_eq!(exit, ended(0));
    assert!(!std::fs::exists(format!("/proc/{}", said.trim())).unwrap(), "{said}");
    // One that hears nothing, at its deadline.
    let deaf = "trap '' HUP INT TERM; (setsid sh -c \"trap '' HUP; sleep 1000\" &); echo on; sleep 1000";
    let mut program = home.open(&ProcessSpec { timeout_ms: Some(300), ..shell(&home, deaf) }).await.unwrap();
    assert_eq!(all(&mut *program.stdout).await, b"on\r\n");
    let told = super::home::exit(&mut *program.exit).await;
    assert!(told.timed_out && told.status.is_none(), "{told:?}");
    // One whose terminal is hung up, since nobody holds the other side.
    let mut program = open(&home, "trap 'exit 5' HUP; echo on; while :; do sleep 0.01; done").await;
    assert_eq!(bytes(&mut *program.stdout).await, b"on\r\n");
    drop((program.stdin, program.stdout));
    assert_eq!(super::home::exit(&mut *program.exit).await, ended(5));
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn it_reaches_no_terminal_by_a_path_and_types_nothing_itself() {
    let home = Home::new();
    for path in ["/dev/ptmx", "/dev/pts/ptmx", "/dev/tty", "$(tty)", "/proc/self/fd/0"] {
        for open in ["<", ">", "<>"] {
            let (said, _) = told(&home, &format!(": {open} {path}")).await;
            assert!(said.contains("Permission denied"), "{open} {path}: {said}");
        }
    }
    // TIOCSTI, TIOCLINUX and TIOCSETD, with upper halves that the system does not look at.
    for (call, argument) in [("0x5412", "\"x\""), ("0x541c", "\"\\2\""), ("0x5423", "pack(\"i\", 0)")] {
        for high in ["", "+(1<<32)"] {
            let script = format!(
                "perl -MPOSIX -e '$a = {argument}; syscall({IOCTL}, 0, {call}{high}, $a) == -1 and die $!'; cat"
            );
            let (said, _) = told(&home, &script).await;
            assert!(said.starts_with("Operation not permitted"), "{call}: {said}");
        }
    }
    // Its side is not the one that others are asked of.
    let (said, _) = told(&home, &format!("perl -e 'syscall({IOCTL}, 0, 0x5441, 2) == -1 and die $!'")).await;
    assert!(said.starts_with("Input/output error"), "{said}");
}

const IOCTL: u32 = if cfg!(target_arch = "aarch64") { 29 } else { 16 };
