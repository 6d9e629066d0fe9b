//! What a daemon of a home would make of its extensions, without one.

use std::path::Path;

use drupe_config::Config;
use drupe_folders::{
    content::Contents,
    discovery::{Found, Layout, PassedOver, discover},
};
use drupe_gate::{
    beginning,
    forecast::{self, Decisions, Surroundings},
    survey::Eyes,
};
pub use drupe_gate::{
    forecast::{Expected, named},
    survey::model_names,
};
use drupe_host::home::Folders;
use drupe_link::Quarantined;
use drupe_prompts::{Day, apart};
use jiff::Timestamp;

/// What would become of extensions.
#[derive(Debug, Default)]
pub struct Forecast {
    /// Each that is there, or only those that were named.
    pub extensions: Vec<Expected>,
    /// What is no extension.
    pub passed: Vec<PassedOver>,
    /// What could not be taken into account.
    pub remarks: Vec<String>,
    /// Why no daemon could begin with the configuration; nothing is known of the extensions then.
    pub refused: Option<String>,
}

/// Looks at a home as its next kernel would, and at what was named beside it as if it lay there. The journal is read where
/// there is one; nothing is written.
pub fn forecast(
    (home, exe): (&Path, &Path),
    config: &Config,
    named: Option<Vec<Found>>,
    quarantined: Vec<Quarantined>,
) -> Forecast {
    let folders = Folders::new(home);
    let layout = Layout::new(exe, home, &config.extensions.paths);
    let (roots, refused) = layout.roots();
    let (mut found, mut passed) = discover(&roots);
    passed.extend(refused);
    let mut remarks = Vec::new();
    let decided = drupe_journal::decisions(&folders.journal()).unwrap_or_else(|error| {
        remarks.push(format!("the journal cannot be read, so nothing counts as agreed to: {error}"));
        drupe_journal::Decisions::default()
    });
    let drupe_journal::Decisions { enabled, approvals, worked } = decided;
    let decisions = Decisions { enabled, approvals, worked, quarantined };
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let asked: Option<Vec<_>> =
        named.as_ref().map(|named| named.iter().map(|one| real(&one.folder)).collect());
    let known: Vec<_> = found.iter().map(|one| real(&one.folder)).collect();
    found.extend(named.into_iter().flatten().filter(|one| !known.contains(&real(&one.folder))));
    if asked.is_none() {
        let ids: Vec<_> = found.iter().map(|one| one.name.clone()).collect();
        remarks.extend(config.unknown_extensions(&ids));
    }
    let day = Day::of(Timestamp::now().as_millisecond());
    let begun = beginning::begin(config, home, day, &[]);
    let (models, orchestrator) =
        match begun.and_then(|models| Ok((models, drupe_prompts::orchestrator(config)?))) {
            Ok(both) => both,
            Err(why) => return Forecast { passed, remarks, refused: Some(why), ..Forecast::default() },
        };
    let contents = Contents::open(folders.contents());
    let eyes = Eyes { contents: &contents, layout: &layout, home, config };
    let surroundings = Surroundings {
        models: &models,
        orchestrator: &orchestrator,
        day,
        fill: &|template, days| apart::fill(exe, template, days),
    };
    let mut extensions = forecast::forecast(eyes, found, &decisions, &surroundings);
    if let Some(asked) = asked {
        extensions.retain(|one| asked.contains(&real(&one.folder)));
    }
    Forecast { extensions, passed, remarks, refused: None }
}
