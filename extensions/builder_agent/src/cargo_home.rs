//! The builder's own cargo home, made with what the operator's has fetched, as far as the builder's process may read that: where
//! it runs in one of its own, cargo fetches everything itself. It is never shared with the operator: cargo does not look at the
//! checksums of what it finds there.

use std::{
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
};

use drupe_extension_api::Fault;
use toml_edit::{DocumentMut, Item, TableLike};

/// What of the operator's registry is copied, so that nothing need be fetched twice: the index, and packed crates, which
/// cargo compares with their checksums before use.
const COPIED: [&str; 2] = ["index", "cache"];

/// The most bytes that are copied; what is left out is fetched.
const MOST: u64 = 512 * 1024 * 1024;

/// The settings that are copied: where packages come from and how they are built. Others, such as variables, may hold
/// what is nobody's business.
const SETTINGS: [&str; 7] = ["build", "http", "net", "registries", "registry", "source", "target"];

/// Keys of these that hold secrets, or say where they are.
const SECRETS: [&str; 4] = ["token", "secret-key", "credential-provider", "global-credential-providers"];

/// Makes it, where it is not there. A program that ran before may have put links in its way: what is there is left alone.
/// Copies for some seconds.
pub fn seed(cargo: &Path, own: &Path) -> Result<(), Fault> {
    /// Two first calls would take each other's parts away.
    static SEEDING: Mutex<()> = Mutex::new(());
    let _seeding = SEEDING.lock().unwrap_or_else(PoisonError::into_inner);
    if own.symlink_metadata().is_ok() {
        return Ok(());
    }
    // Complete, or not there: a copy that was interrupted is made again.
    let part = own.with_extension("part");
    let _ = fs::remove_dir_all(&part);
    fs::create_dir_all(part.join("registry"))?;
    let mut room = MOST;
    for name in COPIED {
        copy(&cargo.join("registry").join(name), &part.join("registry").join(name), &mut room)?;
    }
    if let Ok(text) = fs::read_to_string(cargo.join("config.toml")) {
        fs::write(part.join("config.toml"), settings(&text))?;
    }
    // After a loss of power, too: nobody looks at it again.
    rustix::fs::syncfs(fs::File::open(&part)?).map_err(std::io::Error::from)?;
    Ok(fs::rename(part, own)?)
}

/// Copies regular files as far as there is room. What cannot be read is left out.
fn copy(from: &Path, to: &Path, room: &mut u64) -> Result<(), Fault> {
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    fs::create_dir_all(to)?;
    for entry in entries.flatten() {
        let (Ok(kind), target) = (entry.file_type(), to.join(entry.file_name())) else { continue };
        if kind.is_dir() {
            copy(&entry.path(), &target, room)?;
        } else if let Some(left) = entry.metadata().ok().and_then(|m| room.checked_sub(m.len()))
            && kind.is_file()
        {
            *room = left;
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The operator's settings without secrets; nothing of what cannot be read.
fn settings(text: &str) -> String {
    let Ok(mut document) = text.parse::<DocumentMut>() else { return String::new() };
    document.retain(|name, _| SETTINGS.contains(&name));
    without_secrets(document.as_table_mut());
    document.to_string()
}

fn without_secrets(table: &mut dyn TableLike) {
    let secret = |(name, item): (&str, &Item)| {
        (SECRETS.contains(&name) || item.as_str().is_some_and(names_a_user)).then(|| name.to_owned())
    };
    let secrets: Vec<String> = table.iter().filter_map(secret).collect();
    for name in secrets {
        table.remove(&name);
    }
    for (_, item) in table.iter_mut() {
        if let Some(inner) = item.as_table_like_mut() {
            without_secrets(inner);
        }
    }
}

/// Whether an address holds a name and a password: `https://name:password@host/`.
fn names_a_user(value: &str) -> bool {
    let rest = value.split_once("://").map_or(value, |(_, rest)| rest);
    rest.split('/').next().is_some_and(|host| host.contains('@'))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

    use std::thread;

    use super::*;

    #[test]
    fn settings_are_copied_without_what_is_secret() {
        let text = r#"
            [env]
            A_KEY = "hidden"
            [registries.mine]
            index = "sparse+https://example.org/"
            token = "hidden"
            [registries]
            other = { index = "https://name:hidden@example.org/", credential-provider = "hidden" }
            [registry]
            default = "mine"
            token = "hidden"
            [http]
            proxy = "name:hidden@proxy:80"
            [source.crates-io]
            replace-with = "mine"
        "#;
        let kept = settings(text);
        assert!(!kept.contains("hidden"), "{kept}");
        for part in ["sparse+https://example.org/", "default = \"mine\"", "replace-with = \"mine\""] {
            assert!(kept.contains(part), "{part}: {kept}");
        }
        assert_eq!(settings("no [settings"), "");
    }

    #[test]
    fn two_first_calls_make_one_home_and_a_part_that_was_left_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let cargo = folder.path().join("cargo");
        for number in 0..50 {
            fs::create_dir_all(cargo.join(format!("registry/cache/{number}"))).unwrap();
            fs::write(cargo.join(format!("registry/cache/{number}/a.crate")), "packed").unwrap();
        }
        let own = folder.path().join("own");
        fs::create_dir_all(folder.path().join("own.part/registry/cache/old")).unwrap();
        thread::scope(|scope| {
            let both = [(); 2].map(|()| scope.spawn(|| seed(&cargo, &own)));
            for one in both {
                one.join().unwrap().unwrap();
            }
        });
        let names = fs::read_dir(own.join("registry/cache")).unwrap().count();
        assert_eq!((names, own.with_extension("part").exists()), (50, false));
    }
}
