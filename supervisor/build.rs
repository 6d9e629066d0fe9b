//! Packs what the program carries where the feature `carried` is on: files of the extensions that ship, and their libraries, which
//! cargo has built by the time that the program is compiled, since they are dependencies of it.

use std::{
    error::Error,
    fs,
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use flate2::{Compression, bufread::GzEncoder};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What of an extension's folder nothing reads at run time.
const SOURCES: [&str; 6] = ["Cargo.toml", "src", "tests", "examples", "benches", "target"];

fn main() -> Outcome<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "cargo says in no other way what is built, and where to write"
    )]
    let given = |name: &str| std::env::var_os(name);
    let out = PathBuf::from(given("OUT_DIR").ok_or("cargo gives `OUT_DIR`")?);
    let mut carried = Carried::new(&out)?;
    if given("CARGO_FEATURE_CARRIED").is_some() {
        // `<target>/<profile>/build/<package>/out`.
        let libraries = out.ancestors().nth(3).ok_or("cargo writes deep in its target folder")?.join("deps");
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("this is a folder of the workspace")?;
        let extensions = root.join("extensions");
        println!("cargo::rerun-if-changed={}", extensions.display());
        for folder in sorted(&extensions)? {
            let manifest = folder.join("manifest.yaml");
            if !manifest.is_file() {
                continue;
            }
            let mut files = Vec::new();
            read_at_run_time(&folder, &mut files)?;
            for file in files {
                carried.add(file.strip_prefix(root)?, &file)?;
            }
            let text = fs::read_to_string(&manifest)?;
            if let Some(entrypoint) = text.lines().find_map(|line| line.strip_prefix("entrypoint:")) {
                let name = format!("{}.so", entrypoint.trim().trim_end_matches(".so"));
                carried.add(Path::new(&name), &libraries.join(&name))?;
            }
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    fs::write(out.join("carried.rs"), carried.declaration())?;
    Ok(())
}

/// Files, each packed in a file of its own that the program includes.
struct Carried {
    folder: PathBuf,
    lines: Vec<String>,
    level: Compression,
}

impl Carried {
    fn new(out: &Path) -> Outcome<Self> {
        let folder = out.join("carried");
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => fs::create_dir(&folder)?,
        }
        #[expect(clippy::disallowed_methods, reason = "cargo says in no other way how a program is built")]
        let optimized = std::env::var("OPT_LEVEL").is_ok_and(|level| level != "0");
        // Nobody hands a program out that was built for tests.
        let level = if optimized { Compression::best() } else { Compression::fast() };
        Ok(Self { folder, lines: Vec::new(), level })
    }

    fn add(&mut self, place: &Path, file: &Path) -> Outcome<()> {
        let opened =
            fs::File::open(file).map_err(|error| format!("{} is not built: {error}", file.display()))?;
        let packed = self.folder.join(format!("{}.gz", self.lines.len()));
        io::copy(&mut GzEncoder::new(BufReader::new(opened), self.level), &mut fs::File::create(&packed)?)?;
        self.lines.push(format!("    ({place:?}, include_bytes!({packed:?})),\n"));
        Ok(())
    }

    fn declaration(&self) -> String {
        format!("const CARRIED: &[(&str, &[u8])] = &[\n{}];\n", self.lines.concat())
    }
}

/// Files of a folder but sources and further packages.
fn read_at_run_time(folder: &Path, files: &mut Vec<PathBuf>) -> Outcome<()> {
    for path in sorted(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if SOURCES.contains(&name.as_str()) || name.starts_with('.') {
            continue;
        }
        match path.is_dir() {
            true if path.join("Cargo.toml").is_file() => {}
            true => read_at_run_time(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

fn sorted(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Outcome<_>>()?;
    paths.sort();
    Ok(paths)
}
