//! What lasts: topics, streams of the control API, and programs, all behind handles.

use std::{path::PathBuf, sync::Arc};

use drupe_extension_abi::CallHeader;
use drupe_extension_api::{
    Fault, FaultCode,
    wire::{
        ControlCall, HandleNext, OpenedProcess, ProcessOutput, ProcessSpec, RunProcess, Subscribe, read_put,
    },
};
use drupe_handles::{Given, Item, Source, Until};
use drupe_programs::{Opened, Surroundings};
use drupe_prompts::skills::Skill;
use drupe_surface::principal::Principal;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use super::{Owner, write};
use crate::{
    control::{streams, tokens},
    extension::load,
    kernel::Kernel,
    topics,
};

/// [`HandleItems`](drupe_extension_api::wire::HandleItems), of items that others may share.
#[derive(Serialize)]
struct Answer {
    items: Vec<Item>,
    ended: bool,
}

impl Owner {
    pub(super) async fn subscribe(&self, kernel: &Kernel, ask: Subscribe) -> Result<u64, Fault> {
        let Subscribe { topic, durable } = ask;
        topics::check_topic(&topic)?;
        kernel.roster.wired.handles.check_room(&self.holder, 1)?;
        let source: Box<dyn Source> = match durable {
            true => Box::new(kernel.roster.topics.pull(&self.manifest.id, &topic).await?),
            false => Box::new(kernel.roster.bus.subscribe(&topic)),
        };
        kernel.roster.wired.handles.open(&self.holder, source)
    }

    /// Items as text that is copied once, bytes as they are.
    pub(super) async fn next(&self, kernel: &Kernel, ask: HandleNext) -> Result<Vec<u8>, Fault> {
        match kernel.roster.wired.handles.next(&self.holder, ask).await? {
            Given::Bytes(bytes) => Ok(bytes),
            Given::Items(items) => {
                let ended = items.is_empty();
                write(Answer { items, ended })
            }
        }
    }

    pub(super) async fn put(&self, kernel: &Kernel, payload: &[u8]) -> Result<(), Fault> {
        let named = read_put(payload);
        let (handle, content) = named.ok_or_else(|| {
            Fault::invalid("the payload of `handle.put` begins with the eight bytes of a handle's number")
        })?;
        kernel.roster.wired.handles.put(&self.holder, handle, content.to_owned()).await
    }

    /// Done when this returns: whoever closes a handle does not wait.
    pub(super) fn close(&self, handle: u64) {
        if let Some(kernel) = self.kernel.upgrade() {
            kernel.roster.wired.handles.close(&self.holder, handle);
        }
    }

    /// What is opened for the bearer of a token ends when that is revoked.
    pub(super) fn open_control(
        &self,
        kernel: &Kernel,
        own: Principal,
        call: ControlCall,
    ) -> Result<u64, Fault> {
        let ControlCall { method, params, bearer } = call;
        let (by, grant) = tokens::through(kernel, own, bearer.as_deref())?;
        let source = streams::open(kernel, &by, &method, &params)?;
        let source = match grant {
            Some(grant) => Box::new(Until::new(source, grant.revoked.clone(), "the token was revoked")),
            None => source,
        };
        kernel.roster.wired.handles.open(&self.holder, source)
    }

    pub(super) async fn run_process(
        &self,
        kernel: &Kernel,
        header: &CallHeader,
        ask: RunProcess,
    ) -> Result<ProcessOutput, Fault> {
        let place = self.place()?;
        let skills = self.skills(kernel, header, &ask.spec).await?;
        self.surrounded(kernel, &skills, async |at| drupe_programs::run(&at, ask, place).await).await
    }

    pub(super) async fn open_process(
        &self,
        kernel: &Kernel,
        header: &CallHeader,
        spec: ProcessSpec,
    ) -> Result<OpenedProcess, Fault> {
        let (handles, holder) = (&kernel.roster.wired.handles, &self.holder);
        handles.check_room(holder, 4)?;
        let place = self.place()?;
        let skills = self.skills(kernel, header, &spec).await?;
        let opened =
            self.surrounded(kernel, &skills, async |at| drupe_programs::open(&at, &spec, place).await).await;
        let Opened { exit, stdin, stdout, stderr } = opened?;
        // The program ends with the first of these, where there is no more room for the others.
        let exit = handles.open(holder, exit)?;
        let streams = || {
            let (stdout, stderr) = (handles.open(holder, stdout)?, handles.open(holder, stderr)?);
            Ok(OpenedProcess { exit, stdin: handles.open_sink(holder, stdin)?, stdout, stderr })
        };
        streams().inspect_err(|_| handles.close(holder, exit))
    }

    /// A place for one more program.
    fn place(&self) -> Result<OwnedSemaphorePermit, Fault> {
        Arc::clone(&self.programs).try_acquire_owned().map_err(|_| {
            let (id, most) = (&self.manifest.id, drupe_programs::MOST);
            let message = format!("extension `{id}` has {most} programs running, which is the most");
            Fault::new(FaultCode::Busy, message).help("close some of them")
        })
    }

    /// The folders of skills that a program may have which is started within this call. Of those of the calling agent it gets
    /// what somebody agreed to, or is not started.
    async fn skills(
        &self,
        kernel: &Kernel,
        header: &CallHeader,
        spec: &ProcessSpec,
    ) -> Result<Vec<PathBuf>, Fault> {
        if !spec.skills {
            return Ok(Vec::new());
        }
        let mut skills: Vec<_> = kernel.roster.snapshot().skills.all.values().map(Arc::clone).collect();
        if !header.parent_token.is_empty() {
            let agent = &self.run(kernel, header)?.agent;
            let parts = kernel.roster.extensions.parts().into_iter();
            let own =
                parts.filter(|part| part.id().as_str() == agent.as_str()).filter_map(|part| part.prompt);
            skills.extend(own.flat_map(|prompt| prompt.skills.all.into_values()));
        }
        let folders = move || {
            let folder = |skill: Arc<Skill>| skill.check_unchanged().map(|()| skill.folder.clone());
            skills.into_iter().map(folder).collect::<Result<_, _>>()
        };
        let folders = tokio::task::spawn_blocking(folders).await.map_err(Fault::internal)?;
        folders.map_err(|changed| Fault::denied(changed.to_string()))
    }

    async fn surrounded<T>(
        &self,
        kernel: &Kernel,
        skills: &[PathBuf],
        start: impl AsyncFnOnce(Surroundings<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let (id, home) = (&self.manifest.id, &kernel.base.home);
        start(Surroundings {
            exe: &drupe_host::own_program(&kernel.base.start.exe),
            home: home.root(),
            folder: &self.manifest.folder,
            data: &home.data(id),
            sdk: &home.sdk(),
            folders: &self.manifest.program_folders,
            skills,
            network: load::has_network(&kernel.roster, &self.manifest),
            environment: &kernel.base.sources.environment,
            strict: !kernel.base.config.sandbox.allow_unconfined,
        })
        .await
    }
}
