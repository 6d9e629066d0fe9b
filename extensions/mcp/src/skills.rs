//! Skills of a server, made fit to be offered and read: what it lists of them, and what a file of one must be. Pure.
//!
//! The rules are those of the extension `io.modelcontextprotocol/skills`, against the revision 2026-07-28:
//! <https://github.com/modelcontextprotocol/ext-skills/blob/main/specification/stable/skills.mdx> (read on 2026-11-27). What can
//! be told from an entry alone is checked before any file is asked for, and a file is used only where it has the size and the
//! digest of its entry. That says that the two belong together, and nothing of who wrote them.

pub mod head;

use std::{collections::BTreeMap, fmt::Write};

use base64::{Engine, engine::general_purpose::STANDARD};
use drupe_extension_api::{Fault, FaultCode};
use percent_encoding::percent_decode_str;
use rmcp::model::{ReadResourceResult, ResourceContents, SKILL_MD, Skill, SkillResource, SkillResources};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    definition::{NotOffered, shown},
    names,
    pins::KnownSkills,
};

/// Skills of one server, and bytes of what is kept of all of them.
pub const SKILLS: usize = 256;
pub const ALL: usize = 512 * 1024;

/// The most files of a skill and bytes of all of them: what every host must take, and none need take more.
const FILES: usize = 512;
const WHOLE: u64 = 16 << 20;

/// Bytes of one file that is given, as of the operator's own skills.
pub const FILE: u64 = 256 << 10;

/// Bytes of an address. What a model repeats to name a skill or a file should be short.
const ADDRESS: usize = 1024;

/// Characters of a description, by the open format.
const DESCRIPTION: usize = 1024;

/// Bytes of the keys of a skill.
const HEAD: usize = 64 * 1024;

/// Bytes of the lines of all skills in the text of the tool; beyond that they have their names alone.
const LINES: usize = 7 * 1024;

/// Files that are listed with the instructions.
const LISTED: usize = 200;

/// What is kept of a skill, and what an operator agrees to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SkillText {
    pub name: String,
    pub description: String,
    /// Stands for all of its entry: its keys, and its files with their digests.
    pub digest: String,
}

impl SkillText {
    /// Bytes that it adds to what is kept.
    pub fn size(&self) -> usize {
        self.name.len() + self.description.len() + self.digest.len()
    }
}

/// A skill whose entry is sound.
#[derive(Debug, Clone)]
pub struct SkillEntry {
    pub uri: String,
    pub text: SkillText,
    /// The keys of its `SKILL.md`, as the server says.
    head: Value,
    files: Vec<SkillResource>,
}

impl SkillEntry {
    /// Looks at an entry; why it cannot be loaded is the end of a sentence.
    pub fn new(skill: Skill) -> Result<Self, NotOffered> {
        let no = |why: String| Err(NotOffered(why));
        if !is_address(&skill.uri) {
            return no("has an address that cannot be used".to_owned());
        }
        if let Err(error) = skill.validate() {
            return no(format!("is no sound entry: {}", excerpt(&error.to_string())));
        }
        let head = serde_json::to_value(&skill.frontmatter).unwrap_or_default();
        let SkillResources::Files(mut files) = skill.resources else {
            return no(
                "has files that are made anew each time, so that nothing of them could be checked".to_owned()
            );
        };
        if files.len() > FILES {
            return no(format!("has {} files; a skill may have {FILES}", files.len()));
        }
        let whole = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.size));
        if whole > WHOLE {
            return no(format!("has {whole} bytes; a skill may have {WHOLE}"));
        }
        if files.iter().any(|file| !is_shown(&file.uri)) {
            return no("has a file with an address that cannot be used".to_owned());
        }
        let own = files.iter().find(|file| file.uri == skill.uri).map(|file| file.size).unwrap_or_default();
        if own > FILE {
            return no(format!("has instructions of {own} bytes; a model is given at most {FILE}"));
        }
        let bytes = head.to_string().len();
        if bytes > HEAD {
            return no(format!("has keys of {bytes} bytes; they may have {HEAD}"));
        }
        let description = shown(&skill.frontmatter.description);
        let length = description.chars().count();
        if description.trim().is_empty() || length > DESCRIPTION {
            return no(format!(
                "has a description of {length} characters; the format asks for 1 to {DESCRIPTION}"
            ));
        }
        files.sort_by(|one, other| one.uri.cmp(&other.uri));
        let listed: Vec<_> = files.iter().map(|file| json!([file.uri, file.digest, file.size])).collect();
        let digest = names::hash(json!([skill.uri, head, listed]).to_string().as_bytes());
        let text = SkillText { name: skill.frontmatter.name, description, digest };
        Ok(Self { uri: skill.uri, text, head, files })
    }

    /// The file of a path beneath the skill, where its entry lists it; without a path, its own, which holds the instructions.
    pub fn file(&self, path: Option<&str>) -> Result<&SkillResource, Fault> {
        let path = path.map_or(SKILL_MD, |path| path.strip_prefix("./").unwrap_or(path));
        let is_it = |file: &&SkillResource| {
            let told = self.path(file);
            told == path || percent_decode_str(told).decode_utf8().is_ok_and(|told| told == path)
        };
        let found = self.files.iter().find(is_it);
        let found = found.ok_or_else(|| {
            Fault::not_found(format!("the skill `{}` has no file `{}`", self.text.name, excerpt(path)))
                .help("without `file`, the files that it has are listed with its instructions")
        })?;
        if found.size > FILE {
            let name = &self.text.name;
            let message =
                format!("`{path}` of the skill `{name}` has {} bytes; at most {FILE} are read", found.size);
            return Err(Fault::invalid(message));
        }
        Ok(found)
    }

    /// The path of a file beneath the skill, as its address says it.
    fn path<'a>(&self, file: &'a SkillResource) -> &'a str {
        let root = self.uri.strip_suffix(SKILL_MD).unwrap_or(&self.uri);
        file.uri.strip_prefix(root).unwrap_or(&file.uri)
    }

    /// The instructions, out of the bytes of its `SKILL.md`.
    pub fn instructions(&self, bytes: Vec<u8>) -> Result<String, Fault> {
        let text = text_of(bytes, SKILL_MD, &self.text.name)?;
        let (told, body) = head::split(&text)
            .and_then(|(head, body)| Ok((head::read(head)?, body)))
            .map_err(|NotOffered(why)| self.unlike(&why))?;
        match head::difference(&self.head, &told) {
            Some(key) => {
                Err(self.unlike(&format!("its key `{}` is another one than the server lists", excerpt(&key))))
            }
            None => Ok(body.trim().to_owned()),
        }
    }

    fn unlike(&self, why: &str) -> Fault {
        let message = format!("the skill `{}` is not loaded: in its SKILL.md, {why}", self.text.name);
        Fault::new(FaultCode::Other, message)
    }

    /// The lines that tell which files it has beside its own.
    pub fn listed(&self) -> String {
        let others: Vec<&SkillResource> = self.files.iter().filter(|file| file.uri != self.uri).collect();
        if others.is_empty() {
            return String::new();
        }
        let mut text = "\n\nIts files, which `file` gives:\n".to_owned();
        for file in others.iter().take(LISTED) {
            let _ = writeln!(text, "- {} ({} bytes)", self.path(file), file.size);
        }
        if others.len() > LISTED {
            let _ = writeln!(text, "- and {} more", others.len() - LISTED);
        }
        text.trim_end().to_owned()
    }
}

/// Whether an address is one by which a skill can be called: people write it behind a command that they are shown, where no shell
/// may find anything in it.
pub fn is_address(uri: &str) -> bool {
    is_shown(uri) && uri.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":/%-._~@+=,".contains(&byte))
}

/// Whether an address of a file can be shown, repeated and asked for.
fn is_shown(uri: &str) -> bool {
    uri.len() <= ADDRESS && uri.contains("://") && !uri.contains(char::is_whitespace) && shown(uri) == uri
}

/// A word of a stranger that goes into a sentence of ours.
fn excerpt(text: &str) -> String {
    one_line(&shown(text), 200)
}

/// A text in one line of so many bytes.
fn one_line(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = line.floor_char_boundary(most);
    if end < line.len() { format!("{}…", &line[..end]) } else { line }
}

/// The bytes of a file that was read, if they are what its entry says.
pub fn verified(result: ReadResourceResult, file: &SkillResource) -> Result<Vec<u8>, Fault> {
    let lies = |why: &str| {
        let uri = excerpt(&file.uri);
        Err(Fault::new(FaultCode::Other, format!("what the server gives as `{uri}` is not used: {why}")))
    };
    let mut contents = result.contents;
    if contents.len() > 1 {
        contents.retain(|one| address(one) == Some(file.uri.as_str()));
    }
    let (Some(one), true) = (contents.pop(), contents.is_empty()) else {
        return lies("it is not one file");
    };
    let bytes = match one {
        ResourceContents::TextResourceContents { text, .. } => text.into_bytes(),
        ResourceContents::BlobResourceContents { blob, .. } => match STANDARD.decode(blob) {
            Ok(bytes) => bytes,
            Err(_) => return lies("it is no Base64"),
        },
        _ => return lies("it is neither text nor bytes"),
    };
    match file.verify(&bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => lies(&excerpt(&error.to_string())),
    }
}

fn address(contents: &ResourceContents) -> Option<&str> {
    match contents {
        ResourceContents::TextResourceContents { uri, .. }
        | ResourceContents::BlobResourceContents { uri, .. } => Some(uri),
        _ => None,
    }
}

/// The text of a file of a skill.
pub fn text_of(bytes: Vec<u8>, path: &str, skill: &str) -> Result<String, Fault> {
    String::from_utf8(bytes)
        .map_err(|_| Fault::invalid(format!("`{path}` of the skill `{skill}` holds bytes that are no text")))
}

/// What a skill is called: its name, or its address where another one of the server has the same name.
fn label<'a>(uri: &'a str, text: &'a SkillText, all: &BTreeMap<String, SkillText>) -> &'a str {
    match all.values().filter(|other| other.name == text.name).count() {
        1 => &text.name,
        _ => uri,
    }
}

/// The address of the skill that is meant; none where nothing is known by that name.
pub fn resolve(known: &KnownSkills, asked: &str) -> Result<Option<String>, Fault> {
    if known.seen.contains_key(asked) {
        return Ok(Some(asked.to_owned()));
    }
    let named: Vec<&String> =
        known.seen.iter().filter(|(_, text)| text.name == asked).map(|(uri, _)| uri).collect();
    match named.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some((*one).clone())),
        several => {
            let several: Vec<&str> = several.iter().take(8).map(|uri| uri.as_str()).collect();
            Err(Fault::invalid(format!("several skills are named `{}`", excerpt(asked)))
                .help(format!("name one by its address: {}", several.join(", "))))
        }
    }
}

/// What the tool says of itself, with the skills that it can load.
pub fn described(server: &str, known: &KnownSkills) -> String {
    let mut text = format!(
        "Gives the instructions of a skill of the MCP server `{server}`, or with `file` a file that they name. Whoever runs that \
         server wrote them: they are no words of the user. Without `name` it asks the server for all of its skills."
    );
    let offered: BTreeMap<_, _> = known.offered().collect();
    if !offered.is_empty() {
        text += " Where one fits the task, load it before you begin. There are:\n";
        text += &lines(&offered, &known.seen, LINES);
    }
    text
}

/// The answer to who asks for all skills.
pub fn listed(server: &str, known: &KnownSkills, most: usize) -> String {
    let offered: BTreeMap<_, _> = known.offered().collect();
    let mut text = match offered.len() {
        0 => format!("The MCP server `{server}` lists no skill that can be loaded."),
        _ => format!(
            "The skills of the MCP server `{server}`, in its words:\n{}",
            lines(&offered, &known.seen, most)
        ),
    };
    match known.waiting().count() {
        0 => {}
        1 => text += "\nOne is new or changed and waits for the operator.",
        waiting => {
            let _ = write!(text, "\n{waiting} are new or changed and wait for the operator.");
        }
    }
    text
}

/// A line for each skill; where that is too long, their names, and where those are, as many as there is room for.
fn lines(offered: &BTreeMap<&String, &SkillText>, all: &BTreeMap<String, SkillText>, most: usize) -> String {
    let whole = offered.iter().map(|(uri, text)| {
        format!("- {}: {}", label(uri, text, all), one_line(&text.description, 2 * DESCRIPTION))
    });
    let whole = whole.collect::<Vec<_>>().join("\n");
    if whole.len() <= most {
        return whole;
    }
    let (mut text, mut left) = (String::new(), offered.len());
    for (uri, one) in offered {
        let line = format!("- {}\n", label(uri, one, all));
        if text.len() + line.len() > most {
            break;
        }
        text += &line;
        left -= 1;
    }
    if left > 0 {
        let _ = write!(text, "- and {left} more");
    }
    text.trim_end().to_owned()
}

/// What a server lists, looked at.
#[derive(Debug, Default)]
pub struct SkillList {
    pub skills: BTreeMap<String, SkillText>,
    /// Entries that cannot be loaded, by their addresses, and why.
    pub unfit: BTreeMap<String, String>,
    bytes: usize,
}

impl SkillList {
    /// Takes one more, where there is room for it. `repeats` says that it holds what nobody may read.
    pub fn take(&mut self, skill: Skill, repeats: bool) {
        let uri: String = excerpt(&skill.uri);
        let read = match repeats {
            true => Err(NotOffered("repeats the token that the server is asked with".to_owned())),
            false => SkillEntry::new(skill),
        };
        let read = read.and_then(|entry| {
            let size = entry.uri.len() + entry.text.size();
            let why = if self.skills.contains_key(&entry.uri) {
                "is listed twice"
            } else if self.skills.len() >= SKILLS || self.bytes + size > ALL {
                "is beyond what one server may offer"
            } else {
                self.bytes += size;
                return Ok(entry);
            };
            Err(NotOffered(why.to_owned()))
        });
        match read {
            Ok(entry) => drop(self.skills.insert(entry.uri, entry.text)),
            Err(NotOffered(why)) if self.unfit.len() < SKILLS => drop(self.unfit.insert(uri, why)),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
