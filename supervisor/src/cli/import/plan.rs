//! What an import would do, one thing after another: the same list is shown, and done.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value};

use super::gather::{NotImported, SkillPart};

/// The kind of what is imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImportKind {
    Agent,
    Skill,
    McpServer,
    /// What could not even be looked at.
    Unread,
}

impl ImportKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Skill => "skill",
            Self::McpServer => "MCP server",
            Self::Unread => "",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImportState {
    /// It would be made by `--apply`, and nothing is in its way.
    New,
    Made,
    /// It is there already, as it would be made.
    There,
    /// Something is in the way, or it is nothing that can be used here.
    Refused,
}

/// A part of it that does not come over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    pub key: String,
    pub why: String,
}

impl LeftOut {
    pub fn new(key: &str, why: impl Into<String>) -> Self {
        Self { key: key.to_owned(), why: why.into() }
    }
}

/// What there is to do for it.
#[derive(Debug)]
pub enum ImportWork {
    Nothing,
    Agent(String),
    Skill(Vec<SkillPart>),
    McpServer(Map<String, Value>),
}

#[derive(Debug, Serialize)]
pub struct PlannedItem {
    pub kind: ImportKind,
    pub system: &'static str,
    /// Where it was found, beneath the folder that was named.
    pub from: String,
    /// What it is called here.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<PathBuf>,
    pub state: ImportState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// What is better known before it is used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(skip)]
    pub work: ImportWork,
}

impl PlannedItem {
    pub fn new(kind: ImportKind, system: &'static str, from: impl Into<String>) -> Self {
        Self {
            kind,
            system,
            from: from.into(),
            id: String::new(),
            to: None,
            state: ImportState::New,
            why: None,
            left_out: Vec::new(),
            notes: Vec::new(),
            work: ImportWork::Nothing,
        }
    }

    /// The same as one that does not come over.
    #[must_use]
    pub fn refused(mut self, why: impl Into<String>) -> Self {
        self.refuse(why);
        self
    }

    pub fn refuse(&mut self, why: impl Into<String>) {
        self.state = ImportState::Refused;
        self.why = Some(why.into());
        self.work = ImportWork::Nothing;
    }

    pub fn is_there(&mut self) {
        self.state = ImportState::There;
        self.work = ImportWork::Nothing;
    }

    /// One that cannot be looked at.
    pub fn unread(system: &'static str, from: String, why: NotImported) -> Self {
        Self::new(ImportKind::Unread, system, from).refused(why.0)
    }
}
