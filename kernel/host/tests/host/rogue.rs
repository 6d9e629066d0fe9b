//! Processes whose extension has taken the socket for itself. The kernel must not care.

use std::time::Duration;

use drupe_host::{OpenError, Place};

use crate::{
    kernel::Kernel,
    setup::{alive, code, eventually, open_in, rogue},
};

async fn killed(how: &str) -> String {
    let error = open_in("faulty", rogue(how), &Kernel::default()).await.unwrap_err();
    let OpenError::Ended { ended, .. } = error else { panic!("{error:?}") };
    ended.how
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_frame_ends_the_process_with_a_reason() {
    for (how, told) in [
        ("length", "killed: it sent a frame of 4294967295 bytes"),
        ("body", "killed: it sent a frame of kind 8 that cannot be read"),
        ("kernels_own", "killed: it sent a frame that only the kernel sends"),
        ("twice", "killed: it gave two calls the same number"),
        ("closed", "killed: it closed its socket and did not end"),
    ] {
        assert_eq!(killed(how).await, told, "{how}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_ends_the_process() {
    for how in ["unknown", "answers", "calls"] {
        let told = killed(how).await;
        assert!(told.starts_with("killed: it flooded the kernel"), "{how}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_asks_and_does_not_listen_is_read_no_further() {
    let kernel = Kernel::default();
    let opening = drupe_host::open(code("faulty"), Place::Process(rogue("deaf")), kernel.table());
    // Were it read on, it would soon be told `busy` too often.
    assert!(tokio::time::timeout(Duration::from_secs(2), opening).await.is_err());
    assert!(kernel.most_under_way() <= 4096);
    let heard = kernel.heard("x").len();
    assert!(heard <= 4096, "{heard}");
    eventually("its calls end with it", || kernel.under_way() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_kernel_ends_the_call_that_it_was_in_and_nothing_else() {
    let kernel = Kernel::default();
    let opening = drupe_host::open(code("faulty"), Place::Process(rogue("panics")), kernel.table());
    let heard = eventually("what comes after them is heard", || kernel.heard("z").len() == 1);
    tokio::select! {
        ended = opening => panic!("it goes on: {:?}", ended.err()),
        () = heard => {}
    }
    assert_eq!((kernel.heard("y").len(), kernel.heard("w").len()), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn giving_up_while_it_opens_ends_the_process() {
    let opening = drupe_host::open(code("faulty"), Place::Process(rogue("half")), Kernel::default().table());
    let mut opening = Box::pin(opening);
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut opening).await.is_err());
    let reapers = children();
    assert!(!reapers.is_empty());
    drop(opening);
    eventually("the process is gone", || !reapers.iter().copied().any(alive)).await;
}

/// The processes that this one has started.
fn children() -> Vec<u32> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(list.split_whitespace().map(|pid| pid.parse::<u32>().unwrap()));
    }
    found
}
