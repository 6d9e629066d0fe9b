//! The tokens, in memory and in a file that only the operator can read and that is replaced as a whole. Nothing here can be
//! printed.

use std::{
    collections::BTreeMap,
    fs,
    io::{ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::prelude::*;
use serde::Serialize;

use crate::config::ServerSettings;

/// How we say who we are where tokens are made.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientProof {
    /// By name alone: there is no secret.
    None,
    /// Name and secret in a header.
    Basic,
    /// Name and secret among the parameters.
    Post,
}

/// Who we are to an issuer.
#[derive(Clone, Serialize, Deserialize)]
pub struct OauthClient {
    pub id: String,
    pub secret: Option<String>,
    pub proof: ClientProof,
    /// The operator named it; without that it registered itself.
    pub configured: bool,
}

/// What a server was signed in to with.
#[derive(Clone, Serialize, Deserialize)]
pub struct SignedIn {
    /// The address of the server: with another one these are not used.
    pub url: String,
    /// For what the tokens were made.
    pub resource: String,
    pub issuer: String,
    pub token_endpoint: String,
    pub revocation_endpoint: Option<String>,
    pub client: OauthClient,
    pub access_token: String,
    pub refresh_token: Option<String>,
    /// Milliseconds since 1970; unknown where nobody said so.
    pub received_at: i64,
    pub expires_at: Option<i64>,
    pub scopes: Vec<String>,
}

impl SignedIn {
    /// Whether these are of that server, as the operator names it now.
    pub fn fits(&self, server: &ServerSettings) -> bool {
        let client = match &server.oauth.client_id {
            Some(id) => self.client.configured && self.client.id == *id,
            None => !self.client.configured,
        };
        client
            && server.url.as_ref() == Some(&self.url)
            && server.oauth.issuer.as_ref().is_none_or(|issuer| *issuer == self.issuer)
    }

    /// The texts that nobody may read.
    pub fn secrets(&self) -> impl Iterator<Item = &String> {
        [Some(&self.access_token), self.refresh_token.as_ref(), self.client.secret.as_ref()]
            .into_iter()
            .flatten()
    }
}

pub struct TokenFile {
    file: PathBuf,
    all: Mutex<BTreeMap<String, SignedIn>>,
    /// One writer at a time: an older state must not replace a newer one.
    writing: Mutex<()>,
}

impl TokenFile {
    pub fn open(folder: &Path) -> Result<Self, Fault> {
        let file = folder.join("tokens.json");
        let all = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                // Without what stands there.
                let place = format!("line {}, column {}", error.line(), error.column());
                Fault::invalid(format!("`{}` cannot be read, from {place} on", file.display()))
                    .help("it holds what servers were signed in to with; move it away and sign in again")
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(Self { file, all: Mutex::new(all), writing: Mutex::new(()) })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, SignedIn>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, server: &str) -> Option<SignedIn> {
        self.lock().get(server).cloned()
    }

    /// Keeps it in place of what there was, and gives that. It blocks until that is written down.
    pub fn set(&self, server: &str, signed: Option<SignedIn>) -> Result<Option<SignedIn>, Fault> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match signed {
            Some(signed) => self.lock().insert(server.to_owned(), signed),
            None => self.lock().remove(server),
        };
        self.write()?;
        Ok(before)
    }

    fn write(&self) -> Result<(), Fault> {
        let text = serde_json::to_vec(&*self.lock())?;
        let new = self.file.with_extension("new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &self.file)?;
        Ok(())
    }
}
