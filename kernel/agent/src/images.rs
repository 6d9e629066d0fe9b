//! Pictures of tools' results: which are taken, and how many tokens one is.

use std::{fmt::Write, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use drupe_extension_api::{
    Fault, IMAGE_MAX_BYTES, IMAGES_PER_RESULT, Image, ImageData, ImageFacts, ImageRefusal, Message,
    look_at_image,
};
use sha2::{Digest, Sha256};

use crate::{ids, ratios::Ratios};

/// Bytes of what stands for a picture where a model does not see it, at most.
const IN_WORDS: usize = 200;

/// The most that providers count for a picture: Claude's 4,784 patches of 28 pixels a side, for models since 4.7
/// (platform.claude.com, "Images and vision", looked up on 2026-11-25).
const MOST: u64 = 4_784;

/// The least that is set aside for one. Gemini 3 counts 1,120 for any (ai.google.dev, "Media resolution"), models of OpenAI that
/// go by tiles up to 1,445 at high detail (developers.openai.com, "Images and vision"; both looked up on 2026-11-25).
const LEAST: u64 = 1_500;

/// Pixels of a side of Claude's patches. Those of OpenAI have 32, and count up to 1.62 each: for the same picture that is a
/// quarter more.
const PATCH: u32 = 28;

/// The pictures that a tool handed over, as far as they are taken, and what is said of the others.
pub fn taken(handed_over: Vec<ImageData>) -> (Vec<Image>, String) {
    let (mut images, mut said) = (Vec::new(), String::new());
    let more = handed_over.len().saturating_sub(IMAGES_PER_RESULT);
    for image in handed_over.into_iter().take(IMAGES_PER_RESULT) {
        match read(&image.data) {
            Ok(image) => images.push(image),
            Err(why) => {
                let _ = write!(said, "\n[a picture was left out: {why}]");
            }
        }
    }
    if more > 0 {
        let _ = write!(said, "\n[{more} more pictures were left out: a result may have {IMAGES_PER_RESULT}]");
    }
    (images, said)
}

fn read(data: &str) -> Result<Image, Fault> {
    // Before it is decoded: what is too large need not be held twice.
    if data.len() > IMAGE_MAX_BYTES / 3 * 4 {
        return Err(ImageRefusal::Heavy(data.len() / 4 * 3).into());
    }
    let broken = |error| Fault::invalid(format!("its base64 is broken: {error}"));
    let bytes = BASE64_STANDARD.decode(data).map_err(broken)?;
    let ImageFacts { media_type, width, height } = look_at_image(&bytes)?;
    let hash = ids::hex(&Sha256::digest(&bytes));
    let data: Arc<[u8]> = bytes.into();
    Ok(Image { hash, media_type, width, height, bytes: data.len() as u64, data: Some(data) })
}

/// What a request weighs, from which its tokens are estimated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    pub bytes: usize,
    /// Tokens of its pictures, at most.
    pub images: u64,
}

impl Weight {
    /// Adds the pictures of a message.
    pub(crate) fn add_images(&mut self, message: &Message) {
        for image in message.images() {
            self.bytes += IN_WORDS;
            self.images = self.images.saturating_add(tokens(image.width, image.height));
        }
    }

    /// The same for a model that reads pictures or does not.
    #[must_use]
    pub(crate) fn seen(self, reads_images: bool) -> Self {
        Self { images: if reads_images { self.images } else { 0 }, ..self }
    }

    /// All of it in tokens of that model.
    pub(crate) fn tokens(self, ratios: &Ratios, model: &str) -> u64 {
        ratios.tokens(model, self.bytes).saturating_add(self.images)
    }
}

/// The most tokens that a picture of that size is for any provider whose models are known to see: more is set aside than most
/// of them count.
pub(crate) fn tokens(width: u32, height: u32) -> u64 {
    let patches = u64::from(width.div_ceil(PATCH)).saturating_mul(u64::from(height.div_ceil(PATCH)));
    patches.saturating_mul(5).div_ceil(4).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use drupe_extension_api::ImageType;

    use super::*;

    /// A PNG of four pixels a side as far as its head tells.
    fn png() -> Vec<u8> {
        let mut out = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x04\0\0\0\x04\x08\x06\0\0\0sum!".to_vec();
        out.extend(b"\0\0\0\0IENDsum!");
        out
    }

    fn handed(bytes: &[u8]) -> ImageData {
        ImageData { data: BASE64_STANDARD.encode(bytes) }
    }

    #[test]
    fn a_picture_is_known_by_its_content_and_one_that_is_none_is_told_in_words() {
        let broken = ImageData { data: "no base64!".into() };
        let long = ImageData { data: "A".repeat(IMAGE_MAX_BYTES / 3 * 4 + 4) };
        let (images, said) = taken(vec![handed(&png()), handed(b"plain text"), broken, long]);
        assert_eq!(images.len(), 1, "{said}");
        let Image { hash, media_type, width, height, bytes, data } = &images[0];
        assert_eq!((*media_type, *width, *height, *bytes), (ImageType::Png, 4, 4, 45));
        assert_eq!((hash.len(), data.as_deref()), (64, Some(&png()[..])));
        for part in ["neither a PNG", "convert it to PNG", "base64 is broken", "make it smaller"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn a_result_has_so_many_pictures_and_says_how_many_it_lacks() {
        let (images, said) = taken(vec![handed(&png()); IMAGES_PER_RESULT + 2]);
        assert_eq!((images.len(), said.contains("2 more pictures")), (IMAGES_PER_RESULT, true), "{said}");
    }

    #[test]
    fn a_picture_is_estimated_as_the_provider_that_counts_most() {
        // Claude counts 2,691 for a screen of full size, OpenAI 60 x 34 patches of which each is up to 1.62.
        assert!((3_305..=MOST).contains(&tokens(1_920, 1_080)), "{}", tokens(1_920, 1_080));
        assert_eq!((tokens(1, 1), tokens(8_000, 8_000), tokens(u32::MAX, u32::MAX)), (LEAST, MOST, MOST));
    }
}
