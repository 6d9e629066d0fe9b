//! Pictures: kept once, found again by their hashes, and let go with the last turn that has them.

use drupe_agent::{Journal, ids};
use drupe_extension_api::{Image, ImageType};

use super::*;
use crate::Retention;

fn image(n: u8) -> Image {
    let data: Arc<[u8]> = vec![n; 100_000].into();
    let (width, height) = (10, 20);
    let hash = format!("{n:064}");
    Image { hash, media_type: ImageType::Png, width, height, bytes: data.len() as u64, data: Some(data) }
}

fn shows(run: &str, images: Vec<Image>) -> Entry {
    match result(run, 1, 0, "a picture") {
        Entry::Result {
            invocation,
            step,
            index,
            effect,
            tool,
            kind,
            status,
            elapsed_ms,
            content,
            left,
            ..
        } => Entry::Result {
            invocation,
            step,
            index,
            effect,
            tool,
            kind,
            status,
            elapsed_ms,
            content,
            images,
            left,
        },
        other => other,
    }
}

/// A turn that is shown those.
async fn turn(store: &Store, n: usize, images: &[Image]) -> TurnId {
    let turn = store.accept(message("s", &n.to_string(), "look")).await.unwrap().turn;
    store.start_turn(start(&turn, "s", Vec::new())).await.unwrap();
    let run = ids::root_invocation(&turn).to_string();
    let entries = vec![
        begin(&run, "main", None, "look"),
        answer(&run, 1, "", &["look"]),
        intent(&run, 1, 0, EffectClass::Pure),
        shows(&run, images.to_vec()),
    ];
    store.commit(batch_of(&turn, entries)).await.unwrap();
    turn
}

async fn ends(store: &Store, turn: &TurnId) {
    store.finish_turn(TurnDone { outbox: None, ..done(turn, "done") }).await.unwrap();
}

async fn kept(store: &Store) -> (u32, u32) {
    let count = "SELECT (SELECT count(*) FROM images), (SELECT count(*) FROM image_uses)";
    store.read(move |db| Ok(db.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?)))?)).await.unwrap()
}

#[tokio::test]
async fn a_picture_is_kept_once_beside_rows_that_name_it_and_is_there_for_the_next_process() {
    let home = Home::new();
    let store = home.open();
    turn(&store, 0, &[image(1), image(2)]).await;
    let open = turn(&store, 1, &[image(1)]).await;
    assert_eq!(kept(&store).await, (2, 3));
    let size = store.size().await.unwrap();
    turn(&store, 2, &[image(1), image(2)]).await;
    assert!(store.size().await.unwrap() < size + 50_000, "its bytes are not written again");
    store.close().await.unwrap();
    let store = home.open();
    let recorded = store.recorded(&open).await.unwrap();
    let recorded = serde_json::to_value(recorded).unwrap().to_string();
    assert!(recorded.contains(&image(1).hash) && recorded.len() < 2_000, "rows have no bytes: {recorded}");
    let found = store.image(image(1).hash).await.unwrap();
    assert_eq!(found.as_deref(), image(1).data.as_deref());
    assert_eq!(store.image("none".into()).await.unwrap(), None);
    // What a person reads has the reference as well.
    let seen = store.turn_result(&open, false).await.unwrap().unwrap().transcript;
    assert!(seen.iter().any(|entry| entry.message.images() == [image(1).reference()]), "{seen:?}");
}

#[tokio::test]
async fn a_picture_goes_with_the_last_turn_that_has_it() {
    let home = Home::new();
    let store = home.open();
    let many: Vec<Image> = (10..20).map(image).collect();
    let first = turn(&store, 0, &[many.as_slice(), &[image(1)]].concat()).await;
    ends(&store, &first).await;
    home.clock.advance(2 * 86_400_000);
    let second = turn(&store, 1, &[image(1)]).await;
    ends(&store, &second).await;
    assert_eq!(kept(&store).await, (11, 12));
    let whole = store.size().await.unwrap();
    let keep = Retention { max_age_ms: Some(86_400_000), max_bytes: None };
    while store.let_go(keep).await.unwrap().more {}
    assert_eq!(kept(&store).await, (1, 1), "the younger turn still shows it");
    assert!(store.size().await.unwrap() + 900_000 < whole, "and the file has the room again");
    assert!(store.image(image(1).hash).await.unwrap().is_some());
}
