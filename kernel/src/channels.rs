//! Messages on their way to people: an answer is a row before it is sent, and is sent at most once.

use std::{sync::Arc, time::Duration};

use drupe_extension_api::{
    EventBody, ExtensionId, ItemKind,
    wire::{ChannelStream, Delivery, OutboundMessage, StreamPart, op},
};
use drupe_journal::{Inbound, StoreError};
use tokio::sync::broadcast::error::RecvError;

use crate::{
    extension::instance::{Header, Instance},
    kernel::Kernel,
    snapshot::Snapshot,
};

/// How long a channel may take to send one message.
const SEND: Duration = Duration::from_secs(30);

/// How long a channel may take with one part of a stream; one that is slower misses parts, never the answer.
const PART: Duration = Duration::from_secs(2);

/// Whether messages go out through a channel of that name.
pub fn carries(snapshot: &Snapshot, channel: &str) -> bool {
    find(snapshot, channel).is_some()
}

fn find<'a>(snapshot: &'a Snapshot, channel: &str) -> Option<&'a Arc<Instance>> {
    ExtensionId::new(channel).ok().and_then(|id| snapshot.channels.get(&id))
}

/// Sends what waits to be sent, in a task of its own.
pub fn deliver_soon(kernel: &Arc<Kernel>) {
    let kernel = Arc::clone(kernel);
    kernel.clone().tasks.spawn(async move {
        let sent = kernel.cancel.run_until_cancelled(deliver(&kernel)).await;
        if let Some(Err(error)) = sent {
            tracing::error!(%error, "messages wait to be sent, but the journal does not answer");
        }
    });
}

async fn deliver(kernel: &Kernel) -> Result<(), StoreError> {
    for delivery in kernel.store.due_deliveries().await? {
        let snapshot = kernel.snapshot();
        let Some(channel) = find(&snapshot, &delivery.message.channel) else { continue };
        // Another task may have taken it in between.
        match kernel.store.sending(delivery.id).await {
            Ok(()) => {}
            Err(StoreError::Delivery { .. }) => continue,
            Err(error) => return Err(error),
        }
        let message = OutboundMessage {
            delivery: delivery.key,
            session: delivery.session,
            address: delivery.message.address,
            text: delivery.message.text,
        };
        let header = Header { timeout: Some(SEND), ..Header::default() };
        match channel.call::<Delivery>(op::CHANNEL_SEND, &message, header).await {
            Ok(done) => kernel.store.sent(delivery.id, done.remote_id).await?,
            Err(fault) => {
                tracing::warn!(channel = delivery.message.channel, %fault, "nobody knows whether a message arrived");
                kernel.store.uncertain(delivery.id, fault.to_string()).await?;
            }
        }
    }
    Ok(())
}

/// Shows an answer in its channel while it is made.
pub fn stream(kernel: &Arc<Kernel>, snapshot: &Snapshot, inbound: &Inbound) {
    let Some(channel) = find(snapshot, &inbound.channel).map(Arc::clone) else { return };
    let (session, address) = (inbound.session.clone(), inbound.address.clone());
    let mut events = kernel.bus.watch(&session);
    let cancel = kernel.cancel.clone();
    let showing = async move {
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
            let part = match events.recv().await {
                Ok(event) => match part_of(&event) {
                    Some(part) => part,
                    None => continue,
                },
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return,
            };
            let last = part == StreamPart::End;
            if let Err(fault) = send(part).await {
                tracing::debug!(%fault, "a part of a stream was not shown");
            }
            if last {
                return;
            }
        }
    };
    kernel.tasks.spawn(async move { cancel.run_until_cancelled(showing).await });
}

fn part_of(event: &drupe_extension_api::Event) -> Option<StreamPart> {
    let root = event.agent.as_ref().is_none_or(|a| a.depth == 0);
    match &event.body {
        EventBody::ItemUpdated { item: ItemKind::AgentMessage, delta, .. } if root => {
            Some(StreamPart::Delta { text: delta.clone() })
        }
        EventBody::ItemStarted { item } if item.kind != ItemKind::AgentMessage => {
            item.name.clone().map(|text| StreamPart::Status { text })
        }
        EventBody::TurnCompleted { .. } => Some(StreamPart::End),
        _ => None,
    }
}
