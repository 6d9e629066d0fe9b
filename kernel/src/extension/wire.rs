//! What is wired, and its wiring anew: after each change of what is there, with each day, and when an extension says that
//! its tools have changed.

use std::{sync::Arc, time::Instant};

use drupe_extension_api::{ExtensionId, Fault, FaultCode};
use drupe_gate::pace::Pace;
use drupe_handles::Handles;
use drupe_host::Listeners;
use drupe_models::Models;
use drupe_outward::OutwardClient;
use drupe_prompts::{Day, apart, orchestrator, skills::Skills};
use drupe_redact::Redactor;
use drupe_wiring::{self as wiring, Context, Lasting, Snapshot, WireFault};
use tokio::sync::{Mutex, watch};

use super::{
    Key, Roster, follow,
    initialize::described,
    lifecycle,
    rollback::{roll_back, take_out},
    state::{Event, Out},
};

/// What is wired now, and what calls through it go by.
pub struct Wired {
    snapshot: watch::Sender<Arc<Snapshot>>,
    pub models: Models,
    pub outward: OutwardClient,
    pub lasting: Arc<Lasting>,
    /// What extensions pull from.
    pub handles: Handles,
    /// What they listen on.
    pub listeners: Listeners,
    /// How often each may have everything wired again.
    announcements: Pace,
    /// One wiring at a time.
    alone: Mutex<()>,
}

impl Wired {
    /// With what a kernel begins with.
    pub fn new((models, lasting, snapshot): (Models, Arc<Lasting>, Snapshot), redactor: &Redactor) -> Self {
        Self {
            snapshot: watch::Sender::new(Arc::new(snapshot)),
            models: models.redacting(redactor),
            outward: OutwardClient::default(),
            lasting,
            handles: Handles::default(),
            listeners: Listeners::default(),
            announcements: Pace::new("announcements of tools", 30),
            alone: Mutex::default(),
        }
    }

    /// What is wired now. Whoever begins something keeps it to the end.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.borrow())
    }

    /// Tells whenever something else is wired.
    pub fn changes(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshot.subscribe()
    }

    fn set(&self, snapshot: Snapshot) {
        // The old one may hold the last reference to an instance, whose end is the extension's own code.
        drop(self.snapshot.send_replace(Arc::new(snapshot)));
    }
}

impl Roster {
    /// Lets those begin to work that wait for it. The caller holds `changing`.
    pub async fn settle(self: &Arc<Self>) -> Result<(), Fault> {
        lifecycle::bring_up(self).await;
        let wired = self.wire_all().await;
        match lifecycle::start_all(self).await {
            true => self.wire_all().await,
            false => wired,
        }
    }

    /// Ends what was marked as out in a kernel that serves: first nobody is offered any of it any more, by one wiring for
    /// all of it, then it ends. The caller holds `changing`.
    pub async fn withdraw(self: &Arc<Self>, out: Vec<Key>) {
        if out.is_empty() {
            return;
        }
        if let Err(fault) = self.wire_all().await {
            tracing::error!(%fault, "the extensions that are left cannot be wired; the old wiring stays");
        }
        for key in out.into_iter().rev() {
            roll_back(self, &key).await;
        }
    }

    /// Wires what is loaded. An extension that cannot be wired is taken out, and the rest wired without it.
    async fn wire_all(self: &Arc<Self>) -> Result<(), Fault> {
        while let Err(fault) = self.try_wiring().await {
            let Some(id) = fault.extension else {
                return Err(Fault::new(FaultCode::NotConfigured, fault.reason));
            };
            take_out(self, id.as_str(), Event::Rejected(Out::Unwired(fault.reason))).await;
        }
        Ok(())
    }

    /// Wires what is loaded, all of it or nothing.
    pub async fn try_wiring(&self) -> Result<(), WireFault> {
        let _alone = self.wired.alone.lock().await;
        self.wire_loaded().await
    }

    /// Wires again where other skills are there than those that are wired.
    pub async fn skills_anew(&self) -> Result<(), WireFault> {
        if Skills::of(&self.base.config) == self.snapshot().skills { Ok(()) } else { self.try_wiring().await }
    }

    /// What is wired, with the present day in its prompts.
    pub async fn today(&self) -> Arc<Snapshot> {
        if self.snapshot().day == self.base.day() {
            return self.snapshot();
        }
        let alone = self.wired.alone.lock().await;
        // Of many turns that find a new day the first makes its prompts.
        if self.snapshot().day != self.base.day()
            && let Err(fault) = self.wire_loaded().await
        {
            tracing::warn!(reason = fault.reason, "the prompts are those of an earlier day");
        }
        drop(alone);
        self.snapshot()
    }

    /// Wires again after an extension announced other tools. If that cannot be wired, the announcement is refused.
    pub async fn rewire(&self, extension: &ExtensionId) -> Result<(), Fault> {
        self.wired.announcements.take(extension, Instant::now())?;
        let (key, part) = self.extensions.announcer(extension)?;
        // Its own code answers this: nobody else waits meanwhile.
        let description = described(&part).await?;
        let _alone = self.wired.alone.lock().await;
        let day = self.dated().await;
        let Some(old) = self.extensions.set_description(&key, &part, description) else {
            return Err(Fault::not_found(format!("this instance of `{extension}` does not work any more")));
        };
        let wired = self.wire(day).map(|snapshot| self.wired.set(snapshot));
        wired.map_err(|fault| {
            self.extensions.set_description(&key, &part, old);
            Fault::invalid(format!("the tools that `{extension}` announces cannot be used: {}", fault.reason))
        })
    }

    /// The caller holds `alone`.
    async fn wire_loaded(&self) -> Result<(), WireFault> {
        let day = self.dated().await;
        self.wired.set(self.wire(day)?);
        if let Err(error) = follow::reconcile(self).await {
            tracing::error!(%error, "the topics that agents follow are not known to the journal");
        }
        Ok(())
    }

    /// What is there now, wired together.
    fn wire(&self, day: Day) -> Result<Snapshot, WireFault> {
        let prompt = orchestrator(&self.base.config)
            .map_err(|no_text| WireFault { extension: None, reason: no_text.into() })?;
        let Wired { models, lasting, .. } = &*self.wired;
        let context = Context {
            config: &self.base.config,
            models,
            lasting,
            orchestrator: &prompt,
            workspace: self.base.home.workspace(),
            day,
            away: &self.extensions.away(),
        };
        wiring::wire(&self.extensions.parts(), &context)
    }

    /// The day, once the prompts in which it stands are made for it.
    async fn dated(&self) -> Day {
        let day = self.base.day();
        let prompts = self.extensions.parts().into_iter().filter_map(|part| part.prompt?.dated);
        apart::renew(&self.base.start.exe, prompts, day).await;
        day
    }
}
