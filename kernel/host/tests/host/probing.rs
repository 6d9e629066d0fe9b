//! Libraries that are looked at before they are opened.

use std::{fs, path::Path};

use drupe_host::probe::{Caches, Checked, checked, hash, judge, sweep};

use crate::setup::{exe, library};

fn caches(folder: &Path) -> Caches {
    Caches { verdicts_file: folder.join("state/probes.json"), copies: folder.join("copies"), exe: exe() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_library_is_copied_under_its_hash_and_looked_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let caches = caches(folder.path());
    let original = folder.path().join("libfaulty.so");
    fs::copy(library("faulty"), &original).unwrap();
    let Checked { file, hash: found } = checked(&caches, &original, true).await.unwrap();
    assert_eq!(file, caches.copies.join(format!("{found}.so")));
    assert_eq!((hash(&file).unwrap(), found.len()), (found.clone(), 64));
    // The same file again: neither read nor looked at, which a copy that was spoilt shows.
    fs::write(&file, "spoilt").unwrap();
    assert_eq!(checked(&caches, &original, true).await.unwrap().hash, found);
    assert_eq!(fs::read(&file).unwrap(), b"spoilt");
    // A copy that is gone is made again.
    fs::remove_file(&file).unwrap();
    assert_eq!(checked(&caches, &original, true).await.unwrap().file, file);
    assert_eq!(hash(&file).unwrap(), found);
    // Without a copy the file itself is opened, and its hash is known as well.
    let own = checked(&caches, &original, false).await.unwrap();
    assert_eq!((own.file, own.hash), (original, found));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_library_is_looked_at_again_and_its_old_copy_is_swept() {
    let folder = tempfile::tempdir().unwrap();
    let caches = caches(folder.path());
    let original = folder.path().join("lib.so");
    fs::copy(library("faulty"), &original).unwrap();
    let old = checked(&caches, &original, true).await.unwrap();
    fs::remove_file(&original).unwrap();
    fs::copy(library("crashing"), &original).unwrap();
    let new = checked(&caches, &original, true).await.unwrap();
    assert_ne!(old.hash, new.hash);
    sweep(&caches);
    assert!(!old.file.exists() && new.file.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_release_of_the_program_looks_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut caches = caches(folder.path());
    let original = folder.path().join("lib.so");
    fs::write(&original, "no library").unwrap();
    let refused = checked(&caches, &original, false).await.unwrap_err();
    assert!(refused.contains("cannot be opened as a library"), "{refused}");
    let kept = |caches: &Caches| fs::read_to_string(&caches.verdicts_file).unwrap();
    let before = kept(&caches);
    checked(&caches, &original, false).await.unwrap_err();
    assert_eq!(kept(&caches), before);
    caches.exe = folder.path().join("program");
    fs::copy(exe(), &caches.exe).unwrap();
    checked(&caches, &original, false).await.unwrap_err();
    assert_ne!(kept(&caches), before);
}

#[test]
fn a_library_that_kills_hangs_or_is_none_is_refused_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let truncated = folder.path().join("libtruncated.so");
    let whole = fs::read(library("faulty")).unwrap();
    fs::write(&truncated, &whole[..64 * 1024]).unwrap();
    for (file, expected) in [
        (library("ctor_abort"), "is refused: opening it crashed the process with signal 6 (SIGABRT)"),
        (library("other_layout"), "has another layout of the tables"),
        ("/lib/x86_64-linux-gnu/libm.so.6".into(), "is a library but no drupe extension"),
        (truncated, "libtruncated.so"),
    ] {
        let refused = judge(&exe(), &file).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
        assert!(refused.contains(file.to_str().unwrap()), "{refused}");
    }
    assert_eq!(judge(&exe(), &library("faulty")), Ok(()));
}
