//! What a file is, by its content: people and models are told that, whatever it is called.

use std::fmt;

use drupe_extension_api::{ImageFacts, ImageRefusal, look_at_image};

/// What a file is by its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// One that models can be shown.
    Picture(ImageFacts),
    /// One that models cannot be shown, and why.
    OtherPicture(ImageRefusal),
    Pdf,
    Text,
    Other,
}

impl FileKind {
    pub fn of(bytes: &[u8]) -> Self {
        match look_at_image(bytes) {
            Ok(facts) => Self::Picture(facts),
            Err(ImageRefusal::Unknown) if bytes.starts_with(b"%PDF-") => Self::Pdf,
            Err(ImageRefusal::Unknown) if !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok() => {
                Self::Text
            }
            Err(ImageRefusal::Unknown) => Self::Other,
            Err(refusal) => Self::OtherPicture(refusal),
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Picture(ImageFacts { media_type, width, height }) => {
                write!(f, "a picture, {media_type}, {width}x{height} pixels")
            }
            Self::OtherPicture(why) => write!(f, "a picture that models cannot be shown, since {why}"),
            Self::Pdf => f.write_str("a PDF"),
            Self::Text => f.write_str("a text"),
            Self::Other => f.write_str("neither a text, a PDF nor a picture"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_is_follows_from_its_content() {
        assert_eq!(FileKind::of(b"%PDF-1.7\n\0"), FileKind::Pdf);
        assert_eq!(FileKind::of("grüße".as_bytes()), FileKind::Text);
        assert_eq!(FileKind::of(b""), FileKind::Text);
        assert_eq!(FileKind::of(b"PK\x03\x04\0"), FileKind::Other);
        assert!(matches!(FileKind::of(b"\xff\xd8\xff\xe0\0\x04"), FileKind::OtherPicture(_)));
    }
}
