//! Handles over sources and sinks that a test plays.

#![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use drupe_agent::Chain;
use drupe_extension_api::{
    Fault, FaultCode,
    wire::{HandleNext, LARGEST_PUT},
};
use futures_util::{FutureExt, future::BoxFuture};
use tokio::sync::mpsc;

use crate::{Credit, Given, Handles, Holder, MOST, Sink, Source, Until};

/// Gives what a test sends, and counts those that are there.
struct Fed {
    fed: mpsc::UnboundedReceiver<Result<Given, Fault>>,
    asked: Arc<std::sync::Mutex<Vec<Credit>>>,
    _there: Counted,
}

struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Source for Fed {
    fn next(&mut self, credit: Credit) -> BoxFuture<'_, Result<Given, Fault>> {
        self.asked.lock().unwrap().push(credit);
        async { self.fed.recv().await.unwrap() }.boxed()
    }

    fn chain(&self) -> Option<Chain> {
        // What was given last was set off as often as was asked.
        Some(Chain { hops: u32::try_from(self.asked.lock().unwrap().len()).unwrap(), ancestors: Vec::new() })
    }
}

/// Takes one thing, then waits until it is let go on.
struct Slow(mpsc::UnboundedReceiver<()>);

impl Sink for Slow {
    fn put(&mut self, content: Vec<u8>) -> BoxFuture<'_, Result<(), Fault>> {
        assert!(content.len() <= LARGEST_PUT);
        async {
            self.0.recv().await.unwrap();
            Ok(())
        }
        .boxed()
    }
}

struct Scene {
    handles: Handles,
    owner: Holder,
    there: Arc<AtomicUsize>,
    asked: Arc<std::sync::Mutex<Vec<Credit>>>,
}

impl Scene {
    fn new() -> Self {
        let handles = Handles::default();
        let owner = handles.holder("e".parse().unwrap());
        Self { handles, owner, there: Arc::default(), asked: Arc::default() }
    }

    fn open(&self) -> (u64, mpsc::UnboundedSender<Result<Given, Fault>>) {
        let (feed, fed) = mpsc::unbounded_channel();
        let source = Fed { fed, asked: Arc::clone(&self.asked), _there: Counted::new(&self.there) };
        (self.handles.open(&self.owner, Box::new(source)).unwrap(), feed)
    }

    async fn next(&self, handle: u64) -> Result<Given, Fault> {
        self.handles.next(&self.owner, HandleNext::items(handle, 9)).await
    }

    fn there(&self) -> usize {
        self.there.load(Ordering::Relaxed)
    }
}

fn bytes(text: &str) -> Result<Given, Fault> {
    Ok(Given::Bytes(text.into()))
}

#[tokio::test]
async fn what_ended_is_gone_and_says_so_again_in_its_own_kind() {
    let scene = Scene::new();
    let (handle, feed) = scene.open();
    feed.send(bytes("a")).unwrap();
    feed.send(bytes("")).unwrap();
    assert!(matches!(scene.next(handle).await.unwrap(), Given::Bytes(given) if given == b"a"));
    assert_eq!(scene.handles.chains(&scene.owner).len(), 1);
    for _ in 0..2 {
        assert!(matches!(scene.next(handle).await.unwrap(), Given::Bytes(given) if given.is_empty()));
        assert_eq!((scene.there(), scene.handles.chains(&scene.owner).len()), (0, 0));
    }
    let (handle, feed) = scene.open();
    feed.send(Err(Fault::invalid("broken"))).unwrap();
    assert_eq!(scene.next(handle).await.unwrap_err().message, "broken");
    assert!(scene.next(handle).await.unwrap().is_end() && scene.there() == 0);
}

#[tokio::test]
async fn whoever_waits_on_a_handle_is_told_that_it_was_closed_and_nothing_is_left() {
    let scene = Scene::new();
    let (one, _feed) = scene.open();
    let (two, _feed) = scene.open();
    let mut waiting = Box::pin(scene.next(one));
    assert!((&mut waiting).now_or_never().is_none());
    assert_eq!(scene.handles.chains(&scene.owner).len(), 1, "what waits works on nothing");
    scene.handles.close(&scene.owner, one);
    assert_eq!(waiting.await.unwrap_err().code, FaultCode::NotFound);
    assert_eq!(scene.there(), 1);
    scene.handles.close_all(&scene.owner);
    assert_eq!(scene.there(), 0);
    // An instance that has ended opens nothing more, whenever it asked for it.
    let late = scene.handles.open_sink(&scene.owner, Box::new(Slow(mpsc::unbounded_channel().1)));
    assert_eq!(late.unwrap_err().code, FaultCode::Cancelled);
    assert_eq!(scene.next(two).await.unwrap_err().code, FaultCode::NotFound);
}

#[tokio::test]
async fn a_handle_is_nobody_elses_and_has_one_direction() {
    let scene = Scene::new();
    let (handle, _feed) = scene.open();
    let other = scene.handles.holder("e".parse().unwrap());
    let asked = scene.handles.next(&other, HandleNext::bytes(handle, 9)).await;
    assert_eq!(asked.unwrap_err().code, FaultCode::NotFound);
    scene.handles.close(&other, handle);
    scene.handles.close_all(&other);
    assert_eq!(scene.there(), 1);
    assert!(
        scene.handles.put(&scene.owner, handle, Vec::new()).await.unwrap_err().message.contains("is read")
    );
    let sink = scene.handles.open_sink(&scene.owner, Box::new(Slow(mpsc::unbounded_channel().1))).unwrap();
    assert!(scene.next(sink).await.unwrap_err().message.contains("is written"));
}

#[tokio::test]
async fn a_writer_waits_until_there_is_room_and_puts_no_more_than_fits() {
    let scene = Scene::new();
    let (go, waits) = mpsc::unbounded_channel();
    let sink = scene.handles.open_sink(&scene.owner, Box::new(Slow(waits))).unwrap();
    let put = |bytes| scene.handles.put(&scene.owner, sink, vec![0; bytes]);
    let mut first = Box::pin(put(LARGEST_PUT));
    assert!((&mut first).now_or_never().is_none());
    go.send(()).unwrap();
    first.await.unwrap();
    assert!(put(LARGEST_PUT + 1).await.unwrap_err().message.contains("at most"));
}

#[tokio::test]
async fn one_instance_holds_so_many_and_another_of_the_same_extension_still_has_room() {
    let scene = Scene::new();
    let feeds: Vec<_> = (0..MOST).map(|_| scene.open()).collect();
    let refused = scene.handles.check_room(&scene.owner, 1).unwrap_err();
    assert!(refused.message.contains("2048") && refused.code == FaultCode::Denied, "{refused}");
    let other = scene.handles.holder("e".parse().unwrap());
    scene.handles.check_room(&other, 4).unwrap();
    scene.handles.close(&scene.owner, feeds[7].0);
    scene.handles.check_room(&scene.owner, 1).unwrap();
    assert!(scene.handles.check_room(&scene.owner, 2).is_err());
}

#[tokio::test]
async fn no_reader_takes_more_than_the_most() {
    let scene = Scene::new();
    let (handle, feed) = scene.open();
    feed.send(bytes("a")).unwrap();
    let greedy = HandleNext { handle, credit: u32::MAX, bytes: u32::MAX };
    scene.handles.next(&scene.owner, greedy).await.unwrap();
    feed.send(bytes("a")).unwrap();
    scene.handles.next(&scene.owner, HandleNext { handle, credit: 0, bytes: 0 }).await.unwrap();
    let asked = scene.asked.lock().unwrap();
    assert_eq!(asked[0], Credit { items: 1024, bytes: 1 << 20 });
    assert_eq!(asked[1], Credit { items: 1, bytes: 1 }, "one at least");
    assert_eq!(Credit { items: 2, bytes: 5 }.after(5), None);
    assert_eq!(Credit { items: 2, bytes: 5 }.after(4), Some(Credit { items: 1, bytes: 1 }));
}

#[tokio::test]
async fn a_source_that_is_taken_back_ends_at_once_and_says_why() {
    let scene = Scene::new();
    let (feed, fed) = mpsc::unbounded_channel();
    let source = Fed { fed, asked: Arc::clone(&scene.asked), _there: Counted::new(&scene.there) };
    let over = tokio_util::sync::CancellationToken::new();
    let until = Until::new(Box::new(source), over.clone(), "it was taken back");
    let handle = scene.handles.open(&scene.owner, Box::new(until)).unwrap();
    feed.send(bytes("a")).unwrap();
    scene.next(handle).await.unwrap();
    assert_eq!(scene.handles.chains(&scene.owner).len(), 1);
    let mut waiting = Box::pin(scene.next(handle));
    assert!((&mut waiting).now_or_never().is_none());
    feed.send(bytes("b")).unwrap();
    over.cancel();
    assert_eq!(waiting.await.unwrap_err().message, "it was taken back");
    assert_eq!(scene.there(), 0);
}
