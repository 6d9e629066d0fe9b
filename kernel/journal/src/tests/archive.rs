//! Turns that are written to files before they go.

use std::{fs, os::unix::fs::PermissionsExt};

use drupe_extension_api::control::ArchivedTurn;

use super::*;
use crate::{Retention, archive_file};

const DAY_MS: i64 = 86_400_000;

async fn ended(store: &Store, id: &str, external_id: &str) -> TurnId {
    let turn = store.accept(message(id, external_id, "a question")).await.unwrap().turn;
    let entries = vec![begin(external_id, "main", None, "hello"), answer(external_id, 1, "an answer", &[])];
    let mut ended = TurnDone { outbox: None, ..done(&turn, external_id) };
    ended.last = Batch { entries, ..Batch::empty(session(id), turn.clone()) };
    store.finish_turn(ended).await.unwrap();
    turn
}

fn lines(file: &std::path::Path) -> Vec<ArchivedTurn> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

const KEEP: Retention = Retention { max_age_ms: Some(DAY_MS), max_bytes: None };

#[tokio::test]
async fn a_turn_is_in_its_file_before_it_goes() {
    let home = Home::new();
    let store = home.open();
    let mut turns = Vec::new();
    for n in 0..40 {
        turns.push(ended(&store, "s", &n.to_string()).await);
    }
    ended(&store, "..", "odd").await;
    let whole = store.turn_result(&turns[0], false).await.unwrap().unwrap();
    home.clock.advance(2 * DAY_MS);
    let young = ended(&store, "s", "young").await;
    let folder = home.folder.path().join("deep/archive");
    assert_eq!(store.keep_within(KEEP, Some(&folder)).await.unwrap(), 41);

    let file = archive_file(&folder, &session("s"));
    let archived = lines(&file);
    assert_eq!(archived.iter().map(|line| line.result.turn.clone()).collect::<Vec<_>>(), turns);
    assert_eq!(serde_json::to_value(&archived[0].result).unwrap(), serde_json::to_value(&whole).unwrap());
    assert!(!archived[0].result.transcript.is_empty());
    assert_eq!(lines(&archive_file(&folder, &session(".."))).len(), 1);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(store.turn_result(&young, false).await.unwrap().is_some());
    assert!(store.turn_result(&turns[0], false).await.unwrap().is_none());
}

#[tokio::test]
async fn what_cannot_be_archived_stays() {
    let home = Home::new();
    let store = home.open();
    let turn = ended(&store, "s", "1").await;
    home.clock.advance(2 * DAY_MS);
    ended(&store, "s", "young").await;
    let folder = home.folder.path().join("in the way");
    fs::write(&folder, "a file").unwrap();
    let error = store.keep_within(KEEP, Some(&folder)).await.unwrap_err();
    assert!(error.to_string().contains("the archive"), "{error}");
    assert!(store.turn_result(&turn, false).await.unwrap().is_some());
    fs::remove_file(&folder).unwrap();

    // A line that was cut off spoils no other.
    fs::create_dir(&folder).unwrap();
    let file = archive_file(&folder, &session("s"));
    fs::write(&file, "{\"form\":1,\"acc").unwrap();
    assert_eq!(store.keep_within(KEEP, Some(&folder)).await.unwrap(), 1);
    assert_eq!(lines(&file).len(), 1);
}
