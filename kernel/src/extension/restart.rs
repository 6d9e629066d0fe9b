//! Restarts that somebody asks for. The next kernel must be able to begin, so what it would read is looked at before.

use std::sync::Arc;

use drupe_agent::Run;
use drupe_extension_api::{Fault, FaultCode};
use drupe_gate::beginning::{self, Refusal};
use drupe_journal::RestartVerdict;
use drupe_surface::ending::Why;

use super::Roster;

impl Roster {
    /// Records that somebody wants a restart. It happens when the turn that asked, if one did, has ended. Refused where
    /// the next kernel could not begin with its configuration; one that no person watches counts against the bound on
    /// such restarts.
    pub async fn request_restart(
        self: &Arc<Self>,
        reason: String,
        by: Option<&Run>,
        unattended: bool,
    ) -> Result<(), Fault> {
        if let Some(refusal) = self.look_at_settings().await? {
            let message =
                format!("the configuration has faults, so the running kernel stays:\n{}", refusal.whole);
            return Err(Fault::new(FaultCode::NotConfigured, message).help("correct it, then restart again"));
        }
        let session = by.map(|run| run.scope.session.clone());
        let turn = by.map(|run| run.scope.turn.clone());
        let (store, ending) = (self.store.clone(), Arc::clone(&self.life.ending));
        let work = async move {
            match store.request_restart(reason.clone(), session, turn.clone(), unattended).await? {
                RestartVerdict::Accepted => {
                    ending.request(Why::Restart { reason }, turn.clone());
                    // A turn that has ended meanwhile is not waited for.
                    if let Some(turn) = turn
                        && store.queued(&turn).await?.is_none()
                    {
                        ending.turn_ended(&turn);
                    }
                    Ok(())
                }
                RestartVerdict::TooMany { count, window_ms } => {
                    let minutes = window_ms / 60_000;
                    let message = format!("{count} restarts were requested within {minutes} minutes already");
                    Err(Fault::new(FaultCode::Busy, message)
                        .help("the operator can restart with `drupe restart`"))
                }
            }
        };
        self.life.whole(work).await
    }

    /// A new configuration takes effect by a restart that drains; one with which no kernel could begin changes nothing.
    pub async fn reload(self: &Arc<Self>) {
        if let Err(fault) = self.request_restart("the configuration is read again".into(), None, false).await
        {
            tracing::error!(
                "the new configuration does not take effect, the old one stays: {}",
                fault.message
            );
        }
    }

    /// Looks whether a kernel could begin with what the operator has written; why not, if it could not.
    async fn look_at_settings(self: &Arc<Self>) -> Result<Option<Refusal>, Fault> {
        let roster = Arc::clone(self);
        let looked = tokio::task::spawn_blocking(move || {
            let base = &roster.base;
            beginning::refusal(&base.sources, base.day(), &roster.extensions.parts())
        });
        let refusal = looked.await.map_err(Fault::internal)?;
        self.supervision.set_refused(refusal.as_ref().map(|refusal| refusal.first.clone()));
        Ok(refusal)
    }
}
