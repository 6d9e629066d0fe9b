//! Which home is meant.

use std::path::{Path, PathBuf};

use super::{
    Environment,
    failure::{Failure, status},
};

/// `--home`, else `DRUPE_HOME`, else `sandbox/` of the checkout that one stands in, else the user's data folder.
///
/// Only of the checkout that `exe` was built in: a home decides what may run, and whoever stands in a foreign folder has not
/// chosen one.
pub fn find(
    given: Option<&Path>,
    here: &Path,
    exe: &Path,
    environment: &Environment,
) -> Result<PathBuf, Failure> {
    if let Some(home) = given.map(Path::to_owned).or_else(|| environment.path("DRUPE_HOME")) {
        return Ok(here.join(home));
    }
    // Both folders together are what makes it a checkout of drupe and not of something else.
    let checkout = here
        .ancestors()
        .find(|folder| folder.join("sandbox").is_dir() && folder.join("supervisor/src/supervise").is_dir())
        .filter(|folder| folder.join("target").canonicalize().is_ok_and(|built| exe.starts_with(built)));
    if let Some(checkout) = checkout {
        return Ok(checkout.join("sandbox"));
    }
    let data = environment.path("XDG_DATA_HOME");
    let data = data.or_else(|| Some(environment.path("HOME")?.join(".local/share")));
    data.map(|data| data.join("drupe")).ok_or_else(|| {
        Failure::new(status::CONFIG, "there is no home: HOME is not set")
            .help("give `--home`, or set DRUPE_HOME")
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn check(given: Option<&str>, here: &Path, variables: &[(&str, &str)], expected: &Path) {
        check_of(Path::new("/usr/bin/drupe"), given, here, variables, expected);
    }

    fn check_of(exe: &Path, given: Option<&str>, here: &Path, variables: &[(&str, &str)], expected: &Path) {
        let variables = variables.iter();
        let variables = variables.map(|(name, value)| ((*name).into(), (*value).into()));
        let environment = Environment::new(variables);
        let found = find(given.map(Path::new), here, exe, &environment).expect("a home");
        assert_eq!(found, expected, "{given:?}");
    }

    #[test]
    fn the_nearest_choice_wins() {
        let folder = tempfile::tempdir().expect("a folder");
        let here = folder.path();
        let variables = [("DRUPE_HOME", "/d"), ("XDG_DATA_HOME", "/x"), ("HOME", "/h")];
        check(Some("given"), here, &variables, &here.join("given"));
        check(None, here, &variables, Path::new("/d"));
        check(None, here, &variables[1..], Path::new("/x/drupe"));
        check(None, here, &variables[2..], Path::new("/h/.local/share/drupe"));
        check(None, here, &[("DRUPE_HOME", ""), ("HOME", "/h")], Path::new("/h/.local/share/drupe"));
        assert!(find(None, here, Path::new("/usr/bin/drupe"), &Environment::default()).is_err());
    }

    #[test]
    fn a_checkout_has_a_home_of_its_own_for_the_program_that_was_built_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let checkout = folder.path().canonicalize().expect("it is there");
        let (deep, exe) = (checkout.join("supervisor/src/supervise"), checkout.join("target/debug/drupe"));
        fs::create_dir_all(&deep).expect("a folder");
        fs::create_dir_all(exe.parent().expect("a file has a folder")).expect("a folder");
        let (variables, usual) = ([("HOME", "/h")], Path::new("/h/.local/share/drupe"));
        check_of(&exe, None, &deep, &variables, usual);
        fs::create_dir(checkout.join("sandbox")).expect("a folder");
        check_of(&exe, None, &deep, &variables, &checkout.join("sandbox"));
        // Whoever stands in a foreign checkout has not chosen its home.
        check(None, &deep, &variables, usual);
    }
}
