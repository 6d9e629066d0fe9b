//! Requests that are sent for an extension, with its bound secrets filled in.

use std::collections::HashMap;

use drupe_config::BoundSecret;
use drupe_extension_api::{
    Fault,
    wire::{OutwardRequest, OutwardResponse},
};
use drupe_journal::FileOnTheWay;
use drupe_outward::{BoundHosts, BoundValue, FormFile, host_of};
use futures_util::FutureExt as _;

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
        let bound = self.bound(kernel)?;
        let _place = self.requests.acquire().await.map_err(Fault::internal)?;
        let file = |delivery| self.being_sent(kernel, delivery).boxed();
        let answer = kernel.roster.wired.outward.send(&request, file, bound.into_iter()).await;
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

    /// The file of a message that this channel is sending.
    async fn being_sent(&self, kernel: &Kernel, delivery: String) -> Result<FormFile, Fault> {
        let mut all = kernel.store.files_on_the_way().await?.into_iter();
        let own = |one: &str| one == self.manifest.id.as_str();
        let found = all.find(|one| one.is_being_sent && one.key == delivery && own(&one.channel));
        let FileOnTheWay { file: about, .. } = found.ok_or_else(|| {
            Fault::denied(format!("no file `{delivery}` is being sent through this channel"))
        })?;
        // A file that is gone: nothing of it was sent, and it does not come again.
        let file = kernel.outbox.files.open(&delivery).map_err(|error| {
            Fault::denied(format!("the file that was kept to be sent cannot be read: {error}"))
        })?;
        Ok(FormFile { file, about })
    }

    /// Gets a file; gives the status with which it came.
    pub(super) async fn fetch(
        &self,
        kernel: &Kernel,
        request: &OutwardRequest,
        take: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<u16, Fault> {
        let bound = self.bound(kernel)?;
        let _place = self.requests.acquire().await.map_err(Fault::internal)?;
        let fetched = kernel.roster.wired.outward.fetch(request, bound.into_iter(), take).await;
        fetched.map_err(|fault| Fault { message: kernel.base.redactor.owned(fault.message), ..fault })
    }

    /// What the manifest binds to hosts, each with the value of what has one, as the redactor knows it.
    fn bound<'a>(&'a self, kernel: &'a Kernel) -> Result<Vec<BoundHosts<'a>>, Fault> {
        let all = &self.manifest.bound_secrets;
        if all.is_empty() {
            let message = "`http.send` is for extensions whose manifest has `bound_secrets`";
            return Err(Fault::denied(message));
        }
        let hosts = self.hosts.get_or_init(|| {
            let config = self.manifest.effective_config(&kernel.base.config).unwrap_or_default();
            let at = |key: &String| config.get(key)?.as_str().and_then(host_of);
            let of = |one: &BoundSecret| {
                one.hosts.iter().cloned().chain(one.addresses.iter().filter_map(at)).collect()
            };
            all.iter().map(of).collect()
        });
        let resolved = self.manifest.resolve_bound(&kernel.base.config.overlay);
        let values: HashMap<&str, &str> =
            resolved.map(|(bound, value)| (bound.name.as_str(), value.expose())).collect();
        // Code may ask before it is initialized.
        kernel.base.redactor.learn(values.values().copied());
        let value = |one: &'a BoundSecret| {
            let value = values.get(one.name.as_str())?.trim();
            Some(BoundValue { name: &one.name, value })
        };
        Ok(all.iter().zip(hosts).map(|(one, hosts)| (value(one), hosts.as_slice())).collect())
    }
}
