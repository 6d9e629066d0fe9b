//! From a folder to code that runs: where it runs, what it may do there, and whether it is what was agreed to.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use drupe_config::{Isolation, Manifest, Right};
use drupe_extension_api::wire::Description;
use drupe_folders::discovery::Origin;
use drupe_host::{Bounds, Code, HostProcess, OpenError, Place, own_program, probe};
use drupe_wiring::Part;
use serde_json::Value;

use super::{Key, Roster, recovery, state::Out};

pub const LOAD: Duration = Duration::from_secs(10);

/// Opens its code, or prepares its agent.
pub async fn load(roster: &Arc<Roster>, key: &Key, manifest: &Arc<Manifest>) -> Result<Part, Out> {
    let failed = |why: String| Out::Failed(why);
    let Some(entrypoint) = &manifest.entrypoint else {
        return Ok(Part {
            manifest: Arc::clone(manifest),
            description: Description::default(),
            instance: None,
            prompt: None,
        });
    };
    roster.extensions.with(key, |r| r.worked = false);
    let known = roster.extensions.with(key, |r| Some((r.found.clone(), r.isolation?, r.content.clone()?)));
    let Some((found, isolation, content)) = known.flatten() else {
        return Err(failed("it is gone".into()));
    };
    let file = roster.disk.layout.library(&found, entrypoint).map_err(|error| failed(error.to_string()))?;
    let copy = found.origin != Origin::Shipped || isolation == Isolation::Process;
    // What is to run in this process anyway gets no more by its constructors.
    let strict = isolation == Isolation::Process && !roster.base.config.sandbox.allow_unconfined;
    let caches = roster.base.home.probes(&roster.base.start.exe, strict);
    let checked = probe::checked(&caches, &file, copy).await.map_err(failed)?;
    // Whoever looked at it, and agreed to it, saw this and nothing that came later.
    if !content.files.iter().any(|seen| seen.hash == checked.hash) {
        return Err(failed(
            "its library was replaced while it was loaded; `drupe ext release` tries again".into(),
        ));
    }
    let hash = content.hash.clone();
    let place = place(roster, manifest, isolation).map_err(failed)?;
    let listening = sockets(roster, manifest)?;
    let redactor = roster.base.redactor.clone();
    let code = Code { id: manifest.id.clone(), file: checked.file, hash: hash.clone(), listening, redactor };
    let table = (roster.table)(Arc::clone(manifest), roster.wired.handles.holder(manifest.id.clone()));
    let opened = drupe_host::open(code, place, table).await;
    if let Err(OpenError::Ended { ended, .. }) = &opened {
        recovery::tell_crash(roster, &key.0, &hash, ended, true);
    }
    let (instance, description) = opened.map_err(|error| failed(error.to_string()))?;
    let instance = Arc::new(instance);
    recovery::watch_process(roster, key.clone(), hash, &instance);
    Ok(Part { manifest: Arc::clone(manifest), description, instance: Some(instance), prompt: None })
}

/// What its manifest asks for, else what its origin is trusted with; one that may have ended a kernel runs apart.
pub fn isolation(roster: &Roster, origin: Origin, manifest: &Manifest) -> Isolation {
    if roster.supervision.verdicts().suspects.iter().any(|suspect| suspect == manifest.id.as_str()) {
        return Isolation::Process;
    }
    let usual = if origin == Origin::Shipped { Isolation::Inproc } else { Isolation::Process };
    manifest.isolation.unwrap_or(usual)
}

/// Whether what it starts, its own process first, may use TCP.
pub fn has_network(roster: &Roster, manifest: &Manifest) -> bool {
    manifest.rights.contains(&Right::Network)
        || roster.base.config.sandbox.hosts.network.contains(&manifest.id)
}

/// The sockets that its code is handed, at the addresses of its configuration.
fn sockets(roster: &Roster, manifest: &Manifest) -> Result<Vec<Arc<TcpListener>>, Out> {
    if manifest.listen.is_empty() {
        return Ok(Vec::new());
    }
    let config = manifest.effective_config(&roster.base.config);
    let config = config.map_err(|faults| Out::Failed(faults.render(false)))?;
    let open = |key: &String| {
        let given = config.get(key).and_then(Value::as_str).unwrap_or_default();
        let failed = |why: String| Out::Failed(format!("`{key}` of its configuration is `{given}`: {why}"));
        let address: SocketAddr = given
            .parse()
            .map_err(|_| failed("that is no address and port, such as `127.0.0.1:7878`".into()))?;
        let socket = roster.wired.listeners.open(&manifest.id, address);
        socket.map_err(|error| failed(format!("nothing can listen there: {error}")))
    };
    // Under a key without a value nobody is to come.
    manifest.listen.iter().filter(|key| config.contains_key(*key)).map(open).collect()
}

/// Where its code is to run.
pub fn place(roster: &Roster, manifest: &Manifest, isolation: Isolation) -> Result<Place, String> {
    if isolation == Isolation::Inproc {
        return Ok(Place::Inproc);
    }
    let sandbox = &roster.base.config.sandbox;
    let data = roster.base.home.make_data(&manifest.id)?;
    let program = &own_program(&roster.base.start.exe);
    Ok(Place::Process(HostProcess::confined(&Bounds {
        exe: program,
        read: &[&manifest.folder, &roster.base.home.libraries(), program],
        write: &[&data, roster.base.home.workspace()],
        memory: u64::from(sandbox.hosts.memory_mb) * 1024 * 1024,
        network: has_network(roster, manifest),
        sockets: !manifest.listen.is_empty(),
        strict: !sandbox.allow_unconfined,
    })))
}
