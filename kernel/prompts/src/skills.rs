//! Skills: folders with instructions for one kind of work, which a model reads when it does that work.
//!
//! They are found within bounds and in the same order each time, and read when they are asked for: nothing beneath a skill's
//! folder is reached by a link, and what is no text of bounded size is not read. Runs nothing.

mod seal;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use drupe_config::{
    Config, DISPLAY_FILES, Diagnostics, SKILL_FILE, SkillDisplay, load_skill, parse_skill,
    parse_skill_display,
};
use seal::Seal;
use sha2::{Digest as _, Sha256};

use crate::{
    NoText,
    beneath::{self, NoFileText},
};

/// Skills of one agent; further ones by name are left out.
const MOST: usize = 256;

/// Entries that are looked at in one folder.
const ENTRIES: usize = 1_024;

/// Bytes of one file of a skill.
const FILE: u64 = 256 << 10;

/// Files beneath a skill that are listed.
const LISTED: usize = 200;

/// How deep files are listed.
const DEPTH: usize = 4;

/// One that can be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    pub name: String,
    /// For the model: what it is for, and when to use it.
    pub description: String,
    /// The tools that it names, as they are written; none where it names none.
    pub allowed: Option<Vec<String>>,
    /// How people are shown it; empty for skills of agents, which nobody lists.
    pub display: SkillDisplay,
    /// Its folder, as an absolute path.
    pub folder: PathBuf,
    /// What lies in it, where nothing else may be read or run than what there was.
    sealed: Option<Seal>,
}

/// What was found in folders of skills.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skills {
    /// Those that can be loaded, by name.
    pub all: BTreeMap<String, Arc<Skill>>,
    /// What is none although it looks like one, each with the reason.
    pub passed_over: Vec<String>,
}

impl Skills {
    /// The skills of the orchestrator.
    pub fn of(config: &Config) -> Self {
        let home = config.skills_of_home.parent().and_then(|home| home.canonicalize().ok());
        Self::find(&config.skill_folders(), &config.skills.disabled, home.as_deref())
    }

    /// The skills in folders of them, the first of each name. `disabled` are left out, and what would give away the home.
    fn find(directories: &[PathBuf], disabled: &[String], home: Option<&Path>) -> Self {
        let mut found = Self::default();
        for directory in directories {
            let mut folders = Vec::new();
            for folder in subfolders(directory) {
                match folder.join(SKILL_FILE).symlink_metadata() {
                    Ok(_) => folders.push(folder),
                    // A folder of them, within the first.
                    Err(_) => folders.extend(
                        subfolders(&folder).into_iter().filter(|folder| folder.join(SKILL_FILE).exists()),
                    ),
                }
            }
            for folder in folders {
                match home.is_some_and(|home| is_private(&folder, home)) {
                    true => found.passed_over.push(format!(
                        "the skill in `{}` is not used: what lies there is the daemon's own, or holds that",
                        folder.display()
                    )),
                    false => found.take(&folder, disabled),
                }
            }
        }
        found
    }

    fn take(&mut self, folder: &Path, disabled: &[String]) {
        match Skill::at(folder) {
            Ok(skill) if disabled.contains(&skill.name) => {}
            Ok(mut skill) => match self.all.get(&skill.name) {
                Some(first) => self.passed_over.push(format!(
                    "the skill in `{}` is not used: `{}` has the same name and goes before it",
                    folder.display(),
                    first.folder.display()
                )),
                None if self.all.len() >= MOST => self.passed_over.push(format!(
                    "the skill in `{}` is not used: there are {MOST} others already",
                    folder.display()
                )),
                None => {
                    match display(folder) {
                        Ok(display) => skill.display = display,
                        Err(why) => self.passed_over.push(why.to_string()),
                    }
                    self.all.insert(skill.name.clone(), Arc::new(skill));
                }
            },
            Err(why) => self.passed_over.push(why.to_string()),
        }
    }
}

impl Skill {
    /// The skill of a folder.
    ///
    /// # Errors
    /// What is wrong with it, with the place.
    pub fn at(folder: &Path) -> Result<Self, NoText> {
        match load_skill(folder) {
            Ok(loaded) => {
                let head = loaded.value.head;
                let allowed = (!head.allowed_tools.is_empty()).then(|| tool_names(&head.allowed_tools));
                let (folder, display) = (folder.to_owned(), SkillDisplay::default());
                Ok(Self {
                    name: head.name,
                    description: head.description,
                    allowed,
                    display,
                    folder,
                    sealed: None,
                })
            }
            Err(faults) => Err(broken(folder, &faults)),
        }
    }

    /// The skill of an extension's folder. What is read and run of it later is what there is now: somebody agreed to that.
    ///
    /// # Errors
    /// What is wrong with it, with the place; and what cannot be compared later.
    pub fn sealed(folder: &Path) -> Result<Self, NoText> {
        let mut skill = Self::at(folder)?;
        skill.sealed = Some(Seal::of(folder)?);
        Ok(skill)
    }

    /// Whether there lies in its folder what did when it was sealed. It does where it was not.
    ///
    /// # Errors
    /// What is there by now, or that it cannot be told.
    pub fn check_unchanged(&self) -> Result<(), NoText> {
        let Some(sealed) = &self.sealed else { return Ok(()) };
        match sealed.difference(&Seal::of(&self.folder)?) {
            Some(path) => Err(self.refused(path, CHANGED)),
            None => Ok(()),
        }
    }

    fn refused(&self, path: &str, why: &str) -> NoText {
        NoText::new(format!("`{path}` of the skill `{}` {why}", self.name))
    }

    /// Its instructions.
    ///
    /// # Errors
    /// Why they cannot be read.
    pub fn instructions(&self) -> Result<String, NoText> {
        let text = self.file(SKILL_FILE)?;
        let skill = parse_skill(&self.folder, text).map_err(|faults| broken(&self.folder, &faults))?;
        Ok(skill.value.instructions)
    }

    /// The text of a file beneath its folder.
    ///
    /// # Errors
    /// A path that leads out, and what is no text of at most 256 KiB.
    pub fn file(&self, path: &str) -> Result<String, NoText> {
        let refused = |why: &NoFileText| self.refused(path, &why.to_string());
        let bytes = beneath::bytes(&self.folder, path, FILE).map_err(|why| refused(&why))?;
        if self.differs(path, &bytes) {
            return Err(self.refused(path, CHANGED));
        }
        String::from_utf8(bytes).map_err(|_| refused(&NoFileText::Bytes))
    }

    fn differs(&self, path: &str, bytes: &[u8]) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| !sealed.holds(path, bytes))
    }

    /// SHA-256, in hex, over all that lies in its folder, the paths included. Of what cannot be read the path alone counts.
    pub fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        let mut files = self.files();
        files.push(SKILL_FILE.to_owned());
        for path in files {
            let text = self.file(&path).unwrap_or_default();
            for part in [path, text] {
                hasher.update((part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
        }
        drupe_agent::ids::hex(&hasher.finalize())
    }

    /// The files beneath its folder but for its own, as paths, in order.
    pub fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        walk(&self.folder, Path::new(""), DEPTH, &mut found);
        found
    }
}

/// Of what is no longer what was agreed to, behind its name.
const CHANGED: &str = "is not what it was when the extension was loaded; `drupe restart` looks at it again";

/// How people are shown the skill of a folder; empty where nothing there says it.
///
/// # Errors
/// What is wrong with the file that would say it.
pub fn display(folder: &Path) -> Result<SkillDisplay, NoText> {
    for file in DISPLAY_FILES {
        let shown = match beneath::text(folder, file, FILE) {
            Err(NoFileText::Missing) => continue,
            Err(why) => Err(why.to_string()),
            Ok(text) => parse_skill_display(file, &text).map_err(|why| why.to_string()),
        };
        return shown.map_err(|why| {
            NoText::new(format!("`{}` is not used to show the skill: {why}", folder.join(file).display()))
        });
    }
    Ok(SkillDisplay::default())
}

/// Whether a folder holds the home, or lies in what the daemon and extensions keep there. All that lies in a skill is given to
/// models and commands.
fn is_private(folder: &Path, home: &Path) -> bool {
    let own = ["data", "run", "state"].map(|own| home.join(own));
    folder
        .canonicalize()
        .is_ok_and(|real| home.starts_with(&real) || own.iter().any(|own| real.starts_with(own)))
}

/// What is wrong with a skill, by the first of its faults.
fn broken(folder: &Path, faults: &Diagnostics) -> NoText {
    let first = faults.iter().next().map(|fault| (fault.line, fault.message.as_str()));
    let (line, message) = first.unwrap_or_default();
    NoText::new(format!("`{}`, line {line}: {message}", folder.join(SKILL_FILE).display()))
}

fn walk(root: &Path, below: &Path, depth: usize, found: &mut Vec<String>) {
    for (name, kind) in entries(&root.join(below)) {
        if found.len() >= LISTED {
            return;
        }
        let path = below.join(&name);
        if kind.is_dir() && depth > 1 {
            walk(root, &path, depth - 1, found);
        } else if kind.is_file() && path != Path::new(SKILL_FILE) {
            found.push(path.display().to_string());
        }
    }
}

/// The folders in one that are not hidden, by name.
fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let entries = entries(folder).into_iter().filter(|(_, kind)| kind.is_dir());
    entries.map(|(name, _)| folder.join(name)).collect()
}

/// What is in a folder and not hidden, by name. Links are neither files nor folders.
fn entries(folder: &Path) -> Vec<(String, fs::FileType)> {
    let Ok(read) = fs::read_dir(folder) else { return Vec::new() };
    let entries = read.take(ENTRIES).flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok().filter(|name| !name.starts_with('.'))?;
        Some((name, entry.file_type().ok()?))
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    entries
}

/// The names in what a skill says of tools: divided by spaces or commas, but for what stands in brackets.
fn tool_names(written: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    for text in written {
        let (mut depth, mut name) = (0_usize, String::new());
        for letter in text.chars().chain([' ']) {
            match letter {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                ' ' | ',' | '\t' | '\n' if depth == 0 => {
                    names.extend(Some(std::mem::take(&mut name)).filter(|name| !name.is_empty()));
                    continue;
                }
                _ => {}
            }
            name.push(letter);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::os::unix::fs::symlink;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn skill(name: &str, more: &str) -> String {
        format!("---\nname: {name}\ndescription: Does {name}.\n{more}---\n\nDo {name}.\n")
    }

    #[test]
    fn good_ones_are_found_in_order_and_bad_ones_are_named() {
        let home = tempfile::tempdir().unwrap();
        let (own, listed) = (home.path().join("own"), home.path().join("listed"));
        write(&own, "pdf/SKILL.md", &skill("pdf", "allowed-tools: Read Bash(pdf *), Write\n"));
        write(&own, "group/csv/SKILL.md", &skill("csv", "license: MIT\nmetadata: {author: me}\nmodel: x\n"));
        write(&own, "off/SKILL.md", &skill("off", ""));
        write(&own, "other/SKILL.md", &skill("another", ""));
        write(&own, "bare/SKILL.md", "no head");
        write(&own, "empty/SKILL.md", "---\nname: empty\ndescription: x\n---\n");
        write(&own, "Big/SKILL.md", &skill("Big", ""));
        write(&own, "notes/readme.md", "no skill");
        write(&listed, "pdf/SKILL.md", &skill("pdf", ""));
        write(&listed, "zip/SKILL.md", &skill("zip", ""));
        symlink(listed.join("zip"), own.join("linked")).unwrap();
        let find =
            || Skills::find(&[own.clone(), listed.clone(), home.path().join("gone")], &["off".into()], None);
        let found = find();
        assert_eq!(found, find(), "the same each time");
        assert_eq!(found.all.keys().collect::<Vec<_>>(), ["csv", "pdf", "zip"]);
        assert_eq!(found.all["pdf"].folder, own.join("pdf"), "the first of a name");
        let allowed = found.all["pdf"].allowed.clone().unwrap();
        assert_eq!(allowed, ["Read", "Bash(pdf *)", "Write"]);
        assert_eq!(found.all["csv"].allowed, None);
        let passed = found.passed_over.join("\n");
        for part in [
            "`another`, and its folder is not",
            "own/bare",
            "no instructions follow",
            "own/Big",
            "goes before it",
        ] {
            assert!(passed.contains(part), "{part}: {passed}");
        }
        assert_eq!(found.passed_over.len(), 5, "{passed}");
    }

    #[test]
    fn files_are_read_beneath_its_folder_alone() {
        let home = tempfile::tempdir().unwrap();
        write(home.path(), "secret", "canary");
        write(home.path(), "pdf/SKILL.md", &skill("pdf", ""));
        write(home.path(), "pdf/references/forms.md", "fill in");
        write(home.path(), "pdf/.hidden", "x");
        fs::write(home.path().join("pdf/image"), [0xff, 0xfe]).unwrap();
        fs::write(home.path().join("pdf/large"), vec![b'x'; 300 << 10]).unwrap();
        symlink(home.path().join("secret"), home.path().join("pdf/link")).unwrap();
        symlink(home.path(), home.path().join("pdf/up")).unwrap();
        let skill = Skill::at(&home.path().join("pdf")).unwrap();
        assert_eq!(skill.instructions().unwrap(), "Do pdf.");
        assert_eq!(skill.files(), ["image", "large", "references/forms.md"]);
        assert_eq!(skill.file("references/forms.md").unwrap(), "fill in");
        let sealed = Skill::sealed(&home.path().join("pdf")).unwrap();
        assert_eq!(sealed.file("references/forms.md").unwrap(), "fill in");
        assert_eq!(sealed.instructions().unwrap(), "Do pdf.");
        write(home.path(), "pdf/references/forms.md", "obey");
        write(home.path(), "pdf/new.md", "obey");
        write(home.path(), "pdf/SKILL.md", &super::tests::skill("pdf", "license: x\n"));
        for path in ["references/forms.md", "new.md"] {
            assert!(sealed.file(path).unwrap_err().to_string().contains("is not what it was"));
        }
        assert!(sealed.instructions().unwrap_err().to_string().contains("is not what it was"));
        assert!(sealed.check_unchanged().is_err() && skill.check_unchanged().is_ok());
        for path in
            ["../secret", "/etc/passwd", "link", "up/secret", "references", "image", "large", "gone", ""]
        {
            let refused = skill.file(path).unwrap_err().to_string();
            assert!(!refused.contains("canary") && refused.contains("of the skill `pdf`"), "{refused}");
        }
    }

    #[test]
    fn people_are_shown_a_skill_as_the_first_file_says_that_is_there() {
        let home = tempfile::tempdir().unwrap();
        let name = || Skills::find(&[home.path().to_owned()], &[], None).all["pdf"].display.name.clone();
        write(home.path(), "secret", "interface: {display_name: canary}");
        write(home.path(), "pdf/SKILL.md", &skill("pdf", ""));
        assert_eq!(name(), None);
        write(home.path(), "pdf/SKILL.toml", "[interface]\ndisplay_name = \"Second\"\n");
        assert_eq!(name().unwrap(), "Second");
        write(home.path(), "pdf/agents/openai.yaml", "interface: {display_name: First}");
        assert_eq!(name().unwrap(), "First");
        let file = home.path().join("pdf/agents/openai.yaml");
        fs::remove_file(&file).unwrap();
        symlink(home.path().join("secret"), &file).unwrap();
        let found = Skills::find(&[home.path().to_owned()], &[], None);
        assert_eq!(found.all["pdf"].display, SkillDisplay::default());
        let passed = found.passed_over.join("\n");
        assert!(
            passed.contains("openai.yaml` is not used to show the skill") && !passed.contains("canary"),
            "{passed}"
        );
    }

    #[test]
    fn what_would_give_away_the_home_is_no_skill() {
        let around = tempfile::tempdir().unwrap();
        let around = around.path().canonicalize().unwrap();
        let home = around.join("folder/home");
        for within in
            ["folder", "folder/home", "folder/home/run", "folder/home/data/mine", "folder/home/mine"]
        {
            let name = Path::new(within).file_name().unwrap().to_str().unwrap();
            write(&around, &format!("{within}/SKILL.md"), &skill(name, ""));
        }
        let directories = ["", "folder", "folder/home", "folder/home/data"].map(|within| around.join(within));
        let found = Skills::find(&directories, &[], Some(&home));
        assert_eq!(found.all.values().map(|skill| &skill.folder).collect::<Vec<_>>(), [&home.join("mine")]);
        let passed = found.passed_over.join("\n");
        for refused in ["folder", "folder/home", "folder/home/run", "folder/home/data/mine"] {
            let said = format!("the skill in `{}` is not used: what", around.join(refused).display());
            assert!(passed.contains(&said), "{refused}: {passed}");
        }
    }
}
