//! Hands a draft over. What becomes of it is the kernel's decision, and the operator's where it brings code.

use std::path::Path;

use drupe_extension_api::{
    control::{ExtensionState, ExtensionStatus, method},
    prelude::*,
};
use serde_json::json;

use crate::{Builder, Named};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// Why, for the operator.
    reason: String,
}

impl Builder {
    pub async fn activate(&self, input: Named, call: Call) -> Result<String, Fault> {
        let id = ExtensionId::new(&input.id)?;
        if self.staging.is_native(&id)? && self.staging.library(&id)?.is_none() {
            return Err(Fault::invalid(format!("`{id}` is not compiled since its last change"))
                .help("`builder_compile` first"));
        }
        let _handing_over = self.floor.handing_over()?;
        let _held = self.trials.hold(&id)?;
        let (staging, copied) = (self.staging.clone(), id.clone());
        let copy = self.host.blocking(move || staging.copy(&copied)).await?;
        let added = self.add_tried(&id, &copy).await;
        self.staging.drop_copy(&id)?;
        let (status, not_run) = added?;
        let mut told = match status {
            Some(status) => self.tell(&id, &status, &call).await?,
            None => format!("`{id}` is an extension now; it takes effect after a restart"),
        };
        if let Some(why) = not_run {
            let untried = format!("the cases of `{id}` were not run ({why}); `drupe eval {id}` runs them");
            self.notify(&untried, &call).await;
            told = format!("{told}. But {untried}. Tell the user so");
        }
        self.staging.forget(&id)?;
        self.trials.forget(&id);
        Ok(told)
    }

    /// Adds what was copied, an agent only with its cases: tried as it is handed over, or with the reason why they could not be.
    async fn add_tried(
        &self,
        id: &ExtensionId,
        copy: &Path,
    ) -> Result<(Option<ExtensionStatus>, Option<String>), Fault> {
        let not_run = if self.report(copy).await?.agent { self.not_run(id)? } else { None };
        Ok((self.add(copy).await?, not_run))
    }

    pub async fn restart(&self, input: Reason, call: Call) -> Result<String, Fault> {
        call.request_restart(input.reason).await?;
        Ok("drupe restarts when this turn has ended".into())
    }

    /// A kernel of an earlier release says nothing of the state.
    async fn add(&self, folder: &Path) -> Result<Option<ExtensionStatus>, Fault> {
        self.host.control(method::EXTENSIONS_ADD, json!({ "path": folder })).await
    }

    /// What the model, and where it has to act the user, learns of it. The draft of one that failed is kept for mending.
    async fn tell(&self, id: &ExtensionId, status: &ExtensionStatus, call: &Call) -> Result<String, Fault> {
        let why = status.reason.as_deref().unwrap_or("no reason was given");
        match status.state {
            ExtensionState::Active => Ok(format!("`{id}` is an extension now, and active")),
            ExtensionState::AwaitingApproval => {
                let awaited = format!(
                    "the extension `{id}` waits for the operator's agreement ({why}); to agree: drupe approvals allow {id}"
                );
                self.notify(&awaited, call).await;
                Ok(format!("{awaited}. It takes effect then. Tell the user so; do not restart for it"))
            }
            ExtensionState::Failed | ExtensionState::Quarantined | ExtensionState::Skipped => {
                Err(Fault::invalid(format!("`{id}` cannot be activated: {why}"))
                    .help("mend the draft, which is still there, and try again"))
            }
            _ => Ok(format!("`{id}` is an extension now; it takes effect after a restart")),
        }
    }
    async fn notify(&self, text: &str, call: &Call) {
        if let Err(fault) = self.host.notify_user(text, Some(call.session.clone())).await {
            self.host.warn(format!("the user could not be told that {text}: {fault}"));
        }
    }
}
