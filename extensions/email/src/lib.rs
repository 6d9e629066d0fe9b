//! The channel for people who write mails: what comes into a mailbox is handed in, and answers go out in its threads.
//!
//! Who is answered is decided by the daemon (`senders: known`), to which this hands every mail with the id of its writer. That somebody is who
//! they say is decided by the operator's own mail server (`results.rs`), and by nothing that a mail says of itself.

mod address;
mod body;
mod digest;
mod ear;
mod files;
mod headers;
mod inbox;
mod kept;
mod mail;
mod network;
mod out;
mod post;
mod results;
mod settings;
mod spool;
mod thread;

use std::sync::Arc;

use drupe_extension_api::prelude::*;

use self::{
    ear::MailEar, kept::MailKeeper, network::Trusted, out::MailOut, post::Postman, settings::MailAccount,
};

struct Email {
    ear: MailEar,
}

impl Extension for Email {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let account = Arc::new(MailAccount::new(host.config()?, host.secret("EMAIL_PASSWORD")?)?);
        let keeper = MailKeeper::open(host.clone(), kept::FILE)?;
        let for_trust = account.clone();
        let trusted = host.blocking(move || Trusted::new(&for_trust)).await?;
        // What is there a process left that ended with it.
        let left = host.data_folder().join(ear::INCOMING);
        host.blocking(move || Ok(spool::clear(&left)?)).await?;
        let postman = Postman { account: account.clone(), trusted };
        let out = MailOut { host: host.clone(), keeper: keeper.clone(), postman };
        Ok(Self { ear: MailEar { host, account, keeper, out, left: Arc::default() } })
    }
}

impl Channel for Email {
    const CARRIES_FILES: bool = true;
    const READS_FILES: bool = true;

    async fn send(&self, message: OutboundMessage) -> Result<Delivery, Fault> {
        self.ear.out.send(message).await
    }
}

impl Service for Email {
    async fn run(&self, shutdown: Shutdown) -> Result<(), Fault> {
        self.ear.hear(shutdown).await
    }
}

export!(Email: Channel, Service);

#[cfg(test)]
mod tests;
