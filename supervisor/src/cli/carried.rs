//! The extensions that ship, where the program carries them itself: `cargo install` copies the program alone. They are written once
//! where an archive has them, `../lib/drupe` beside the program's folder, and again when the program is another one.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use drupe_folders::discovery::Layout;
use flate2::read::GzDecoder;

use super::Context;

include!(concat!(env!("OUT_DIR"), "/carried.rs"));

/// Places, and what belongs there, packed by gzip.
type Files<'a> = &'a [(&'a str, &'a [u8])];

/// Names the program that wrote a folder. One without it was installed otherwise, and is left alone.
const MARK: &str = ".carried";

/// Writes them if the program carries any, nothing else ships with it, and they are not there yet. Where they cannot be written that is said:
/// all but the extensions works without them.
pub fn unpack(context: &Context) {
    unpack_these(CARRIED, context);
}

fn unpack_these(files: Files<'_>, context: &Context) {
    if files.is_empty() {
        return;
    }
    let Some(place) = context.exe.parent().and_then(Path::parent).map(|prefix| prefix.join("lib/drupe"))
    else {
        return;
    };
    let said = match written(files, &place, context) {
        Ok(false) => return,
        Ok(true) => format!("the extensions that ship are in `{}` now", place.display()),
        Err(error) => format!(
            "the extensions that this program carries cannot be written to `{}`: {error}; run it once as somebody who may",
            place.display()
        ),
    };
    context.console.remark(&said);
}

fn written(files: Files<'_>, place: &Path, context: &Context) -> io::Result<bool> {
    let (shipped, _) = Layout::new(&context.exe, context.home().path(), &[]).shipped();
    if shipped.is_some_and(|folder| Some(folder) != place.join("extensions").canonicalize().ok()) {
        return Ok(false);
    }
    let program = fs::metadata(&context.exe)?;
    let mark = format!("{} {}.{}\n", program.len(), program.mtime(), program.mtime_nsec());
    match fs::read_to_string(place.join(MARK)) {
        Ok(found) if found == mark => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound && place.join("extensions").exists() => {
            return Ok(false);
        }
        _ => {}
    }
    let beside = |name: &str| place.with_file_name(format!(".drupe-{name}-{}", std::process::id()));
    let (fresh, old) = (beside("new"), beside("old"));
    let done = write_all(files, &fresh, &mark).and_then(|()| {
        match fs::rename(place, &old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        match fs::rename(&fresh, place) {
            // Another process was faster, with the same.
            Err(_) if fs::read_to_string(place.join(MARK)).is_ok_and(|found| found == mark) => Ok(()),
            done => done,
        }
    });
    // What is left of either is of no use; what cannot be removed does no harm.
    let _ = fs::remove_dir_all(&fresh);
    let _ = fs::remove_dir_all(&old);
    done.map(|()| true)
}

fn write_all(files: Files<'_>, folder: &Path, mark: &str) -> io::Result<()> {
    for (name, packed) in files {
        let file = folder.join(name);
        let above: Vec<PathBuf> =
            file.ancestors().skip(1).take_while(|up| up.starts_with(folder)).map(Into::into).collect();
        fs::create_dir_all(&above[0])?;
        io::copy(&mut GzDecoder::new(*packed), &mut fs::File::create(&file)?)?;
        // Whatever the umask: what others could write would not count as shipped.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
        above.iter().try_for_each(|up| fs::set_permissions(up, fs::Permissions::from_mode(0o755)))?;
    }
    fs::write(folder.join(MARK), mark)?;
    // The mark says that all of them are there, after a loss of power too.
    Ok(rustix::fs::syncfs(fs::File::open(folder)?)?)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;
    use crate::cli::fake::Fake;

    const FIRST: [(&str, &str); 2] = [("extensions/one/manifest.yaml", "id: one"), ("libone.so", "code")];
    const SECOND: [(&str, &str); 2] =
        [("libother.so", "code"), ("extensions/other/manifest.yaml", "id: other")];

    /// Unpacks as a program does that carries these.
    fn unpack_packed(files: &[(&str, &str)], context: &Context) {
        let packed: Vec<_> = files
            .iter()
            .map(|(name, content)| {
                let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
                packer.write_all(content.as_bytes()).expect("it is packed");
                (*name, packer.finish().expect("it is packed"))
            })
            .collect();
        let files: Vec<_> = packed.iter().map(|(name, packed)| (*name, packed.as_slice())).collect();
        unpack_these(&files, context);
    }

    /// A program in a folder of its own, and where what it carries belongs.
    fn program(content: &str) -> (Fake, PathBuf) {
        let mut fake = Fake::absent();
        let prefix = fake.context.here.join("prefix");
        fs::create_dir_all(prefix.join("bin")).expect("a folder");
        fake.context.exe = prefix.join("bin/drupe");
        fs::write(&fake.context.exe, content).expect("a file");
        (fake, prefix.join("lib/drupe"))
    }

    #[test]
    fn a_program_that_was_copied_alone_writes_what_it_carries_once_and_again_when_it_is_another_one() {
        let (fake, place) = program("the first");
        unpack_these(&[], &fake.context);
        assert!(!place.exists(), "it carries nothing");
        unpack_packed(&FIRST, &fake.context);
        assert_eq!(fs::read(place.join("libone.so")).expect("it is there"), b"code");
        for path in [
            place.join("libone.so"),
            place.join("extensions/one/manifest.yaml"),
            place.join("extensions/one"),
        ] {
            let mode = fs::metadata(&path).expect("it is there").mode();
            assert_eq!(mode & 0o022, 0, "others may write {}", path.display());
        }
        let (found, _) = Layout::new(&fake.context.exe, fake.context.home().path(), &[]).shipped();
        assert_eq!(
            found,
            Some(place.join("extensions").canonicalize().expect("a path")),
            "and it counts as shipped"
        );
        fs::remove_file(place.join("libone.so")).expect("it is there");
        unpack_packed(&FIRST, &fake.context);
        assert!(!place.join("libone.so").exists(), "it does not look at each file each time");

        fs::write(&fake.context.exe, "the second program").expect("a file");
        unpack_packed(&SECOND, &fake.context);
        assert!(
            place.join("extensions/other/manifest.yaml").exists() && !place.join("extensions/one").exists()
        );
        let left = fs::read_dir(place.parent().expect("a folder")).expect("a folder").count();
        assert_eq!(left, 1, "nothing else is left beside it");
    }

    #[test]
    fn what_was_installed_otherwise_is_left_alone() {
        let (fake, place) = program("x");
        fs::create_dir_all(place.join("extensions/mine")).expect("a folder");
        unpack_packed(&FIRST, &fake.context);
        assert!(place.join("extensions/mine").exists() && !place.join("libone.so").exists());
        let (fake, place) = program("x");
        fs::create_dir_all(fake.context.exe.with_file_name("extensions")).expect("a folder");
        unpack_packed(&FIRST, &fake.context);
        assert!(!place.exists(), "what lies beside the program goes first");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_no_reason_to_do_nothing() {
        let (fake, place) = program("x");
        fs::write(place.parent().expect("a folder"), "a file").expect("a file");
        unpack_packed(&FIRST, &fake.context);
        assert!(!place.exists());
    }
}
