//! What nobody follows costs no allocation.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::Arc,
};

use drupe_agent::{Chain, Observer, TopicMessage};
use drupe_bus::Bus;
use drupe_extension_api::{Event, EventBody, ItemKind};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every request goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn delta() -> Event {
    Event {
        seq: 0,
        time: "2026-03-01T10:00:00Z".parse().expect("a time"),
        session: "s".parse().expect("an id"),
        turn: None,
        correlation_id: None,
        agent: None,
        body: EventBody::ItemUpdated { id: "i".into(), item: ItemKind::AgentMessage, delta: "word".into() },
    }
}

fn message() -> Arc<TopicMessage> {
    let payload = serde_json::json!({});
    Arc::new(TopicMessage { topic: "t".into(), payload, chain: Chain::default(), correlation: None })
}

#[test]
fn what_nobody_follows_is_not_allocated_for() {
    let bus = Bus::default();
    let (first, second) = (delta(), delta());
    let session = first.session.clone();
    let other = bus.watch(&"other".parse().expect("an id"));
    assert_eq!(count(|| bus.live(first)), 0, "a delta that nobody watches");
    assert_eq!(count(|| assert!(!Observer::watched(&bus, &session))), 0);
    assert_eq!(count(|| assert!(!bus.listens("t"))), 0);
    let unheard = message();
    assert_eq!(count(|| bus.message(unheard)), 0, "a message that nobody follows");
    drop(other);
    let _watch = bus.watch(&session);
    assert!(count(|| bus.live(second)) > 0, "the counter counts");
}
