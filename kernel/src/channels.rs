//! Messages on their way to people: an answer is a row before it is sent, and is sent at most once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use drupe_bus::Watched;
use drupe_extension_api::{
    EventBody, ExtensionId, FaultCode, ItemKind, TurnId,
    wire::{ChannelStream, Delivery, OutboundMessage, StreamPart, op},
};
use drupe_host::{Header, Instance};
use drupe_journal::{Delivery as Due, QueuedTurn, StoreError};
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use drupe_wiring::Snapshot;

use crate::kernel::Kernel;

/// How long a channel may take to send one message.
const SEND: Duration = Duration::from_secs(30);

/// How long a channel may take with one part of a stream; one that is slower misses parts, never the answer.
const PART: Duration = Duration::from_secs(2);

/// When messages are tried again that a channel could not take.
const AGAIN: Duration = Duration::from_secs(15);

/// How often a message is tried before it is given up.
const ATTEMPTS: u32 = 20;

/// Whether messages go out through a channel of that name.
pub fn carries(snapshot: &Snapshot, channel: &str) -> bool {
    find(snapshot, channel).is_some()
}

fn find<'a>(snapshot: &'a Snapshot, channel: &str) -> Option<&'a Arc<Instance>> {
    ExtensionId::new(channel).ok().and_then(|id| snapshot.channels.get(&id))
}

/// Sends what waits to be sent: one task, so that the messages of a channel go out in their order.
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
        let kernel = Arc::clone(kernel);
        kernel.clone().tasks.spawn(async move {
            let deliveries = &kernel.deliveries;
            let _ended = deliveries.ended.clone().drop_guard();
            loop {
                let last = deliveries.end.is_cancelled();
                if let Err(error) = deliver(&kernel).await {
                    tracing::error!(%error, "messages wait to be sent, but the journal does not answer");
                }
                if last {
                    return;
                }
                tokio::select! {
                    () = deliveries.due.notified() => {}
                    () = tokio::time::sleep(AGAIN) => {}
                    () = deliveries.end.cancelled() => {}
                }
            }
        });
    }

    /// Sends what waits, then no more.
    pub async fn finish(&self) {
        self.end.cancel();
        if tokio::time::timeout(SEND, self.ended.cancelled()).await.is_err() {
            tracing::warn!("a channel did not take its messages in time; they wait for the next start");
        }
    }
}

/// One round: the channels at the same time, the messages of each in order.
async fn deliver(kernel: &Kernel) -> Result<(), StoreError> {
    let snapshot = kernel.snapshot();
    let mut by_channel: BTreeMap<String, Vec<Due>> = BTreeMap::new();
    for due in kernel.store.due_deliveries().await? {
        by_channel.entry(due.message.channel.clone()).or_default().push(due);
    }
    let rounds = by_channel.into_iter().filter_map(|(name, due)| {
        let channel = Arc::clone(find(&snapshot, &name)?);
        Some(async move {
            for delivery in due {
                if !send(kernel, &channel, delivery).await? {
                    break;
                }
            }
            Ok::<(), StoreError>(())
        })
    });
    join_all(rounds).await.into_iter().collect()
}

/// Sends one message; whether the channel may be given the next one now.
async fn send(kernel: &Kernel, channel: &Instance, due: Due) -> Result<bool, StoreError> {
    kernel.store.sending(due.id).await?;
    let message = OutboundMessage {
        delivery: due.key,
        session: due.session,
        address: due.message.address,
        text: due.message.text,
    };
    let header = Header { timeout: Some(SEND), ..Header::default() };
    match channel.call::<Delivery>(op::CHANNEL_SEND, &message, header).await {
        Ok(done) => kernel.store.sent(due.id, done.remote_id).await.map(|()| true),
        // These say that nothing went out.
        Err(fault)
            if due.attempts < ATTEMPTS
                && matches!(
                    fault.code,
                    FaultCode::Unavailable | FaultCode::Busy | FaultCode::NotConfigured
                ) =>
        {
            tracing::warn!(channel = due.message.channel, %fault, "a message was not taken and is tried again");
            kernel.store.not_sent(due.id, fault.to_string()).await.map(|()| false)
        }
        Err(fault) => {
            tracing::warn!(channel = due.message.channel, %fault, "nobody knows whether a message arrived");
            kernel.store.uncertain(due.id, fault.to_string()).await.map(|()| true)
        }
    }
}

/// Shows an answer in its channel while it is made, until the turn ends or the guard goes.
pub fn stream(kernel: &Arc<Kernel>, snapshot: &Snapshot, queued: &QueuedTurn) -> Option<DropGuard> {
    let channel = Arc::clone(find(snapshot, &queued.inbound.channel)?);
    let (session, address) = (queued.inbound.session.clone(), queued.inbound.address.clone());
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
