//! Files of the workspace that go out to whoever wrote. Who gets one, and how, is the daemon's to say.

use drupe_extension_api::{prelude::*, wire::FileSent};

use crate::{Files, marks::MarkedText, root::SentFacts, told};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileToSend {
    /// The file, relative to the workspace.
    path: String,
    /// A few words that stand beside it.
    #[serde(default)]
    #[schemars(length(max = 500))]
    text: String,
}

impl Files {
    pub async fn send(&self, input: FileToSend, call: Call) -> Result<String, Fault> {
        let FileToSend { path, text } = input;
        let found = self.beneath(&call, move |root| root.facts(&path)).await?;
        let SentFacts { path, bytes, hash, strangers } = found;
        let sha256 = match &call.shown {
            Some(shown) if *shown != hash => {
                let message = format!("`{path}` is another one than the person was shown, and is not sent");
                return Err(Fault::invalid(message).help("call the tool again"));
            }
            Some(_) => Some(hash),
            None => None,
        };
        let said = match call.send_file(&path, text, sha256).await? {
            FileSent::OnItsWay { channel } => {
                format!("`{path}` ({bytes} bytes) is on its way through `{channel}` as a file")
            }
            FileSent::Told => format!(
                "this conversation takes no files: the person was told that `{path}` is in the workspace"
            ),
        };
        Ok(told(&call, MarkedText { text: said, strangers }))
    }

    pub async fn preview_send(&self, input: FileToSend, call: Call) -> Result<ToolPreview, Fault> {
        let FileToSend { path, text } = input;
        let SentFacts { path, bytes, hash, strangers } =
            self.beneath(&call, move |root| root.facts(&path)).await?;
        let beside = if text.is_empty() { String::new() } else { format!("\nwith the words: {text}") };
        let marked = if strangers { "\nstrangers may have written what is in it" } else { "" };
        let text = format!("sends `{path}`, {bytes} bytes, SHA-256 {hash}{marked}{beside}");
        Ok(ToolPreview { text, seal: Some(hash), input: None })
    }
}
