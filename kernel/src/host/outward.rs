//! Requests that are sent for an extension, with its bound secrets filled in.

use drupe_config::BoundSecret;
use drupe_extension_api::{
    Fault,
    wire::{OutwardRequest, OutwardResponse},
};
use drupe_outward::{BoundValue, host_of};

use super::Owner;
use crate::kernel::Kernel;

/// Requests of one instance that are under way at the same time; further ones wait.
pub const AT_ONCE: usize = 8;

impl Owner {
    pub(super) async fn send(
        &self,
        kernel: &Kernel,
        request: OutwardRequest,
    ) -> Result<OutwardResponse, Fault> {
        if self.manifest.bound_secrets.is_empty() {
            let message = "`http.send` is for extensions whose manifest has `bound_secrets`";
            return Err(Fault::denied(message));
        }
        let bound: Vec<_> = self.manifest.resolve_bound(&kernel.base.config.overlay).collect();
        // Code may ask before it is initialized.
        kernel.base.redactor.learn(bound.iter().map(|(_, value)| value.expose()));
        let hosts = self.hosts.get_or_init(|| {
            let config = self.manifest.effective_config(&kernel.base.config).unwrap_or_default();
            let at = |key: &String| config.get(key)?.as_str().and_then(host_of);
            let all = |one: &BoundSecret| {
                let configured = one.addresses.iter().filter_map(at);
                (one.name.clone(), one.hosts.iter().cloned().chain(configured).collect())
            };
            self.manifest.bound_secrets.iter().map(all).collect()
        });
        let values = self.manifest.bound_secrets.iter().map(|one| {
            let hosts = hosts.get(&one.name).map_or(&[][..], Vec::as_slice);
            let value = bound.iter().find(|(bound, _)| bound.name == one.name);
            // As the redactor knows it.
            (value.map(|(_, value)| BoundValue { name: &one.name, value: value.expose().trim() }), hosts)
        });
        let _place = self.requests.acquire().await.map_err(Fault::internal)?;
        let answer = kernel.roster.wired.outward.send(&request, values).await;
        // The value may come back, in an answer or in an error of whoever stands between.
        let redactor = &kernel.base.redactor;
        match answer {
            Ok(OutwardResponse { status, headers, body }) => {
                let headers = headers.into_iter().map(|(name, value)| (name, redactor.owned(value)));
                Ok(OutwardResponse { status, headers: headers.collect(), body: redactor.owned(body) })
            }
            Err(fault) => Err(Fault { message: redactor.owned(fault.message), ..fault }),
        }
    }
}
