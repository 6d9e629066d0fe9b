//! What a kernel asks of the outbox, whose rows and states are in [`outbox`].

use drupe_extension_api::{EffectId, SessionId, TurnId, wire::OutboundFile};

use crate::{
    Delivery, DeliveryId, FileMessage, Outbound, Sent, Store, StoreError, WayOut, outbox, writer::Survives,
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

    /// Tells a session of something that nobody asked for; true where it also waits to be sent through a channel. `copies` go out
    /// besides.
    pub async fn notice(
        &self,
        session: SessionId,
        text: String,
        copies: Vec<Outbound>,
    ) -> Result<bool, StoreError> {
        let queued =
            self.write(Survives::Power, move |on| outbox::notice(on, &session, &text, &copies)).await?;
        Ok(queued.is_some())
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

    /// Where what is sent in a turn goes; none where nobody wrote there through a channel.
    pub async fn way_out(&self, turn: &TurnId) -> Result<Option<WayOut>, StoreError> {
        let turn = turn.clone();
        self.read_few(move |db| outbox::way_out(db, &turn)).await
    }

    /// The channel of what was queued to be sent under a key; none where nothing was.
    pub async fn channel_of_message(&self, key: String) -> Result<Option<String>, StoreError> {
        self.read_few(move |db| outbox::channel_of(db, &key)).await
    }

    /// Queues a file to be sent under a key that nothing has.
    pub async fn queue_file(&self, key: String, to: WayOut, file: FileMessage) -> Result<(), StoreError> {
        self.write(Survives::Power, move |on| outbox::queue_file(on, &key, &to, &file)).await
    }

    /// The keys of files of which it is not known what became.
    pub async fn files_on_the_way(&self) -> Result<Vec<String>, StoreError> {
        self.read(outbox::files_on_the_way).await
    }

    /// The file that a channel is sending under this key at this moment.
    pub async fn file_being_sent(
        &self,
        key: String,
        channel: String,
    ) -> Result<Option<OutboundFile>, StoreError> {
        self.read_few(move |db| outbox::file_being_sent(db, &key, &channel)).await
    }
}
