//! Messages on their way to people: an answer is a row before it is sent, and is sent at most once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use drupe_agent::one_line;
use drupe_bus::Watched;
use drupe_extension_api::{
    EventBody, ExtensionId, FaultCode, ItemKind, TurnId,
    wire::{ChannelStream, Delivery, OutboundMessage, StreamPart, op},
};
use drupe_host::{Header, Instance};
use drupe_journal::{Delivery as Due, QueuedTurn, Sent, StoreError};
use drupe_surface::lanes::Lanes;
use drupe_wiring::Snapshot;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::kernel::Kernel;

/// How long a channel may take to send one message.
const SEND: Duration = Duration::from_secs(30);

/// How long a kernel that ends waits for channels to take what they were given.
const DRAIN: Duration = Duration::from_secs(5);

/// How long a channel may take with one part of a stream; one that is slower misses parts, never the answer.
const PART: Duration = Duration::from_secs(2);

/// When messages are tried again that a channel could not take.
const AGAIN: Duration = Duration::from_secs(15);

/// The most bytes of a channel's own name for a message, which people are told.
const REMOTE_ID: usize = 256;

/// How often a message is tried before it is given up.
const ATTEMPTS: u32 = 20;

/// Whether messages go out through a channel of that name.
pub fn carries(snapshot: &Snapshot, channel: &str) -> bool {
    find(snapshot, channel).is_some()
}

fn find<'a>(snapshot: &'a Snapshot, channel: &str) -> Option<&'a Arc<Instance>> {
    ExtensionId::new(channel).ok().and_then(|id| snapshot.channels.get(&id))
}

/// Sends what waits to be sent: the messages of a channel in their order, and no channel waits for another.
#[derive(Default)]
pub struct Deliveries {
    due: Notify,
    end: CancellationToken,
    ended: CancellationToken,
}

impl Deliveries {
    /// There is something to send.
    pub fn wake(&self) {
        self.due.notify_one();
    }

    /// Begins to send.
    pub fn start(&self, kernel: &Arc<Kernel>) {
        kernel.keep_up("channels", send_until_the_end);
    }

    /// Sends what waits, then no more. What a channel holds on to is uncertain for the next kernel, as after a crash.
    pub async fn finish(&self) {
        self.end.cancel();
        if tokio::time::timeout(DRAIN, self.ended.cancelled()).await.is_err() {
            tracing::warn!("a channel did not take its messages in time; the next start tells of them");
            self.ended.cancel();
        }
    }
}

async fn send_until_the_end(kernel: Arc<Kernel>) {
    let deliveries = &kernel.deliveries;
    let mut lanes = Lanes::default();
    loop {
        let last = deliveries.end.is_cancelled();
        if let Err(error) = deliver(&kernel, &mut lanes).await {
            tracing::error!(%error, "messages wait to be sent, but the journal does not answer");
        }
        if last && lanes.is_empty() {
            return deliveries.ended.cancel();
        }
        tokio::select! {
            () = deliveries.due.notified() => lanes.try_again(),
            () = tokio::time::sleep(AGAIN) => lanes.try_again(),
            () = deliveries.end.cancelled(), if !last => lanes.try_again(),
            () = lanes.one_ends() => {}
            () = deliveries.ended.cancelled() => return,
        }
    }
}

/// Begins to send what is due to the channels that are free.
async fn deliver(kernel: &Arc<Kernel>, lanes: &mut Lanes) -> Result<(), StoreError> {
    let snapshot = kernel.snapshot();
    let mut by_channel: BTreeMap<String, Vec<Due>> = BTreeMap::new();
    for due in kernel.store.due_deliveries().await? {
        by_channel.entry(due.message.channel.clone()).or_default().push(due);
    }
    for (name, due) in by_channel {
        let channel = find(&snapshot, &name).filter(|_| lanes.is_free(&name));
        let Some(channel) = channel.map(Arc::clone) else { continue };
        let kernel = Arc::clone(kernel);
        lanes.begin(name, async move { send_all(&kernel, &channel, due).await });
    }
    Ok(())
}

/// Sends messages to a channel in their order; whether it took them all.
async fn send_all(kernel: &Kernel, channel: &Instance, due: Vec<Due>) -> bool {
    for delivery in due {
        match send(kernel, channel, delivery).await {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => {
                tracing::error!(%error, "the journal does not record what is sent");
                return false;
            }
        }
    }
    true
}

/// Sends one message; whether the channel may be given the next one now.
async fn send(kernel: &Kernel, channel: &Instance, due: Due) -> Result<bool, StoreError> {
    kernel.store.sending(due.id).await?;
    let message = OutboundMessage {
        delivery: due.key,
        kind: due.kind,
        session: due.session,
        address: due.message.address,
        text: due.message.text,
    };
    let header = Header { timeout: Some(SEND), ..Header::default() };
    let end = match channel.call::<Delivery>(op::CHANNEL_SEND, &message, header).await {
        Ok(done) => Sent::Delivered { remote_id: done.remote_id.map(|id| one_line(&id, REMOTE_ID)) },
        // These say that nothing went out.
        Err(fault)
            if matches!(fault.code, FaultCode::Unavailable | FaultCode::Busy | FaultCode::NotConfigured) =>
        {
            tracing::warn!(channel = due.message.channel, %fault, "a message was not taken");
            match due.attempts < ATTEMPTS {
                true => Sent::Again(fault.to_string()),
                false => Sent::Failed(fault.to_string()),
            }
        }
        Err(fault) => {
            tracing::warn!(channel = due.message.channel, %fault, "nobody knows whether a message arrived");
            Sent::Uncertain(fault.to_string())
        }
    };
    let next = !matches!(end, Sent::Again(_));
    kernel.store.sent(due.id, end).await.map(|()| next)
}

/// Shows an answer in its channel while it is made, until the turn ends or the guard goes.
pub fn stream(kernel: &Arc<Kernel>, snapshot: &Snapshot, queued: &QueuedTurn) -> Option<DropGuard> {
    let channel = Arc::clone(find(snapshot, &queued.inbound.ask.channel)?);
    let (session, address) = (queued.inbound.ask.session.clone(), queued.inbound.ask.address.clone());
    let turn = queued.turn.clone();
    let mut events = kernel.bus.watch(&session);
    let end = kernel.closing.child_token();
    let ended = end.clone();
    kernel.tasks.spawn(async move {
        let send = async |part| {
            let part = ChannelStream { session: session.clone(), address: address.clone(), part };
            let header = Header { timeout: Some(PART), ..Header::default() };
            channel.call::<serde_json::Value>(op::CHANNEL_STREAM, &part, header).await
        };
        // A channel that cannot stream says so at once, and is left alone.
        if send(StreamPart::Begin).await.is_err() {
            return;
        }
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = ended.cancelled() => break,
            };
            let part = match event {
                Watched::Event(event) => part_of(&event, &turn),
                Watched::Skipped => None,
            };
            if let Some(part) = part
                && let Err(fault) = send(part).await
            {
                tracing::debug!(%fault, "a part of a stream was not shown");
            }
        }
        let _ = send(StreamPart::End).await;
    });
    Some(end.drop_guard())
}

fn part_of(event: &drupe_extension_api::Event, turn: &TurnId) -> Option<StreamPart> {
    if event.turn.as_ref() != Some(turn) {
        return None;
    }
    let root = event.agent.as_ref().is_none_or(|a| a.depth == 0);
    match &event.body {
        EventBody::ItemUpdated { item: ItemKind::AgentMessage, delta, .. } if root => {
            Some(StreamPart::Delta { text: delta.clone() })
        }
        EventBody::ItemStarted { item } if item.kind != ItemKind::AgentMessage => {
            item.name.clone().map(|text| StreamPart::Status { text })
        }
        _ => None,
    }
}
