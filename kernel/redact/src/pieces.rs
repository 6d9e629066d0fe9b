//! A text that comes piece by piece.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};

use crate::mask::{Mask, show};

/// How much of what was shown is looked at again, in bytes: a run of a secret may have begun in it.
const CONTEXT: usize = 64;

/// What came of a text, and is not shown yet: a secret may begin in it.
pub struct Pieces {
    mask: Arc<Mask>,
    /// The end of what was shown, and what waits.
    text: String,
    shown: usize,
    /// Whether what was shown last stands for a secret that may go on.
    masked: bool,
}

/// A secret as programs write it: as it is, in base64 at each place of a group of three bytes, and in hexadecimal digits.
/// Of an address or of escaped text the letters and digits between the escapes are runs of the secret as it is.
pub fn encodings(secret: &str) -> Vec<String> {
    let base64 = |shift: usize| {
        let shifted: Vec<u8> = std::iter::repeat_n(0, shift).chain(secret.bytes()).collect();
        let digits = STANDARD_NO_PAD.encode(shifted);
        // Digits that tell of the bytes around it are not its own.
        let (from, bits) = ((shift * 8).div_ceil(6), (shift + secret.len()) * 8);
        digits[from..bits / 6].to_owned()
    };
    let hexadecimal = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    (0..3).map(base64).chain([secret.to_owned(), hexadecimal]).collect()
}

impl Pieces {
    pub(crate) fn new(mask: Arc<Mask>) -> Self {
        Self { mask, text: String::new(), shown: 0, masked: false }
    }

    /// Takes the next piece, and gives what can be shown by now.
    pub fn push(&mut self, piece: &str) -> String {
        if self.mask.is_empty() {
            return piece.to_owned();
        }
        self.text.push_str(piece);
        let until = self.mask.settled(&self.text).max(self.shown);
        self.show(until)
    }

    /// The rest, once there is no more to come.
    pub fn finish(&mut self) -> String {
        let rest = self.show(self.text.len());
        (self.text, self.shown, self.masked) = (String::new(), 0, false);
        rest
    }

    fn show(&mut self, until: usize) -> String {
        let hidden = self.mask.plainly(&self.text);
        let mut out = String::with_capacity(until - self.shown);
        show(&self.text[self.shown..until], &hidden[self.shown..until], &mut self.masked, &mut out);
        let context = self.text.floor_char_boundary(until.saturating_sub(CONTEXT));
        self.text.drain(..context);
        self.shown = until - context;
        out
    }
}
