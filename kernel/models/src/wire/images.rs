//! Pictures of a request: which of them the model is shown, and their bytes as a body has them.

use std::sync::Arc;

use base64::{display::Base64Display, engine::general_purpose::STANDARD};
use drupe_agent::ModelRequest;
use drupe_extension_api::{Image, Message};
use serde::{Serialize, Serializer};

use super::{Api, Facts};

/// The most pictures of a request. Of more than 20 Anthropic takes none with a side of more than 2,000 pixels
/// (platform.claude.com, "Images and vision", looked up on 2026-11-25).
const MOST: usize = 20;

/// The most bytes of them: in base64 they are 16 MiB, and Gemini takes 20 MB of all that stands in a request
/// (ai.google.dev, "Image understanding", looked up on 2026-11-25).
const MOST_BYTES: u64 = 12 << 20;

/// How closely models of OpenAI are to look: within a bound on tokens, which newer ones do not keep unless they are told
/// (developers.openai.com, "Images and vision", looked up on 2026-11-25).
pub(crate) const DETAIL: &str = "high";

/// The request with words in place of the pictures that the model is not shown; none where that changes nothing. What stands in
/// it follows from the request and the model alone.
pub(crate) fn shown(model: &Facts, api: &dyn Api, request: &ModelRequest) -> Option<ModelRequest> {
    if request.messages.iter().all(|message| message.images().is_empty()) {
        return None;
    }
    let (mut count, mut bytes) = (0, 0);
    // The newest first: what was shown long ago gives way.
    let mut hidden = |image: &Image| -> Option<&'static str> {
        if !model.images {
            return Some("that this model cannot read");
        }
        if !api.reads(image.media_type) {
            return Some("of a format that this model's provider does not take");
        }
        if image.data.is_none() {
            return Some("that is not kept any more");
        }
        (count, bytes) = (count + 1, bytes + image.bytes);
        (count > MOST || bytes > MOST_BYTES).then_some("that newer ones have taken the place of")
    };
    let worded = request.messages.iter().rev().map(|message| worded(message, &mut hidden));
    let mut messages: Vec<_> = worded.collect();
    messages.reverse();
    Some(ModelRequest { messages: Arc::new(messages), ..request.clone() })
}

fn worded(message: &Arc<Message>, hidden: &mut impl FnMut(&Image) -> Option<&'static str>) -> Arc<Message> {
    let whys: Vec<_> = message.images().iter().map(hidden).collect();
    let Message::Tool { call_id, name, status, content, images } = &**message else {
        return Arc::clone(message);
    };
    if whys.iter().all(Option::is_none) {
        return Arc::clone(message);
    }
    let mut content = content.clone();
    let mut seen = Vec::new();
    for (image, why) in images.iter().zip(whys) {
        match why {
            None => seen.push(image.clone()),
            Some(why) => content.push_str(&format!("\n[an image {why}: {image}]")),
        }
    }
    let (call_id, name, status) = (call_id.clone(), name.clone(), *status);
    Arc::new(Message::Tool { call_id, name, status, content, images: seen })
}

/// The bytes of a picture in base64.
pub(crate) struct Base64<'a>(pub(crate) &'a Image);

impl Base64<'_> {
    fn display(&self) -> Base64Display<'_, '_, base64::engine::GeneralPurpose> {
        Base64Display::new(self.0.data.as_deref().unwrap_or_default(), &STANDARD)
    }
}

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.display())
    }
}

/// The same as an address.
pub(crate) struct DataUrl<'a>(pub(crate) &'a Image);

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = Base64(self.0);
        serializer.collect_str(&format_args!("data:{};base64,{}", self.0.media_type, bytes.display()))
    }
}

#[cfg(test)]
#[path = "images_tests.rs"]
mod tests;
