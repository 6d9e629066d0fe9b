//! A loss of power keeps all that was acknowledged, and leaves a file that is whole.
//!
//! The process that writes sees the power go at moments that chance chooses: a copy of the files is made as a disk may have
//! them then, and opened as the next start would.

mod disk;
pub mod upgrade;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use super::{crash::Victim, *};
use crate::{turns as turn_rows, writer::Survives};
use disk::{Chance, Disk};

/// What was found after losses of power.
#[derive(Debug, Default)]
struct Found {
    losses: usize,
    /// Those after which something that was acknowledged is gone.
    forgetful: usize,
    /// Those after which the file is damaged.
    damaged: usize,
    acknowledged: usize,
}

/// Has the power go so often, and looks at what is left each time.
async fn lose_power(storage: &str, seed: u64, losses: usize) -> Found {
    let home = Home::new();
    let mut victim = Victim::start(&format!("power {storage} {seed}"), &home.path());
    let (mut found, mut acknowledged) = (Found::default(), BTreeSet::new());
    while found.losses < losses {
        let line = victim.line();
        let Some(line) = line.strip_prefix("lost ") else { continue };
        let mut words = line.split_whitespace();
        let folder = PathBuf::from(words.next().unwrap());
        acknowledged.extend(words.map(str::to_owned));
        found.losses += 1;
        match kept(&folder).await {
            Some(kept) if acknowledged.is_subset(&kept) => {}
            Some(_) => found.forgetful += 1,
            None => found.damaged += 1,
        }
        std::fs::remove_dir_all(&folder).unwrap();
        victim.order("go on");
    }
    victim.kill();
    found.acknowledged = acknowledged.len();
    found
}

/// What a start finds: messages that were accepted, and those that are answered; none where the file is damaged.
async fn kept(folder: &Path) -> Option<BTreeSet<String>> {
    let home = Home::new();
    let path = folder.join("journal.db");
    let store = home.open_as(&Storage::Full(path)).ok()?;
    let read = store.read(|db| {
        let whole: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        let mut all = db.prepare("SELECT external_id, finished_ms IS NOT NULL FROM turns")?;
        let rows = all
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<Vec<(String, bool)>, _>>()?;
        Ok((whole, rows))
    });
    let (whole, rows) = read.await.ok()?;
    let names = rows.into_iter().flat_map(|(name, answered)| {
        [Some(format!("accepted:{name}")), answered.then(|| format!("answered:{name}"))]
    });
    (whole == "ok").then(|| names.flatten().collect())
}

/// The process that writes. It has four conversations at once, whose commits share waits for the disk.
pub async fn write_until_killed(storage: &Storage, seed: u64) {
    let acknowledged: Arc<Mutex<Vec<String>>> = Arc::default();
    let (told, folder) = (Arc::clone(&acknowledged), tempfile::tempdir().unwrap());
    let mut number = 0;
    Disk::begin(Chance::new(seed), move |lost| {
        number += 1;
        let place = folder.path().join(number.to_string());
        // Whatever is acknowledged from here on is not among what this loss must keep.
        let names = std::mem::take(&mut *told.lock().unwrap());
        lost.write_to(&place);
        super::crash::say(&format!("lost {} {}", place.display(), names.join(" ")));
        super::crash::hear();
    });
    let store = Home::new().open_as(storage).unwrap();
    let talk = async |session: usize| {
        let session = format!("s{session}");
        for n in 0.. {
            let name = format!("{session}.{n}");
            let accepted = store.accept(message(&session, &name, "hello")).await.unwrap();
            acknowledged.lock().unwrap().push(format!("accepted:{name}"));
            let (turn, of) = (accepted.turn.clone(), session.clone());
            let begun = store.write(Survives::Process, move |on| {
                turn_rows::start(on, &start(&turn, &of, vec![remark("start")])).map(drop)
            });
            begun.await.unwrap();
            let turn = accepted.turn;
            store
                .write(Survives::Power, move |on| turn_rows::finish(on, &done(&turn, "hi")).map(drop))
                .await
                .unwrap();
            acknowledged.lock().unwrap().push(format!("answered:{name}"));
        }
    };
    futures_util::future::join_all((0..4).map(talk)).await;
}

#[tokio::test]
async fn a_loss_of_power_keeps_all_that_was_acknowledged() {
    let found = lose_power("full", 1, 120).await;
    assert_eq!((found.forgetful, found.damaged), (0, 0), "{found:?}");
    assert!(found.acknowledged > 50, "{found:?}");
}

#[tokio::test]
async fn where_nobody_waits_for_the_disk_a_loss_of_power_is_seen() {
    let found = lose_power("process", 1, 120).await;
    assert!(found.forgetful + found.damaged > 0, "the disk forgets nothing: {found:?}");
}

#[tokio::test]
#[ignore = "takes a minute; run it with --ignored --nocapture"]
#[expect(clippy::print_stdout, reason = "figures are for whoever reads the output")]
async fn five_hundred_losses_of_power() {
    for (storage, seed) in [("full", 2), ("full", 3), ("process", 2)] {
        let found = lose_power(storage, seed, 500).await;
        println!("{storage}: {found:?}");
        assert_eq!(found.forgetful + found.damaged == 0, storage == "full", "{found:?}");
    }
}
