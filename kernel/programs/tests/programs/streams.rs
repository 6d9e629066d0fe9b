//! Programs whose streams are read and written while they run.

use std::{fs, time::Duration};

use drupe_extension_api::wire::{ProcessExit, ProcessSpec};
use drupe_handles::{Credit, Given};
use futures_util::FutureExt as _;

use crate::home::{ALL, Home, all, bytes, exit};

fn ended(status: i32) -> ProcessExit {
    ProcessExit { status: Some(status), ..ProcessExit::default() }
}

#[tokio::test]
async fn what_is_written_comes_back_from_a_cat_and_its_end_is_the_end_of_its_input() {
    let home = Home::new();
    let mut cat = home.open(&ProcessSpec::new("cat", home.path("data/one"))).await.unwrap();
    for word in ["one", "two"] {
        cat.stdin.put(word.into()).await.unwrap();
        assert_eq!(bytes(&mut *cat.stdout).await, word.as_bytes());
    }
    assert!(cat.exit.next(ALL).now_or_never().is_none(), "it runs");
    drop(cat.stdin);
    assert!(bytes(&mut *cat.stdout).await.is_empty());
    assert_eq!(exit(&mut *cat.exit).await, ended(0));
    drop(cat.exit);
    // Its streams are open files: a place is free when they are closed, too.
    assert_eq!(home.free(), 7);
    drop((cat.stdout, cat.stderr));
    home.until_free().await;
}

#[tokio::test]
async fn a_program_that_writes_more_than_is_read_waits_and_nothing_of_it_is_lost() {
    let home = Home::new();
    let script = "head -c 4000000 /dev/urandom > sent; cat sent; echo after > after; echo said >&2; exit 3";
    let mut program = home.open(&home.shell(script)).await.unwrap();
    let first = match program.stdout.next(Credit { items: 1, bytes: 10 }).await.unwrap() {
        Given::Bytes(bytes) => bytes,
        Given::Items(_) => panic!("bytes"),
    };
    assert_eq!(first.len(), 10, "no more than is taken");
    // It is not asked for more: the program stands still behind a full pipe, and nobody holds what it will write.
    let still = tokio::time::timeout(Duration::from_millis(300), program.exit.next(ALL)).await;
    assert!(still.is_err() && !fs::exists(home.path("data/one/after")).unwrap());
    let mut read = first;
    read.extend(all(&mut *program.stdout).await);
    assert!(read == fs::read(home.path("data/one/sent")).unwrap());
    assert_eq!(all(&mut *program.stderr).await, b"said\n");
    assert_eq!(exit(&mut *program.exit).await, ended(3));
}

#[tokio::test]
async fn writing_waits_while_the_program_does_not_read_and_fails_when_it_never_will() {
    let home = Home::new();
    let script = "while [ ! -e go ]; do sleep 0.01; done; cat > got";
    let mut program = home.open(&home.shell(script)).await.unwrap();
    let more_than_a_pipe_holds = vec![7; 200_000];
    {
        let mut put = program.stdin.put(more_than_a_pipe_holds.clone());
        assert!(tokio::time::timeout(Duration::from_millis(100), &mut put).await.is_err(), "it waits");
        fs::write(home.path("data/one/go"), "").unwrap();
        put.await.unwrap();
    }
    drop(program.stdin);
    assert_eq!(exit(&mut *program.exit).await, ended(0));
    assert!(fs::read(home.path("data/one/got")).unwrap() == more_than_a_pipe_holds);
    let mut deaf = home.open(&home.shell("exit 0")).await.unwrap();
    exit(&mut *deaf.exit).await;
    // What another test is starting just now holds the other end of the pipe as well, until it has become another program.
    let fails = async {
        loop {
            match deaf.stdin.put(b"x".to_vec()).await {
                Err(fault) => break fault,
                Ok(()) => tokio::task::yield_now().await,
            }
        }
    };
    let fault = tokio::time::timeout(Duration::from_secs(30), fails).await.expect("nobody reads it");
    assert!(fault.message.contains("does not read"), "{fault}");
}

#[tokio::test]
async fn a_signal_a_deadline_and_too_much_memory_are_told_apart() {
    let home = Home::new();
    let mut killed = home.open(&home.shell("kill -9 $$")).await.unwrap();
    let told = exit(&mut *killed.exit).await;
    assert_eq!(told, ProcessExit { signal: Some(9), ..ProcessExit::default() });
    let late = ProcessSpec { timeout_ms: Some(50), ..home.shell("sleep 1000") };
    let told = exit(&mut *home.open(&late).await.unwrap().exit).await;
    assert!(told.timed_out && told.status.is_none(), "{told:?}");
    let hungry = ProcessSpec { memory_mb: Some(32), ..home.shell("x=$(yes | head -c 200000000)") };
    let mut hungry = home.open(&hungry).await.unwrap();
    let _ = all(&mut *hungry.stderr).await;
    assert_ne!(exit(&mut *hungry.exit).await, ended(0));
}

#[tokio::test]
async fn a_program_and_all_that_it_started_are_gone_when_nobody_holds_it() {
    let home = Home::new();
    let script = "(setsid sleep 1000 & echo $!); echo $$; sleep 1000";
    let mut program = home.open(&home.shell(script)).await.unwrap();
    let mut said = String::new();
    while said.lines().count() < 2 {
        said += &String::from_utf8(bytes(&mut *program.stdout).await).unwrap();
    }
    let alive = |pid: &str| fs::exists(format!("/proc/{pid}")).unwrap();
    assert!(said.lines().all(alive), "{said}");
    drop((program.exit, program.stdin, program.stderr));
    assert!(bytes(&mut *program.stdout).await.is_empty(), "its pipe has ended");
    drop(program.stdout);
    home.until_free().await;
    assert!(!said.lines().any(alive), "{said}");
}

#[tokio::test]
async fn a_question_that_is_given_up_loses_nothing() {
    let home = Home::new();
    let mut program = home.open(&home.shell("read x; echo said; exit 4")).await.unwrap();
    assert!(program.stdout.next(ALL).now_or_never().is_none());
    assert!(program.exit.next(ALL).now_or_never().is_none());
    program.stdin.put(b"go\n".to_vec()).await.unwrap();
    assert_eq!(bytes(&mut *program.stdout).await, b"said\n");
    // Given up as often as it can be.
    let told = loop {
        match tokio::time::timeout(Duration::ZERO, exit(&mut *program.exit)).await {
            Ok(told) => break told,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(told, ended(4));
}

#[tokio::test]
async fn a_program_runs_to_its_end_and_the_beginning_of_what_it_writes_is_kept() {
    let home = Home::new();
    let script = "yes a | head -c 300000; yes b | head -c 300000 >&2; exit 5";
    let output = home.run(home.shell(script)).await.unwrap();
    assert_eq!((output.status, output.timed_out), (Some(5), false));
    assert!(output.stdout == "a\n".repeat(2048) && output.stderr == "b\n".repeat(2048));
    let endless = ProcessSpec { timeout_ms: None, ..home.shell("true") };
    assert!(home.run(endless).await.unwrap_err().message.contains("timeout_ms"));
    assert!(home.sh_in("cat; echo end", &[]).await.unwrap().stdout == "end\n", "it has nothing to read");
}
