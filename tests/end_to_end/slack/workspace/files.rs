//! Files of the stand-in: those that people sent, at a host of their own, and those that the app sends in three steps. Forms as in
//! <https://docs.slack.dev/reference/objects/file-object>, in the pages of the methods, and in events that
//! <https://hackage.haskell.org/package/slack-web> keeps for its tests, read on 2026-11-27.

use std::{collections::BTreeMap, io::Write, net::TcpStream};

use serde_json::{Value, json};

use super::{BOT_TOKEN, State, Trouble, Workspace, done, refused};
use crate::chat::{
    calls::until_so,
    http::{self, Request},
};

/// What whoever may not have a file is given in its place, with status 200.
const SIGN_IN: &str =
    "<!DOCTYPE html><html><head><title>Slack</title></head><body>Sign in to your workspace</body></html>";

#[derive(Default)]
pub(super) struct Files {
    /// Those that people sent, by their ids: what is told of each, and what it holds.
    kept: BTreeMap<String, (Value, Vec<u8>)>,
    /// Those that the app began to send: name, length, and what came.
    begun: BTreeMap<String, (String, usize, Option<Vec<u8>>)>,
    shared: Vec<Shared>,
    /// Whether whoever asks for a file, or sends one, waits.
    holds: bool,
    /// Whether a page comes in place of a file.
    signs_in: bool,
    /// Scopes that the app does not have.
    lacking: Vec<&'static str>,
}

/// A file that the app has shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    pub id: String,
    pub channel: String,
    pub thread: Option<String>,
    pub name: String,
    pub comment: String,
    pub bytes: Vec<u8>,
}

impl Files {
    /// The scope that a method needs, where the app does not have it.
    pub(super) fn lacks(&self, method: &str) -> Option<&'static str> {
        let needed = match method {
            "files.info" => "files:read",
            "files.getUploadURLExternal" | "files.completeUploadExternal" => "files:write",
            _ => return None,
        };
        self.lacking.iter().find(|scope| **scope == needed).copied()
    }
}

impl Workspace {
    /// Somebody sent a file with this id.
    pub fn keep(&self, id: &str, name: &str, kind: &str, content: &[u8]) {
        let at = format!("{}/files-pri/T0HOME-{id}", self.files_at);
        let told = json!({"id": id, "created": 1_670_631_527, "timestamp": 1_670_631_527, "name": name, "title": name, "mimetype": kind,
            "filetype": "x", "pretty_type": "X", "user": "U0ANN", "user_team": "T0HOME", "editable": false, "size": content.len(),
            "mode": "hosted", "is_external": false, "external_type": "", "is_public": false, "public_url_shared": false,
            "display_as_bot": false, "username": "", "url_private": format!("{at}/name"),
            "url_private_download": format!("{at}/download/name"), "shares": {}, "channels": [], "groups": [], "ims": ["D0ANN"]});
        self.state().files.kept.insert(id.to_owned(), (told, content.to_owned()));
    }

    /// Something else is told of such a file.
    pub fn tell_of(&self, id: &str, key: &str, what: Value) {
        self.state().files.kept.get_mut(id).expect("a file").0[key] = what;
    }

    /// An event with files.
    pub fn with_files(&self, mut event: Value, ids: &[&str]) -> Value {
        let state = self.state();
        let told =
            |id: &&str| state.files.kept.get(*id).map_or_else(|| only_named(id), |(told, _)| told.clone());
        event["files"] = ids.iter().map(told).collect();
        if event["type"] == "message" {
            event["subtype"] = json!("file_share");
            event.as_object_mut().expect("a map").remove("team");
        }
        (event["upload"], event["display_as_bot"]) = (json!(true), json!(false));
        event
    }

    /// The same as it is told in a channel that workspaces share.
    pub fn with_ids(&self, event: Value, ids: &[&str]) -> Value {
        let mut event = self.with_files(event, ids);
        event["files"] = ids.iter().map(|id| only_named(id)).collect();
        event
    }

    /// The same as newer programs of the service tell a mention: its text alone names its file.
    pub fn with_named(&self, mut event: Value, id: &str) -> Value {
        let elements = json!([{"type": "text", "text": "look "}, {"type": "file", "file_id": id, "url": format!("https://home.slack.com/files/U0ANN/{id}")}]);
        event["blocks"] = json!([{"type": "rich_text", "block_id": "b1", "elements": [{"type": "rich_text_section", "elements": elements}]}]);
        event
    }

    /// Has whoever asks for a file or sends one wait, or lets it come.
    pub fn hold_files(&self, hold: bool) {
        self.state().files.holds = hold;
    }

    /// From now on a page comes in place of a file, or no longer.
    pub fn sign_in(&self, signs_in: bool) {
        self.state().files.signs_in = signs_in;
    }

    /// The app has no such scope.
    pub fn take_scope(&self, scope: &'static str) {
        self.state().files.lacking.push(scope);
    }

    /// Files that the app has shared.
    pub fn shared(&self) -> Vec<Shared> {
        self.state().files.shared.clone()
    }

    pub(super) fn perform_on_files(&self, state: &mut State, method: &str, params: &Value) -> Value {
        let field = |name: &str| params[name].as_str().unwrap_or_default().to_owned();
        state.next += 1;
        let number = state.next;
        let files = &mut state.files;
        match method {
            "files.info" => {
                let id = field("file");
                let told = files.kept.get(&id).map(|(told, _)| told.clone());
                let stands = |shared: &&Shared| shared.id == id;
                let own = files.shared.iter().find(stands).map(|shared| {
                    let place = json!({&shared.channel: [{"ts": "1.2", "thread_ts": shared.thread}]});
                    json!({"id": id, "name": shared.name, "shares": {"private": place}, "channels": [], "groups": [], "ims": []})
                });
                let begun =
                    files.begun.get(&id).map(|(name, ..)| json!({"id": id, "name": name, "shares": {}}));
                told.or(own)
                    .or(begun)
                    .map_or_else(|| refused("file_not_found"), |file| done(json!({"file": file})))
            }
            "files.getUploadURLExternal" => match field("length").parse() {
                Ok(0) | Err(_) => refused("missing_argument"),
                Ok(length) => {
                    let id = format!("F0OUT{number}");
                    files.begun.insert(id.clone(), (field("filename"), length, None));
                    done(json!({"upload_url": format!("{}/upload/v1/{id}", self.files_at), "file_id": id}))
                }
            },
            "files.completeUploadExternal" => {
                let (id, channel) =
                    (params["files"][0]["id"].as_str().unwrap_or_default(), field("channel_id"));
                if state.archived.contains(&channel) {
                    return refused("is_archived");
                }
                let Some((name, _, Some(bytes))) = files.begun.get(id).cloned() else {
                    return refused("file_not_found");
                };
                let (thread, comment) =
                    (params["thread_ts"].as_str().map(str::to_owned), field("initial_comment"));
                assert!(!comment.contains(['<', '>']), "it could call somebody: {comment}");
                files.shared.push(Shared { id: id.to_owned(), channel, thread, name, comment, bytes });
                done(json!({"files": [{"id": id, "title": params["files"][0]["title"]}]}))
            }
            _ => refused("unknown_method"),
        }
    }

    /// What is asked of the host of files; whether the connection goes on.
    pub(super) fn serve_file(&self, request: &Request, stream: &mut TcpStream) -> std::io::Result<bool> {
        let (method, id) = match request.path.strip_prefix("/upload/v1/") {
            Some(id) => ("upload", id.to_owned()),
            None => {
                let place = request.path.split('/').nth(2).unwrap_or_default();
                ("file", place.strip_prefix("T0HOME-").unwrap_or_default().to_owned())
            }
        };
        let token = request.header("authorization").to_owned();
        let trouble = self.state().calls.note(method, &json!({"id": id, "token": token}), false, false);
        until_so(|| !self.state().files.holds);
        match method {
            "upload" => self.take_upload(request, stream, &id, trouble),
            _ => self.give_file(stream, &id, &token, trouble),
        }
    }

    fn take_upload(
        &self,
        request: &Request,
        stream: &mut TcpStream,
        id: &str,
        trouble: Option<Trouble>,
    ) -> std::io::Result<bool> {
        assert_eq!(request.header("authorization"), "", "the address is all that it needs");
        let status = match trouble {
            None => {
                let parts = http::form(request.header("content-type"), &request.body);
                let bytes: Vec<u8> =
                    serde_json::from_value(parts["filename"]["bytes"].clone()).expect("bytes");
                let mut state = self.state();
                let (_, length, content) = state.files.begun.get_mut(id).expect("it was begun");
                match bytes.len() == *length {
                    true => *content = Some(bytes),
                    false => panic!("{} bytes came, and {length} were to", bytes.len()),
                }
                200
            }
            Some(Trouble::Cut) => return Ok(false),
            Some(Trouble::Refused(status, _)) => status,
            Some(_) => 502,
        };
        let said = format!("OK - {id}");
        write!(
            stream,
            "HTTP/1.1 {status} Said\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{said}",
            said.len()
        )?;
        Ok(true)
    }

    fn give_file(
        &self,
        stream: &mut TcpStream,
        id: &str,
        token: &str,
        trouble: Option<Trouble>,
    ) -> std::io::Result<bool> {
        let state = self.state();
        let may = token == format!("Bearer {BOT_TOKEN}")
            && state.files.lacks("files.info").is_none()
            && !state.files.signs_in;
        let found = state.files.kept.get(id).cloned();
        drop(state);
        let (kind, content) = match (trouble, found) {
            (Some(Trouble::Refused(code, text)), _) => {
                write!(stream, "HTTP/1.1 {code} {text}\r\ncontent-length: 0\r\n\r\n")?;
                return Ok(true);
            }
            (_, Some((told, content))) if may => {
                (told["mimetype"].as_str().unwrap_or_default().to_owned(), content)
            }
            _ => ("text/html; charset=utf-8".to_owned(), SIGN_IN.as_bytes().to_owned()),
        };
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            content.len()
        )?;
        let half = trouble.is_some();
        stream.write_all(&content[..if half { content.len() / 2 } else { content.len() }])?;
        Ok(!half)
    }
}

fn only_named(id: &str) -> Value {
    json!({"id": id, "mode": "file_access", "file_access": "check_file_info", "created": 0, "timestamp": 0, "user": ""})
}
