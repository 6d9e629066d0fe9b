//! Requests that are sent for an extension, with its bound secrets filled in.

use drupe_config::{BoundSecret, Secret};
use drupe_extension_api::{
    Fault,
    wire::{FormPart, OutboundFile, OutwardRequest, OutwardResponse},
};
use drupe_outward::{BoundValue, FormFile, MOST_PARTS, host_of};

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
        if request.form.len() > MOST_PARTS {
            return Err(Fault::invalid(format!("a form has at most {MOST_PARTS} parts")));
        }
        let mut files = Vec::new();
        for part in &request.form {
            if let FormPart::File { delivery, .. } = part {
                files.push(self.being_sent(kernel, delivery).await?);
            }
        }
        let answer = kernel.roster.wired.outward.send(&request, files, self.values(&bound)).await;
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
    async fn being_sent(&self, kernel: &Kernel, delivery: &str) -> Result<FormFile, Fault> {
        let channel = self.manifest.id.to_string();
        let found = kernel.store.file_being_sent(delivery.to_owned(), channel).await?;
        let OutboundFile { name, bytes, media_type, .. } = found.ok_or_else(|| {
            Fault::denied(format!("no file `{delivery}` is being sent through this channel"))
        })?;
        // A file that is gone: nothing of it was sent, and it does not come again.
        let file = kernel.outbox.files.open(delivery).map_err(|error| {
            Fault::denied(format!("the file that was kept to be sent cannot be read: {error}"))
        })?;
        Ok(FormFile { file, bytes, name, media_type })
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
        let fetched = kernel.roster.wired.outward.fetch(request, self.values(&bound), take).await;
        fetched.map_err(|fault| Fault { message: kernel.base.redactor.owned(fault.message), ..fault })
    }

    /// What the manifest binds to hosts.
    fn bound<'a>(&'a self, kernel: &'a Kernel) -> Result<Vec<(&'a BoundSecret, &'a Secret)>, Fault> {
        if self.manifest.bound_secrets.is_empty() {
            let message = "`http.send` is for extensions whose manifest has `bound_secrets`";
            return Err(Fault::denied(message));
        }
        let bound: Vec<_> = self.manifest.resolve_bound(&kernel.base.config.overlay).collect();
        // Code may ask before it is initialized.
        kernel.base.redactor.learn(bound.iter().map(|(_, value)| value.expose()));
        self.hosts.get_or_init(|| {
            let config = self.manifest.effective_config(&kernel.base.config).unwrap_or_default();
            let at = |key: &String| config.get(key)?.as_str().and_then(host_of);
            let all = |one: &BoundSecret| {
                let configured = one.addresses.iter().filter_map(at);
                (one.name.clone(), one.hosts.iter().cloned().chain(configured).collect())
            };
            self.manifest.bound_secrets.iter().map(all).collect()
        });
        Ok(bound)
    }

    /// What is bound, with the value of what has one, and the hosts.
    fn values<'a>(
        &'a self,
        bound: &'a [(&'a BoundSecret, &'a Secret)],
    ) -> impl Iterator<Item = (Option<BoundValue<'a>>, &'a [String])> {
        let hosts = self.hosts.get();
        self.manifest.bound_secrets.iter().map(move |one| {
            let hosts = hosts.and_then(|hosts| hosts.get(&one.name)).map_or(&[][..], Vec::as_slice);
            let value = bound.iter().find(|(bound, _)| bound.name == one.name);
            // As the redactor knows it.
            (value.map(|(_, value)| BoundValue { name: &one.name, value: value.expose().trim() }), hosts)
        })
    }
}
