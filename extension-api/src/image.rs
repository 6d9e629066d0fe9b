//! Pictures that models are shown: what of them is told by their first bytes, and which are taken.
//!
//! Nothing here decodes a pixel. What a picture is follows from its content, never from a name or from what somebody says.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::Fault;

/// The most bytes of one picture: in base64 they are 5 MiB, which is the least that the providers take of one.
pub const IMAGE_MAX_BYTES: usize = 3_932_160;

/// The most pixels of a side.
pub const IMAGE_MAX_SIDE: u32 = 8_000;

/// The most pictures of one result of a tool.
pub const IMAGES_PER_RESULT: usize = 8;

/// A picture as a message has it, its sides in pixels. Its bytes are kept once, whoever refers to them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Image {
    /// SHA-256 of its bytes, in hex.
    pub hash: String,
    pub media_type: ImageType,
    pub width: u32,
    pub height: u32,
    pub bytes: u64,
    /// Its bytes, where they are at hand: they never stand in JSON.
    #[serde(skip)]
    pub data: Option<Arc<[u8]>>,
}

impl Image {
    /// The same without its bytes.
    #[must_use]
    pub fn reference(&self) -> Self {
        Self { data: None, ..self.clone() }
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { media_type, width, height, bytes, .. } = self;
        write!(f, "{media_type}, {width}x{height} pixels, {bytes} bytes")
    }
}

/// Megabytes are of no use to whoever reads a log.
impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({self}, {})", self.hash)
    }
}

/// A picture as an extension hands it over.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageData {
    /// The bytes of a PNG, JPEG, GIF or WebP in base64, with its padding.
    pub data: String,
}

impl fmt::Debug for ImageData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageData({} bytes of base64)", self.data.len())
    }
}

/// The formats that every provider of models with eyes takes; Gemini takes no GIF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ImageType {
    #[serde(rename = "image/png")]
    Png,
    #[serde(rename = "image/jpeg")]
    Jpeg,
    #[serde(rename = "image/gif")]
    Gif,
    #[serde(rename = "image/webp")]
    Webp,
}

impl ImageType {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }

    /// What the first bytes say.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            _ => None,
        }
    }
}

impl fmt::Display for ImageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a picture says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageFacts {
    pub media_type: ImageType,
    pub width: u32,
    pub height: u32,
}

/// Why a picture is not taken. Providers refuse the whole request for one that they do not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageRefusal {
    Unknown,
    Heavy(usize),
    /// With its width and height.
    Large(u32, u32),
    Broken(ImageType),
    Animated(ImageType),
}

impl fmt::Display for ImageRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("it is neither a PNG, JPEG, GIF nor WebP"),
            Self::Heavy(bytes) => write!(f, "it has {bytes} bytes, and at most {IMAGE_MAX_BYTES} are taken"),
            Self::Large(width, height) => {
                write!(f, "it has {width}x{height} pixels, and at most {IMAGE_MAX_SIDE} a side are taken")
            }
            Self::Broken(kind) => write!(f, "it begins as {kind} and is not whole"),
            Self::Animated(kind) => write!(f, "it is an animated {kind}, and models see still pictures"),
        }
    }
}

impl ImageRefusal {
    /// What to do about it.
    pub const fn help(self) -> &'static str {
        match self {
            Self::Unknown => "convert it to PNG",
            Self::Heavy(_) => "make it smaller, or save it as JPEG",
            Self::Large(..) => "make it smaller, or cut out the part that matters",
            Self::Broken(_) => "save or fetch it again",
            Self::Animated(_) => "save the frame that matters as PNG",
        }
    }
}

impl From<ImageRefusal> for Fault {
    fn from(refusal: ImageRefusal) -> Self {
        Self::invalid(refusal.to_string()).help(refusal.help())
    }
}

/// What the picture in `bytes` is, if it is one that models can be shown.
pub fn look_at_image(bytes: &[u8]) -> Result<ImageFacts, ImageRefusal> {
    let media_type = ImageType::of(bytes).ok_or(ImageRefusal::Unknown)?;
    if bytes.len() > IMAGE_MAX_BYTES {
        return Err(ImageRefusal::Heavy(bytes.len()));
    }
    let found = match media_type {
        ImageType::Png => png(bytes),
        ImageType::Jpeg => jpeg(bytes),
        ImageType::Gif => gif(bytes),
        ImageType::Webp => webp(bytes),
    };
    match found {
        None | Some(Seen { size: (0, _) | (_, 0), .. }) => Err(ImageRefusal::Broken(media_type)),
        Some(Seen { size: (width, height), .. }) if width.max(height) > IMAGE_MAX_SIDE => {
            Err(ImageRefusal::Large(width, height))
        }
        Some(Seen { moves: true, .. }) => Err(ImageRefusal::Animated(media_type)),
        Some(Seen { size: (width, height), .. }) => Ok(ImageFacts { media_type, width, height }),
    }
}

struct Seen {
    size: (u32, u32),
    moves: bool,
}

fn byte(bytes: &[u8], at: usize) -> Option<usize> {
    bytes.get(at).map(|byte| usize::from(*byte))
}

/// A number of `length` bytes, the highest first.
fn big(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    let found = bytes.get(at..at.checked_add(length)?)?;
    Some(found.iter().fold(0, |sum, byte| (sum << 8) | u32::from(*byte)))
}

/// The same, the lowest first.
fn little(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    let found = bytes.get(at..at.checked_add(length)?)?;
    Some(found.iter().rev().fold(0, |sum, byte| (sum << 8) | u32::from(*byte)))
}

/// Chunks of a length, a name, so many bytes and a sum. What moves shows its first picture where nobody knows that.
fn png(bytes: &[u8]) -> Option<Seen> {
    let mut at = 8;
    let size = (big(bytes, 16, 4)?, big(bytes, 20, 4)?);
    if bytes.get(12..16)? != b"IHDR" {
        return None;
    }
    loop {
        let length = usize::try_from(big(bytes, at, 4)?).ok()?;
        let end = at.checked_add(12)?.checked_add(length)?;
        if end > bytes.len() {
            return None;
        }
        if bytes.get(at + 4..at + 8)? == b"IEND" {
            return Some(Seen { size, moves: false });
        }
        at = end;
    }
}

/// Segments of a mark and a length. One of them tells the size; after another the picture begins, which an end mark ends.
fn jpeg(bytes: &[u8]) -> Option<Seen> {
    let mut at = 2;
    loop {
        if byte(bytes, at)? != 0xff {
            return None;
        }
        let mark = byte(bytes, at + 1)?;
        match mark {
            0xff => at += 1,
            0x01 | 0xd0..=0xd7 => at += 2,
            0xd9 | 0xda => return None,
            0xc0..=0xcf if !matches!(mark, 0xc4 | 0xc8 | 0xcc) => {
                let size = (big(bytes, at + 7, 2)?, big(bytes, at + 5, 2)?);
                let whole = bytes.get(at..)?.windows(2).any(|pair| pair == [0xff, 0xd9]);
                return whole.then_some(Seen { size, moves: false });
            }
            _ => {
                // The length counts itself.
                let length = usize::try_from(big(bytes, at + 2, 2)?).ok()?;
                at += 2 + length.max(2);
            }
        }
    }
}

/// A head, then blocks: each frame is one.
fn gif(bytes: &[u8]) -> Option<Seen> {
    let size = (little(bytes, 6, 2)?, little(bytes, 8, 2)?);
    let table = |flags: usize| if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
    let mut at = 13 + table(byte(bytes, 10)?);
    let mut frames = 0;
    loop {
        at = match byte(bytes, at)? {
            0x21 => gif_data(bytes, at + 2)?,
            0x2c => {
                frames += 1;
                // A place, a size and flags; a table; a byte that says how what follows is packed.
                gif_data(bytes, at + 11 + table(byte(bytes, at + 9)?))?
            }
            0x3b => return (frames > 0).then_some(Seen { size, moves: frames > 1 }),
            _ => return None,
        };
    }
}

/// Where data ends that comes in parts of up to 255 bytes, of which an empty one is the last.
fn gif_data(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let length = byte(bytes, at)?;
        at += 1 + length;
        if length == 0 {
            return Some(at);
        }
    }
}

/// One chunk in three forms: lossy, lossless, or a head for several.
fn webp(bytes: &[u8]) -> Option<Seen> {
    if usize::try_from(little(bytes, 4, 4)?).ok()?.checked_add(8)? > bytes.len() {
        return None;
    }
    let (size, moves) = match bytes.get(12..16)? {
        b"VP8 " if bytes.get(23..26)? == [0x9d, 0x01, 0x2a] => {
            ((little(bytes, 26, 2)? & 0x3fff, little(bytes, 28, 2)? & 0x3fff), false)
        }
        b"VP8L" if byte(bytes, 20)? == 0x2f => {
            let bits = little(bytes, 21, 4)?;
            (((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1), false)
        }
        b"VP8X" => ((little(bytes, 24, 3)? + 1, little(bytes, 27, 3)? + 1), byte(bytes, 20)? & 2 != 0),
        _ => return None,
    };
    Some(Seen { size, moves })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A PNG that says to have that size.
    fn a_png(width: u32, height: u32) -> Vec<u8> {
        let mut out = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        out.extend(width.to_be_bytes());
        out.extend(height.to_be_bytes());
        out.extend([8, 6, 0, 0, 0, 0, 0, 0, 0]);
        out.extend(b"\0\0\0\0IDATsum!\0\0\0\0IENDsum!");
        out
    }

    fn a_gif(frames: usize) -> Vec<u8> {
        let mut out = b"GIF89a\x05\0\x03\0\x80\0\0\0\0\0\xff\xff\xff".to_vec();
        out.extend(b"\x21\xf9\x04\0\0\0\0\0");
        for _ in 0..frames {
            out.extend(b"\x2c\0\0\0\0\x05\0\x03\0\0\x02\x02\x4c\x01\0");
        }
        out.push(0x3b);
        out
    }

    fn a_jpeg() -> Vec<u8> {
        let mut out =
            b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc4\0\x02\xff\xc2\0\x0b\x08\0\x07\0\x09\x01\0\0\0".to_vec();
        out.extend(b"\xff\xda\0\x02data\xff\xd9");
        out
    }

    fn a_webp(chunk: &[u8]) -> Vec<u8> {
        let mut out = b"RIFF".to_vec();
        out.extend(u32::try_from(chunk.len() + 4).expect("short").to_le_bytes());
        out.extend(b"WEBP");
        out.extend(chunk);
        out
    }

    #[test]
    fn each_format_tells_its_type_and_size() {
        let lossy = a_webp(b"VP8 \x0a\0\0\0\0\0\0\x9d\x01\x2a\x10\0\x20\0");
        let lossless = a_webp(b"VP8L\x05\0\0\0\x2f\x0f\xc0\x07\0");
        let extended = a_webp(b"VP8X\x0a\0\0\0\0\0\0\0\x0f\0\0\x1f\0\0");
        for (bytes, media_type, width, height) in [
            (a_png(640, 480), ImageType::Png, 640, 480),
            (a_jpeg(), ImageType::Jpeg, 9, 7),
            (a_gif(1), ImageType::Gif, 5, 3),
            (lossy, ImageType::Webp, 16, 32),
            (lossless, ImageType::Webp, 16, 32),
            (extended, ImageType::Webp, 16, 32),
        ] {
            assert_eq!(look_at_image(&bytes), Ok(ImageFacts { media_type, width, height }));
            // One that is cut anywhere is broken or unknown, and never read beyond its end.
            for end in 0..bytes.len() {
                let cut = look_at_image(&bytes[..end]);
                let broken = matches!(cut, Err(ImageRefusal::Broken(_) | ImageRefusal::Unknown));
                assert!(broken, "{media_type} at {end}: {cut:?}");
            }
        }
    }

    #[test]
    fn what_providers_refuse_is_refused_with_what_to_do() {
        let moving = a_webp(b"VP8X\x0a\0\0\0\x02\0\0\0\x0f\0\0\x1f\0\0");
        let mut heavy = a_png(10, 10);
        heavy.resize(IMAGE_MAX_BYTES + 1, 0);
        for (bytes, refusal, help) in [
            (b"%PDF-1.7".to_vec(), ImageRefusal::Unknown, "PNG"),
            (a_png(8_001, 10), ImageRefusal::Large(8_001, 10), "smaller"),
            (a_png(0, 10), ImageRefusal::Broken(ImageType::Png), "again"),
            (a_gif(2), ImageRefusal::Animated(ImageType::Gif), "frame"),
            (a_gif(0), ImageRefusal::Broken(ImageType::Gif), "again"),
            (moving, ImageRefusal::Animated(ImageType::Webp), "frame"),
            (heavy, ImageRefusal::Heavy(IMAGE_MAX_BYTES + 1), "JPEG"),
        ] {
            assert_eq!(look_at_image(&bytes), Err(refusal));
            let fault = Fault::from(refusal);
            assert!(fault.help.as_deref().is_some_and(|text| text.contains(help)), "{fault:?}");
        }
        let mut most = a_png(8_000, 8_000);
        most.resize(IMAGE_MAX_BYTES, 0);
        assert!(look_at_image(&most).is_ok(), "what follows the end of a PNG does not matter");
    }

    #[test]
    fn the_bytes_of_a_picture_stand_in_no_json_and_in_no_log() {
        let data: Arc<[u8]> = Arc::from(&b"secret pixels"[..]);
        let image = Image {
            hash: "ab".into(),
            media_type: ImageType::Png,
            width: 3,
            height: 2,
            bytes: 13,
            data: Some(data),
        };
        let json = serde_json::json!({"hash": "ab", "media_type": "image/png", "width": 3, "height": 2, "bytes": 13});
        assert_eq!(serde_json::to_value(&image).ok(), Some(json.clone()));
        assert_eq!(serde_json::from_value::<Image>(json).ok(), Some(image.reference()));
        assert_eq!(format!("{image:?}"), "Image(image/png, 3x2 pixels, 13 bytes, ab)");
    }
}
