//! Scripts: who may name one, and what is one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::{
    tests::{both, check},
    *,
};

#[test]
fn a_script_is_a_model_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flow.yaml");
    std::fs::write(&path, "- text: hello\n").unwrap();
    let name = format!("scripted:{}", path.display());
    assert_eq!(check(both(), &[&name]), ("scripted/flow.yaml".to_owned(), 0));
    std::fs::write(&path, "- txt: hello\n").unwrap();
    let (error, _) = check(both(), &[&name]);
    assert!(error.contains("txt") && error.contains("line 1"), "{error}");
}

#[test]
fn no_extension_has_a_file_read_by_calling_it_a_script() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys");
    std::fs::write(&path, "TOKEN=secret\n").unwrap();
    let name = format!("scripted:{}", path.display());
    let mut settings = both();
    let script = dir.path().join("flow.yaml");
    std::fs::write(&script, "- text: hello\n").unwrap();
    settings.aliases.insert("flow".to_owned(), vec![format!("scripted:{}", script.display())]);
    let models = Models::new(settings).unwrap();
    let said = |name: &str| match models.resolve(NamedBy::Extension, &[name.to_owned()]) {
        Ok(resolved) => resolved.model.profile().name.clone(),
        Err(error) => error.to_string(),
    };
    let refused = said(&name);
    assert!(refused.contains("only `drupe.yaml`") && !refused.contains("secret"), "{refused}");
    assert_eq!(said("flow"), "scripted/flow.yaml", "the operator's alias may lead to one");
}

#[test]
fn what_is_no_file_or_too_large_is_no_script() {
    let dir = tempfile::tempdir().unwrap();
    let large = dir.path().join("large");
    std::fs::File::create(&large).unwrap().set_len(1 << 30).unwrap();
    for (path, why) in [(dir.path(), "no file"), (Path::new("/dev/zero"), "no file"), (&large, "larger than")]
    {
        let (error, _) = check(both(), &[&format!("scripted:{}", path.display())]);
        assert!(error.contains(why), "{error}");
    }
}
