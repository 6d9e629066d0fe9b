//! Whether what lies on the disk may be used: what each extension is, and what keeps it out. A daemon and a check without
//! one read and judge by the same functions; only who answers for the operator differs.

use std::{path::Path, sync::Arc};

use drupe_config::{Config, Diagnostics, Loaded, Manifest};
use drupe_extension_api::{
    Fault,
    control::{Approval, ApprovalState, ExtensionState, ExtensionStatus},
};
use drupe_folders::{
    content::{Content, Contents},
    discovery::{Found, Layout, Origin, settle},
};
use drupe_link::Quarantined;
use drupe_models::names_script;

use crate::{
    check::{self, Ask},
    printable::shown,
    state::Out,
};

/// How the reason begins of one that is off since somebody wants it so: the operator, or whoever ships it.
pub const TURNED_OFF: &str = "turned off by";

/// What is looked at with.
#[derive(Clone, Copy)]
pub struct Eyes<'a> {
    /// Hashes of files that are known.
    pub contents: &'a Contents,
    pub layout: &'a Layout,
    pub home: &'a Path,
    pub config: &'a Config,
}

/// One extension as it is on the disk.
#[derive(Debug, Clone)]
pub struct Looked {
    pub found: Found,
    /// What it is, if its manifest can be read.
    pub manifest: Option<Arc<Manifest>>,
    /// Its files, if they can be read.
    pub content: Option<Arc<Content>>,
    pub ask: Option<Ask>,
    /// What its manifest was found to be wrong in: faults, or warnings that stop nothing.
    pub diagnostics: Diagnostics,
    /// Why it is not to be used, if it is not.
    pub out: Option<Out>,
}

impl Looked {
    fn out(found: Found, why: String, diagnostics: Diagnostics) -> Self {
        let out = Some(Out::Failed(why));
        Self { found, manifest: None, content: None, ask: None, diagnostics, out }
    }

    /// The hash of its content; empty where it cannot be read.
    pub fn hash(&self) -> &str {
        self.content.as_ref().map_or("", |content| &content.hash)
    }

    pub fn is_third_party(&self) -> bool {
        self.found.origin != Origin::Shipped
    }
}

impl Eyes<'_> {
    /// Reads what one is. Manifest and hash are of one moment: what is agreed to is what was read.
    pub fn look(&self, mut found: Found) -> Looked {
        let hash = |found: &Found| self.contents.of(found, None).map(|c| c.hash).map_err(|e| e.to_string());
        for _ in 0..3 {
            let before = hash(&found);
            let loaded = match self.manifest(&found) {
                Ok(loaded) => loaded,
                Err(faults) => return Looked::out(found, rendered(&faults), faults),
            };
            let library = loaded.value.entrypoint.as_ref().and_then(|e| self.layout.library(&found, e).ok());
            let doubt = self.layout.doubt(&found, library.as_deref());
            let content = self.content(&found, &loaded.value);
            if before != hash(&found) {
                continue;
            }
            let (diagnostics, mut manifest) = (loaded.warnings, loaded.value);
            let judged = content.and_then(|content| {
                let mut ask = check::judge(&mut manifest, &content, self.config)?;
                ask.needs.extend(doubt.iter().map(|why| {
                    format!(
                        "files that do not count as shipped, since others may change them ({})",
                        shown(why)
                    )
                }));
                Ok((Arc::new(content), ask))
            });
            if doubt.is_some() {
                found.origin = Origin::Doubted;
            }
            let (judged, out) = match judged {
                Ok(judged) => (Some(judged), None),
                Err(why) => (None, Some(Out::Failed(why))),
            };
            let (content, ask) = judged.unzip();
            return Looked { found, manifest: Some(Arc::new(manifest)), content, ask, diagnostics, out };
        }
        Looked::out(found, "it is being written".into(), Diagnostics::default())
    }

    /// What a folder, or a file, says that it is.
    pub fn manifest(&self, found: &Found) -> Result<Loaded<Manifest>, Diagnostics> {
        check::load(&found.folder, self.home)
    }

    /// The files of an extension, its library among them wherever that is.
    pub fn content(&self, found: &Found, manifest: &Manifest) -> Result<Content, String> {
        let library = manifest.entrypoint.as_ref().and_then(|e| self.layout.library(found, e).ok());
        self.contents.of(found, library.as_deref()).map_err(|error| error.to_string())
    }

    /// Why one is not to be used, whatever is agreed to: a decision, a fault, or something that it needs and that is not
    /// there. The library comes last, so that whatever else is wrong is said of one that is not built yet.
    pub fn refused(&self, found: &Found, manifest: &Manifest, decided: Decided<'_>) -> Option<Out> {
        refused(manifest, self.config, decided).or_else(|| {
            let faults = manifest.effective_config(self.config).err();
            faults.map(|faults| Out::Failed(rendered(&faults))).or_else(|| self.unbuilt(found, manifest))
        })
    }

    /// The library of one that has none yet is missed before the operator is asked: an agreement is to what will run.
    pub fn unbuilt(&self, found: &Found, manifest: &Manifest) -> Option<Out> {
        let entrypoint = manifest.entrypoint.as_ref()?;
        self.layout.library(found, entrypoint).err().map(|error| Out::Failed(error.to_string()))
    }
}

/// The models that an agent's manifest names by itself, with what names them. Aliases are the configuration's own.
pub fn model_names(manifest: &Manifest, config: &Config) -> Option<(String, Vec<String>)> {
    let named = &manifest.agent.as_ref()?.models;
    let own: Vec<String> = named
        .iter()
        .filter(|name| !config.models.aliases.contains_key(*name) && !names_script(name))
        .cloned()
        .collect();
    (!own.is_empty()).then(|| (format!("agent.model of extension `{}`", manifest.id), own))
}

fn rendered(faults: &Diagnostics) -> String {
    faults.render(false).trim_end().to_owned()
}

#[derive(Clone, Copy)]
pub struct Decided<'a> {
    pub third_party: bool,
    /// What the operator said of it.
    pub enabled: Option<bool>,
    /// Whether third-party extensions are left out for now.
    pub safe_mode: bool,
    /// What the supervisor holds against its content.
    pub quarantined: Option<&'a Quarantined>,
}

fn refused(manifest: &Manifest, config: &Config, decided: Decided<'_>) -> Option<Out> {
    let Decided { third_party, enabled, safe_mode, quarantined } = decided;
    match enabled {
        Some(false) => return Some(Out::Disabled("turned off by `drupe ext disable`".into())),
        None if !manifest.is_enabled(config) => {
            return Some(Out::Disabled("turned off by `enabled: false`".into()));
        }
        _ => {}
    }
    if safe_mode && third_party {
        return Some(Out::Disabled("safe mode leaves third-party extensions out".into()));
    }
    // Their names stand before those of topics and sessions.
    if let Some(why) = drupe_wiring::kept_id(manifest.id.as_str()) {
        return Some(Out::Failed(why));
    }
    if let Some(verdict) = quarantined {
        return Some(Out::Quarantined(quarantine(verdict)));
    }
    let faults = manifest.resolve_secrets(&config.overlay).err()?;
    let why = format!("not configured: {}", rendered(&faults));
    Some(if third_party { Out::Failed(why) } else { Out::Disabled(why) })
}

pub fn quarantine(verdict: &Quarantined) -> String {
    let id = &verdict.extension;
    format!("{}; replace it, or try it again with `drupe ext release {id}`", verdict.reason)
}

pub fn is_asked(manifest: &Manifest, ask: &Ask, config: &Config, third_party: bool) -> bool {
    third_party && !ask.needs.is_empty() && !config.approvals.preauthorized.contains(&manifest.id)
}

/// To what the next question is bound, where an agreement does not reach as far as what is needed now: what that is depends
/// on the configuration, too.
pub fn asked_again(content: &Content, ask: &Ask, answered: &Approval) -> Option<String> {
    let reaches = ask.needs.iter().all(|need| answered.needs.contains(need));
    (answered.state == ApprovalState::Allowed && !reaches).then(|| {
        let more = [("asked before", ask.hash.as_str()), ("needs", &ask.needs.join("\n"))];
        content.hash_with(more)
    })
}

/// What an answer leads to; `approval` is what names the question on the command line.
pub fn answered(manifest: &Manifest, ask: &Ask, approval: &str, state: ApprovalState) -> Option<Out> {
    let brings = ask.needs.join(", ");
    let runs = match &manifest.entrypoint {
        Some(_) => "; what runs is the library as it was built, not the sources beside it",
        None => "",
    };
    match state {
        ApprovalState::Allowed => None,
        ApprovalState::Denied => Some(Out::Denied(format!(
            "the operator did not agree that it brings {brings}; `drupe approvals allow {approval}` takes that back"
        ))),
        // That nobody answered in time is said of calls alone.
        ApprovalState::Pending | ApprovalState::Withdrawn | ApprovalState::Expired => {
            Some(Out::AwaitingApproval(format!(
                "it brings {brings}; `drupe approvals allow {approval}` lets it work{runs}"
            )))
        }
    }
}

/// Why an answer finds no question, and what is to be done first. `status` is that of the extension that was named.
pub fn nothing_waits(id: &str, status: Option<ExtensionStatus>) -> Fault {
    let message = format!("nothing of `{id}` waits for an answer");
    let Some(ExtensionStatus { state, reason, .. }) = status else {
        return Fault::not_found(format!("{message}, and there is no such extension"))
            .help("`drupe approvals` lists what waits, `drupe ext list` what is there");
    };
    match state {
        ExtensionState::Active => Fault::not_found(format!("{message}: it works"))
            .help("`drupe approvals` lists what was answered, each with an id that takes another answer"),
        _ => Fault::not_found(format!("{message}: {}", reason.unwrap_or_default()))
            .help(format!("mend that first; `drupe ext show {id}` shows where it is")),
    }
}

/// Of several of one name at most one is used. Only one that may work takes the place of a shipped one, and only where
/// its manifest says so: nothing that the operator has not agreed to turns off what ships. `looked` shows what was read of
/// one, `out` lets it be out.
pub fn one_of_a_name<T>(seen: Vec<T>, looked: impl Fn(&T) -> Named<'_>, out: impl Fn(T, Out) -> T) -> Vec<T> {
    let shipped = |s: &T| looked(s).found.origin == Origin::Shipped;
    let usable = seen.iter().filter(|s| shipped(s) || looked(s).usable).map(|s| looked(s).found.clone());
    let overrides = |f: &Found| {
        let of = seen.iter().map(&looked).find(|s| s.found == f).and_then(|s| s.manifest);
        of.is_some_and(|manifest| manifest.overrides)
    };
    let settled = settle(usable.collect(), overrides);
    let verdict = |s: &T| settled.iter().find(|(found, _)| found == looked(s).found);
    let kept: Vec<(bool, Option<String>)> = seen
        .iter()
        .map(|s| match verdict(s) {
            Some((_, clash)) => (true, clash.clone().filter(|_| !shipped(s) && looked(s).usable)),
            None => (!shipped(s), None),
        })
        .collect();
    let judged = seen.into_iter().zip(kept).filter(|(_, (kept, _))| *kept);
    judged
        .map(|(one, (_, clash))| match clash {
            Some(clash) => out(one, Out::Failed(clash)),
            None => one,
        })
        .collect()
}

/// What [`one_of_a_name`] needs to know of one.
pub struct Named<'a> {
    pub found: &'a Found,
    /// What it is, if that can be read.
    pub manifest: Option<&'a Manifest>,
    /// Whether nothing keeps it out.
    pub usable: bool,
}
