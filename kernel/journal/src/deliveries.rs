//! What a kernel asks of the outbox, whose rows and states are in [`outbox`].

use drupe_extension_api::{EffectId, SessionId, TurnId, wire::FileSent};

use crate::{
    Delivery, DeliveryId, FileMessage, FileOnTheWay, Outbound, Sent, Store, StoreError, outbox,
    writer::{Survives, Writing},
};

impl Store {
    /// Messages that wait to be sent, the oldest first.
    pub async fn due_deliveries(&self) -> Result<Vec<Delivery>, StoreError> {
        self.read(outbox::due).await
    }

    /// A channel is about to be called; from here on nobody knows whether the message arrived.
    pub async fn sending(&self, delivery: DeliveryId) -> Result<(), StoreError> {
        self.write(Survives::Power, move |on| outbox::sending(on, delivery)).await
    }

    /// What became of the attempt.
    pub async fn sent(&self, delivery: DeliveryId, end: Sent) -> Result<(), StoreError> {
        self.write(Survives::Power, move |on| outbox::ended(on, delivery, &end)).await
    }

    /// Tells a session of something that nobody asked for, once for a key; true where it also waits to be sent through a channel.
    /// `copies` go out besides.
    pub async fn notice(
        &self,
        session: SessionId,
        key: Option<String>,
        text: String,
        copies: Vec<Outbound>,
    ) -> Result<bool, StoreError> {
        let notice = move |on: &mut Writing<'_>| outbox::notice(on, &session, key.as_deref(), &text, &copies);
        Ok(self.write(Survives::Power, notice).await?.is_some())
    }

    /// Tells whoever wrote through a channel of a question about a call, once for each key; true where it waits to be sent. `copies` of
    /// one that is asked in this session go out besides.
    pub async fn tell_question(
        &self,
        effect: EffectId,
        key: String,
        text: String,
        (session, copies): (SessionId, Vec<Outbound>),
    ) -> Result<bool, StoreError> {
        self.write(Survives::Power, move |on| outbox::question(on, &effect, &key, &text, (&session, &copies)))
            .await
    }

    /// Tells whoever was told of a question by that key what became of it; false where nobody was, or was told already.
    pub async fn tell_settled(&self, key: String, text: String) -> Result<bool, StoreError> {
        self.write(Survives::Power, move |on| outbox::settled(on, &key, &text)).await
    }

    /// Through which channel it goes what is sent in a turn; none where nobody wrote there through one.
    pub async fn channel_of(&self, turn: &TurnId) -> Result<Option<String>, StoreError> {
        let turn = turn.clone();
        let way = self.read_few(move |db| outbox::way_out(db, &turn, "")).await?;
        Ok(way.map(|(_, message)| message.channel))
    }

    /// What became of a file that was to be sent under a key, as far as it was known at once; none where nothing did.
    pub async fn file_sent(&self, key: String) -> Result<Option<FileSent>, StoreError> {
        self.read_few(move |db| outbox::file_sent(db, &key)).await
    }

    /// Queues a file to be sent in a turn, under a key that nothing has.
    pub async fn queue_file(&self, key: String, turn: TurnId, file: FileMessage) -> Result<(), StoreError> {
        self.write(Survives::Power, move |on| outbox::queue_file(on, &key, &turn, &file)).await
    }

    /// The files of which it is not known what became.
    pub async fn files_on_the_way(&self) -> Result<Vec<FileOnTheWay>, StoreError> {
        self.read(outbox::files_on_the_way).await
    }
}
