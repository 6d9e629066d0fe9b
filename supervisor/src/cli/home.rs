//! Which home is meant.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// `--home`, else `DRUPE_HOME`, else `sandbox/` of the checkout that one stands in, else the user's data folder.
pub fn find(
    given: Option<&Path>,
    here: &Path,
    environment: &BTreeMap<String, String>,
) -> anyhow::Result<PathBuf> {
    let set = |name: &str| environment.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(home) = given.map(Path::to_owned).or_else(|| set("DRUPE_HOME")) {
        return Ok(home);
    }
    // Both folders together are what makes it a checkout of drupe and not of something else.
    let checkout = here
        .ancestors()
        .find(|folder| folder.join("sandbox").is_dir() && folder.join("supervisor/src/supervise").is_dir());
    if let Some(checkout) = checkout {
        return Ok(checkout.join("sandbox"));
    }
    let data = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")));
    data.map(|data| data.join("drupe"))
        .ok_or_else(|| anyhow::anyhow!("no home: set DRUPE_HOME or give `--home`"))
}
