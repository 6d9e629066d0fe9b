//! Vectors of texts, on behalf of a call of the extension or of a turn that it is asked for.

use std::time::Duration;

use drupe_agent::{EmbedError, Run, embed};
use drupe_config::Right;
use drupe_extension_api::{
    Fault, FaultCode,
    wire::{EmbedTexts, EmbeddedTexts, LONGEST_EMBEDDED, MOST_EMBEDDED, host},
};

use super::Owner;
use crate::kernel::Kernel;

/// The longest time for an answer.
const LONGEST: Duration = Duration::from_secs(30);

impl Owner {
    pub(super) async fn embed(
        &self,
        kernel: &Kernel,
        run: &Run,
        asked: EmbedTexts,
    ) -> Result<EmbeddedTexts, Fault> {
        self.right(Right::Embed, host::EMBED)?;
        let EmbedTexts { texts, timeout_ms } = asked;
        let bytes: usize = texts.iter().map(String::len).sum();
        if !(1..=MOST_EMBEDDED).contains(&texts.len()) || bytes > LONGEST_EMBEDDED {
            return Err(Fault::invalid(format!(
                "a request for vectors has 1 to {MOST_EMBEDDED} texts of at most {LONGEST_EMBEDDED} bytes together, and this one \
                 {} of {bytes}",
                texts.len()
            )));
        }
        if texts.iter().any(|text| text.trim().is_empty()) {
            return Err(Fault::invalid("an empty text has no vector"));
        }
        let Some(model) = kernel.roster.wired.models.embedding() else {
            let message = "no model makes vectors of texts";
            return Err(Fault::new(FaultCode::NotConfigured, message).help("set `models.embedding`"));
        };
        let within = Duration::from_millis(timeout_ms).min(LONGEST);
        let vectors = embed(run, &**model, texts, within).await.map_err(fault)?;
        Ok(EmbeddedTexts { vectors })
    }
}

fn fault(error: EmbedError) -> Fault {
    let code = match &error {
        EmbedError::Exceeded(_) | EmbedError::Unpriced(_) | EmbedError::Quota(_) => FaultCode::Budget,
        EmbedError::Model(fault) if fault.retriable => FaultCode::Unavailable,
        EmbedError::Model(_) => FaultCode::Other,
        EmbedError::Cancelled => FaultCode::Cancelled,
        EmbedError::Timeout => FaultCode::Timeout,
    };
    Fault::new(code, error.to_string())
}
