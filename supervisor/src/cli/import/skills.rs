//! One skill of another assistant: a folder that is copied as it is, once it is known to be a skill here.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use drupe_config::{SKILL_FILE, parse_skill};

use super::{
    adopt::short,
    gather::{Beneath, SkillPart},
    plan::{ImportKind, ImportWork, LeftOut, PlannedItem},
    staged,
};

/// What a folder of skills holds at a path, if it is a skill.
pub fn planned(system: &'static str, beneath: &Beneath<'_>, path: &Path, home: &Path) -> Option<PlannedItem> {
    let mut item = PlannedItem::new(ImportKind::Skill, system, path.display().to_string());
    match beneath.look(&path.join(SKILL_FILE)) {
        // A folder of folders, or a file beside them.
        Ok(None) => return None,
        Ok(Some(_)) => {}
        Err(why) => return Some(item.refused(why.0)),
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parts = match beneath.skill(path) {
        Ok(parts) => parts,
        Err(why) => return Some(item.refused(why.0)),
    };
    let file = parts.iter().find(|part| part.path == Path::new(SKILL_FILE));
    let text = file.and_then(|part| String::from_utf8(part.bytes.clone()).ok());
    let Some(text) = text else {
        return Some(item.refused(format!("its `{SKILL_FILE}` is not valid UTF-8")));
    };
    match parse_skill(path, text) {
        Ok(loaded) => {
            let warnings = loaded.warnings.iter();
            item.left_out = warnings.map(|one| LeftOut::new("SKILL.md", one.message.clone())).collect();
        }
        Err(faults) => return Some(item.refused(short(&faults))),
    }
    if parts.iter().any(|part| part.executable) {
        item.notes.push("it has programs, which agents with a shell can start".into());
    }
    item.to = Some(home.join("skills").join(&name));
    item.id = name;
    item.work = ImportWork::Skill(parts);
    Some(item)
}

/// Whether what lies there is the same.
pub fn is_there(to: &Path, parts: &[SkillPart]) -> bool {
    let there = Beneath { root: to.parent().unwrap_or(to) };
    to.file_name().is_some_and(|name| there.skill(Path::new(name)).is_ok_and(|found| found == parts))
}

/// Makes the folder, whole or not at all.
pub fn make(to: &Path, parts: &[SkillPart]) -> io::Result<()> {
    let root = to.parent().unwrap_or(to);
    fs::create_dir_all(root)?;
    let made = staged::beside(root);
    let write = || {
        DirBuilder::new().mode(0o700).create(&made)?;
        for part in parts {
            let path = made.join(&part.path);
            fs::create_dir_all(path.parent().unwrap_or(&made))?;
            staged::create(&path, &part.bytes, part.executable)?;
        }
        staged::place(&made, to)
    };
    write().inspect_err(|_| {
        // The error that is told is the one that matters.
        let _ = fs::remove_dir_all(&made);
    })
}
