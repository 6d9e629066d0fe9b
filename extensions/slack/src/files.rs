//! Files: which request gives one that somebody sent, and the three steps by which one goes out.
//!
//! Forms as in <https://docs.slack.dev/reference/objects/file-object>, <https://docs.slack.dev/messaging/working-with-files> and the pages of the methods
//! `files.info`, `files.getUploadURLExternal` and `files.completeUploadExternal`, read on 2026-11-27 in copies of their texts. `files.upload`, which had
//! one step, was switched off on 2025-11-12. Of a file in a channel that workspaces share an event has the id alone ("Slack Connect files" of
//! <https://docs.slack.dev/reference/events/message/file_share>), so that each is asked for by its id; that fails by name where the scope is missing.

use drupe_channel::SendFailure;
use drupe_extension_api::prelude::*;
use serde_json::{Value, json};

use crate::{
    api::told,
    event::ChannelPlace,
    service::{BEFORE_LOOK, LOOKED_FOR, LOOKS, SlackApp},
    text::escaped,
};

/// Time for a file to come, in milliseconds.
const FETCH_MS: u64 = 60_000;
/// The largest file that the daemon takes in, in bytes.
const LARGEST_FETCHED: u64 = 20_000_000;
/// The type of the page on which people sign in. The service answers with it, and with status 200, whoever may not have a file
/// (<https://github.com/chenhg5/cc-connect/pull/204>, <https://github.com/slackapi/deno-slack-sdk/issues/285>, read on 2026-11-27).
const PAGE: &str = "text/html";

/// A file that somebody sent, as an event names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SlackFile {
    pub id: String,
    /// Nothing where the event does not say it.
    pub name: String,
    /// The message with which it must have been shared. It is there for a file that only the text of a message names: whoever writes can name any.
    #[serde(skip)]
    pub shared_with: Option<SharedMessage>,
}

/// A message with which files were shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedMessage {
    pub channel: String,
    pub ts: String,
}

/// Files that the text of a message names. A mention may come with them there alone, before the same message comes with its `files`
/// (<https://github.com/NousResearch/hermes-agent/pull/77141>, read on 2026-11-28).
pub fn named_files(blocks: &Value, message: &SharedMessage) -> Vec<SlackFile> {
    let blocks = blocks.as_array().into_iter().flatten().filter(|block| block["type"] == "rich_text");
    let mut parts: Vec<&Value> = blocks.collect();
    let mut found = Vec::new();
    // In the order of the text: what a part holds stands before what comes after it.
    parts.reverse();
    while let Some(part) = parts.pop() {
        parts.extend(part["elements"].as_array().into_iter().flatten().rev());
        let id = part["file_id"].as_str().filter(|_| part["type"] == "file");
        found.extend(id.map(|id| SlackFile {
            id: id.to_owned(),
            name: String::new(),
            shared_with: Some(message.clone()),
        }));
    }
    found
}

impl SlackApp {
    /// How a file is got that somebody sent.
    ///
    /// # Errors
    /// [`SendFailure::Refused`] where it would be the same later, with why.
    pub async fn file(&self, sent: &SlackFile) -> Result<InboundFile, SendFailure> {
        let told = self.api.read("files.info", &[("file", &sent.id)]).await?;
        // The service may know it a moment later.
        if sent.shared_with.as_ref().is_some_and(|message| !was_shared(&told["file"], message)) {
            let why = "Slack does not say that it was sent with this message";
            return Err(SendFailure::NotSent(Fault::new(FaultCode::Unavailable, why)));
        }
        let (name, fetch) = fetched_by(&told["file"], sent, &self.files)?;
        Ok(InboundFile { name, source: FileSource::Fetch(fetch) })
    }

    /// Shares a file at a place, with the words that are to stand beside it. Up to the last step nobody sees anything of it, so that it may be begun
    /// anew, whatever became of those before.
    pub async fn share(
        &self,
        place: &ChannelPlace,
        message: &OutboundMessage,
        file: &OutboundFile,
    ) -> Result<String, SendFailure> {
        let length = file.bytes.to_string();
        let asked = [("filename", file.name.as_str()), ("length", &length)];
        let begun = self.api.ask("files.getUploadURLExternal", &asked).await.map_err(unseen)?;
        let odd = || SendFailure::refused("", "the service named no address for the file");
        let address = begun["upload_url"].as_str().ok_or_else(odd)?;
        let id = begun["file_id"].as_str().ok_or_else(odd)?;
        self.api.upload(address, &message.delivery).await?;
        let mut params = json!({"files": [{"id": id, "title": file.name}], "channel_id": place.channel});
        if let Some(thread) = &place.thread {
            params["thread_ts"] = thread.as_str().into();
        }
        if !message.text.trim().is_empty() {
            params["initial_comment"] = escaped(&message.text).into();
        }
        match self.api.call("files.completeUploadExternal", &params).await {
            Err(SendFailure::Doubtful(fault)) => {
                let found = tokio::time::timeout(LOOKED_FOR, self.is_shared(id, &place.channel)).await;
                found.ok().filter(|found| *found).ok_or(SendFailure::Doubtful(fault))?;
            }
            other => drop(other?),
        }
        Ok(format!("{}/{id}", place.channel))
    }

    /// Looks whether a file is shared in a channel. That it is not says nothing: it may be on its way.
    async fn is_shared(&self, id: &str, channel: &str) -> bool {
        for _ in 0..LOOKS {
            if self.host.sleep(BEFORE_LOOK).await.is_err() {
                return false;
            }
            match self.api.read("files.info", &[("file", id)]).await {
                Ok(told) if stands_in(&told["file"], channel) => return true,
                Ok(_) => {}
                Err(failure) => {
                    let why = told(failure);
                    self.host.warn(format!("whether a file arrived could not be looked up: {why}"));
                }
            }
        }
        false
    }
}

/// What failed when nobody could see anything: nothing of it was sent.
fn unseen(failure: SendFailure) -> SendFailure {
    match failure {
        SendFailure::Doubtful(fault) => SendFailure::NotSent(fault),
        other => other,
    }
}

/// The request that gives a file, of which the service tells this.
fn fetched_by(told: &Value, sent: &SlackFile, files: &str) -> Result<(String, OutwardRequest), SendFailure> {
    let not_there = |why: &str| Err(SendFailure::refused("", why));
    match told["mode"].as_str() {
        _ if told["is_external"] == true => {
            return not_there("it lies elsewhere, and Slack does not have it");
        }
        Some("tombstone") => return not_there("it was deleted"),
        Some("hidden_by_limit") => return not_there("Slack hides it, since the workspace is over its limit"),
        _ => {}
    }
    if let Some(size) = told["size"].as_u64().filter(|size| *size > LARGEST_FETCHED) {
        let (has, most) = (size.div_ceil(1_000_000), LARGEST_FETCHED / 1_000_000);
        return not_there(&format!("it has {has} MB, and {most} MB at most are taken"));
    }
    let addresses = [&told["url_private_download"], &told["url_private"]];
    let address = addresses.iter().find_map(|address| address.as_str()).unwrap_or_default();
    // The token goes nowhere else.
    if !address.strip_prefix(files).is_some_and(|path| path.starts_with('/')) {
        return not_there(&format!("Slack names no address for it at `{files}`"));
    }
    let mut fetch = OutwardRequest::new("GET", address).header("authorization", "Bearer ${SLACK_BOT_TOKEN}");
    if told["mimetype"] != PAGE {
        fetch = fetch.header("accept", format!("*/*, {PAGE};q=0"));
    }
    fetch.timeout_ms = FETCH_MS;
    let named = [told["name"].as_str(), Some(&sent.name), told["title"].as_str()];
    let name = named.into_iter().flatten().find(|name| !name.trim().is_empty()).unwrap_or("file");
    Ok((name.to_owned(), fetch))
}

/// Whether a file, of which the service tells this, stands in a channel.
fn stands_in(told: &Value, channel: &str) -> bool {
    let listed = ["channels", "groups", "ims"].iter().filter_map(|kind| told[*kind].as_array()).flatten();
    listed.into_iter().any(|known| known == channel)
        || ["public", "private"].iter().any(|kind| told["shares"][*kind][channel].is_array())
}

/// Whether a file, of which the service tells this, was shared with a message.
fn was_shared(told: &Value, message: &SharedMessage) -> bool {
    let shares =
        ["public", "private"].iter().filter_map(|kind| told["shares"][*kind][&message.channel].as_array());
    shares.flatten().any(|share| share["ts"] == message.ts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: &str = "https://files.slack.com";

    fn known() -> Value {
        json!({"id": "F1", "name": "a.png", "title": "A", "mimetype": "image/png", "size": 12, "mode": "hosted",
            "is_external": false, "url_private": "https://files.slack.com/files-pri/T1-F1/a.png",
            "url_private_download": "https://files.slack.com/files-pri/T1-F1/download/a.png"})
    }

    fn fetched(more: Value) -> Result<(String, OutwardRequest), SendFailure> {
        let mut told = known();
        told.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        fetched_by(&told, &SlackFile { id: "F1".into(), name: "sent.png".into(), shared_with: None }, FILES)
    }

    #[test]
    fn a_file_is_got_with_the_token_from_the_service_alone() {
        let (name, found) = fetched(json!({})).expect("it is there");
        assert_eq!(
            (name.as_str(), found.url.as_str()),
            ("a.png", known()["url_private_download"].as_str().expect("an address"))
        );
        let header = |request: &OutwardRequest, name: &str| {
            request.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        };
        assert_eq!(header(&found, "authorization").as_deref(), Some("Bearer ${SLACK_BOT_TOKEN}"));
        assert_eq!(header(&found, "accept").as_deref(), Some("*/*, text/html;q=0"));
        // A page that somebody sent is one.
        let (_, page) = fetched(json!({"mimetype": "text/html"})).expect("it is there");
        assert_eq!(header(&page, "accept"), None);
        let (name, other) = fetched(json!({"url_private_download": null, "name": " "})).expect("it is there");
        assert_eq!(
            (name.as_str(), other.url.as_str()),
            ("sent.png", known()["url_private"].as_str().expect("an address"))
        );
        for (more, why) in [
            (json!({"is_external": true, "mode": "external"}), "lies elsewhere"),
            (json!({"mode": "tombstone"}), "was deleted"),
            (json!({"mode": "hidden_by_limit"}), "hides it"),
            (json!({"size": 20_000_001}), "it has 21 MB, and 20 MB"),
            (json!({"url_private_download": "https://files.slack.com.evil.example/x"}), "names no address"),
            (
                json!({"url_private_download": "https://evil.example/https://files.slack.com/"}),
                "names no address",
            ),
            (json!({"url_private_download": null, "url_private": null}), "names no address"),
        ] {
            match fetched(more.clone()) {
                Err(SendFailure::Refused { said, .. }) => assert!(said.contains(why), "{more}: {said}"),
                other => panic!("{more}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_file_stands_where_the_service_says_that_it_is_shared() {
        for told in [
            json!({"channels": ["C1"]}),
            json!({"groups": ["C0", "C1"]}),
            json!({"ims": ["C1"]}),
            json!({"shares": {"private": {"C1": [{"ts": "1.2"}]}}}),
        ] {
            assert!(stands_in(&told, "C1") && !stands_in(&told, "C2"), "{told}");
        }
        for odd in [json!({}), json!({"channels": "C1", "shares": []}), Value::Null] {
            assert!(!stands_in(&odd, "C1"), "{odd}");
        }
    }

    #[test]
    fn files_that_a_text_names_are_found_in_its_order_and_nothing_else_is() {
        let section = |elements: Value| json!({"type": "rich_text_section", "elements": elements});
        let blocks = json!([
            {"type": "rich_text", "elements": [
                section(json!([{"type": "user", "user_id": "UBOT"}, {"type": "file", "file_id": "F1", "url": "https://x.slack.com/F1"}])),
                {"type": "rich_text_list", "elements": [section(json!([{"type": "file", "file_id": "F2"}, {"type": "text", "text": "F4"}]))]},
                section(json!([{"type": "canvas", "file_id": "F5"}, {"type": "file", "file_id": 7}, {"type": "file", "file_id": "F3"}])),
            ]},
            {"type": "section", "elements": [{"type": "file", "file_id": "F6"}]},
        ]);
        let message = SharedMessage { channel: "C1".into(), ts: "1.2".into() };
        let found = named_files(&blocks, &message);
        assert!(found.iter().all(|file| file.shared_with.as_ref() == Some(&message)), "{found:?}");
        let ids: Vec<_> = found.iter().map(|file| file.id.as_str()).collect();
        assert_eq!(ids, ["F1", "F2", "F3"]);
        for odd in [json!(7), json!([7, null, {"type": "rich_text", "elements": 7}])] {
            assert_eq!(named_files(&odd, &message), []);
        }
    }

    #[test]
    fn a_file_was_shared_with_the_message_of_which_the_service_says_so() {
        let message = SharedMessage { channel: "C1".into(), ts: "1.2".into() };
        for kind in ["public", "private"] {
            assert!(was_shared(&json!({"shares": {kind: {"C1": [{"ts": "1.1"}, {"ts": "1.2"}]}}}), &message));
        }
        for other in [
            json!({"shares": {"public": {"C1": [{"ts": "1.1"}], "C2": [{"ts": "1.2"}]}}}),
            json!({"shares": {"public": {"C1": "1.2"}}, "channels": ["C1"]}),
            Value::Null,
        ] {
            assert!(!was_shared(&other, &message), "{other}");
        }
    }

    #[test]
    fn what_fails_while_nobody_sees_anything_may_be_done_again() {
        assert!(matches!(unseen(SendFailure::doubtful("x")), SendFailure::NotSent(_)));
        assert_eq!(unseen(SendFailure::refused("a", "b")), SendFailure::refused("a", "b"));
    }
}
