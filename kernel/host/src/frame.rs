//! Frames between the kernel and an extension's own process: what they are and how they look as bytes.
//!
//! A frame is its length in four bytes (without these four), a kind in one byte, the number of the call in eight, and
//! a body; all numbers are little-endian. Pure: no socket, no waiting, nothing allocated but what is written. Whoever
//! reads gets borrows of the bytes that came.
//!
//! Each call gets exactly one last frame: a reply, or, where it was cancelled before, `Ended`. A kind that a side does
//! not know is passed over, so that a later release may add some.

/// The longest frame in bytes, its length not counted: what one call may carry either way.
pub const LONGEST: usize = 16 * 1024 * 1024;

/// The bytes of the length.
const LENGTH: usize = 4;

/// The least bytes after the length: kind and number.
const LEAST: usize = 9;

/// What one side tells the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// To the process, first: make an instance. Answered by a [`Frame::Reply`].
    Open {
        id: u64,
        /// What the kernel says of itself.
        about: &'a [u8],
    },
    /// To the process: what is it now? Answered by a [`Frame::Reply`].
    Describe { id: u64 },
    /// To the process: perform an operation.
    Call(Call<'a>),
    /// To the process: the caller waits no more.
    Cancel {
        /// The call.
        id: u64,
    },
    /// To the process: end in order. Its end is the answer.
    Close,
    /// From the process: the result of a call or request.
    Reply(Answer<'a>),
    /// From the process: a cancelled call is gone.
    Ended {
        /// The call.
        id: u64,
    },
    /// From the process: perform an operation of the kernel. Number 0 wants no reply.
    HostCall(Call<'a>),
    /// From the process: the caller waits no more. Not answered; a reply may be on its way.
    HostCancel {
        /// The call.
        id: u64,
    },
    /// To the process: the result of a [`Frame::HostCall`].
    HostReply(Answer<'a>),
    /// From the process: the extension needs the kernel no more.
    HostClose,
}

/// An operation, in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call<'a> {
    /// Number, unique for its direction.
    pub id: u64,
    /// When the caller stops waiting, in milliseconds since 1970 (UTC); 0 for never.
    pub deadline_ms: u64,
    /// On whose behalf; may be empty.
    pub token: &'a str,
    /// The trace it belongs to; may be empty.
    pub trace: &'a str,
    pub operation: &'a str,
    /// JSON.
    pub payload: &'a [u8],
}

/// A result, in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The call.
    pub id: u64,
    /// As in the frozen table: 0 is well, anything else a fault.
    pub status: u32,
    /// JSON: the result, or the fault.
    pub body: &'a [u8],
}

/// A frame cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooLong {
    /// The whole.
    #[error("it is {0} bytes long, and at most {LONGEST} go through")]
    Frame(usize),
    /// Token, trace or operation.
    #[error("its token, trace or operation is longer than {} bytes", u16::MAX)]
    Name,
}

/// Bytes that are no frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Garbage {
    /// A length that no frame has.
    #[error("a frame of {0} bytes")]
    Length(usize),
    /// A body that ends too early, or text that is not UTF-8.
    #[error("a frame of kind {0} that cannot be read")]
    Body(u8),
}

/// What begins the bytes given to [`decode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<'a> {
    Incomplete,
    /// A frame and the bytes it takes; no frame where this release does not know the kind.
    Complete(Option<Frame<'a>>, usize),
}

const OPEN: u8 = 1;
const DESCRIBE: u8 = 2;
const CALL: u8 = 3;
const CANCEL: u8 = 4;
const CLOSE: u8 = 5;
const REPLY: u8 = 6;
const ENDED: u8 = 7;
const HOST_CALL: u8 = 8;
const HOST_CANCEL: u8 = 9;
const HOST_REPLY: u8 = 10;
const HOST_CLOSE: u8 = 11;

pub fn encode(frame: &Frame<'_>) -> Result<Vec<u8>, TooLong> {
    let plain = |kind, id, body: &[u8]| {
        let mut draft = Draft::new(kind, id, body.len());
        draft.0.extend_from_slice(body);
        draft.finish()
    };
    match *frame {
        Frame::Open { id, about } => plain(OPEN, id, about),
        Frame::Describe { id } => plain(DESCRIBE, id, &[]),
        Frame::Call(call) => encode_call(Draft::call(&call), call.payload),
        Frame::Cancel { id } => plain(CANCEL, id, &[]),
        Frame::Close => plain(CLOSE, 0, &[]),
        Frame::Reply(answer) => encode_answer(REPLY, &answer),
        Frame::Ended { id } => plain(ENDED, id, &[]),
        Frame::HostCall(call) => encode_call(Draft::of_call(HOST_CALL, &call), call.payload),
        Frame::HostCancel { id } => plain(HOST_CANCEL, id, &[]),
        Frame::HostReply(answer) => encode_answer(HOST_REPLY, &answer),
        Frame::HostClose => plain(HOST_CLOSE, 0, &[]),
    }
}

fn encode_call(draft: Result<Draft, TooLong>, payload: &[u8]) -> Result<Vec<u8>, TooLong> {
    let mut draft = draft?;
    draft.0.extend_from_slice(payload);
    draft.finish()
}

fn encode_answer(kind: u8, answer: &Answer<'_>) -> Result<Vec<u8>, TooLong> {
    let mut draft = Draft::new(kind, answer.id, 4 + answer.body.len());
    draft.0.extend_from_slice(&answer.status.to_le_bytes());
    draft.0.extend_from_slice(answer.body);
    draft.finish()
}

/// A frame of a call whose payload is yet to be written: what makes JSON writes it in place.
#[derive(Debug)]
pub struct Draft(Vec<u8>);

impl Draft {
    /// A [`Frame::Call`] without its payload: `call.payload` is not used.
    pub fn call(call: &Call<'_>) -> Result<Self, TooLong> {
        Self::of_call(CALL, call)
    }

    fn of_call(kind: u8, call: &Call<'_>) -> Result<Self, TooLong> {
        let names = [call.token, call.trace, call.operation];
        let mut draft = Self::new(kind, call.id, 64 + call.payload.len());
        draft.0.extend_from_slice(&call.deadline_ms.to_le_bytes());
        for name in names {
            let length = u16::try_from(name.len()).map_err(|_| TooLong::Name)?;
            draft.0.extend_from_slice(&length.to_le_bytes());
            draft.0.extend_from_slice(name.as_bytes());
        }
        Ok(draft)
    }

    fn new(kind: u8, id: u64, body: usize) -> Self {
        let mut bytes = Vec::with_capacity(LENGTH + LEAST + body);
        bytes.extend_from_slice(&[0; LENGTH]);
        bytes.push(kind);
        bytes.extend_from_slice(&id.to_le_bytes());
        Self(bytes)
    }

    /// Where the payload goes: add at the end, change nothing before.
    pub fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// The frame as it is sent.
    pub fn finish(mut self) -> Result<Vec<u8>, TooLong> {
        let length = self.0.len() - LENGTH;
        let written = u32::try_from(length).ok().filter(|_| length <= LONGEST);
        let written = written.ok_or(TooLong::Frame(length))?;
        self.0[..LENGTH].copy_from_slice(&written.to_le_bytes());
        Ok(self.0)
    }
}

/// The bytes of the frame that begins here, its length included; none as long as the length is not there.
pub fn size(bytes: &[u8]) -> Result<Option<usize>, Garbage> {
    let Some(length) = bytes.first_chunk::<LENGTH>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if !(LEAST..=LONGEST).contains(&length) {
        return Err(Garbage::Length(length));
    }
    Ok(Some(LENGTH + length))
}

/// Reads the frame that begins here.
pub fn decode(bytes: &[u8]) -> Result<Decoded<'_>, Garbage> {
    let Some(used) = size(bytes)?.filter(|used| *used <= bytes.len()) else {
        return Ok(Decoded::Incomplete);
    };
    let kind = bytes[LENGTH];
    let mut body = Body(&bytes[LENGTH + 1..used]);
    let frame = body.frame(kind).ok_or(Garbage::Body(kind))?;
    Ok(Decoded::Complete(frame, used))
}

/// What is left of a body.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    /// The outer `None` is garbage, the inner one a kind that is not known.
    fn frame(&mut self, kind: u8) -> Option<Option<Frame<'a>>> {
        let id = self.u64()?;
        Some(Some(match kind {
            OPEN => Frame::Open { id, about: self.0 },
            DESCRIBE => Frame::Describe { id },
            CALL => Frame::Call(self.call(id)?),
            CANCEL => Frame::Cancel { id },
            CLOSE => Frame::Close,
            REPLY => Frame::Reply(self.answer(id)?),
            ENDED => Frame::Ended { id },
            HOST_CALL => Frame::HostCall(self.call(id)?),
            HOST_CANCEL => Frame::HostCancel { id },
            HOST_REPLY => Frame::HostReply(self.answer(id)?),
            HOST_CLOSE => Frame::HostClose,
            _ => return Some(None),
        }))
    }

    fn call(&mut self, id: u64) -> Option<Call<'a>> {
        let deadline_ms = self.u64()?;
        let (token, trace, operation) = (self.name()?, self.name()?, self.name()?);
        Some(Call { id, deadline_ms, token, trace, operation, payload: self.0 })
    }

    fn answer(&mut self, id: u64) -> Option<Answer<'a>> {
        let status = u32::from_le_bytes(*self.chunk()?);
        Some(Answer { id, status, body: self.0 })
    }

    fn chunk<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(chunk)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.chunk()?))
    }

    fn name(&mut self) -> Option<&'a str> {
        let length = usize::from(u16::from_le_bytes(*self.chunk()?));
        let (name, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(name).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<Frame<'static>> {
        let call =
            Call { id: 7, deadline_ms: 9, token: "t", trace: "", operation: "tool.call", payload: b"{}" };
        let answer = Answer { id: 7, status: 1, body: b"null" };
        vec![
            Frame::Open { id: 1, about: b"{}" },
            Frame::Describe { id: 2 },
            Frame::Call(call),
            Frame::Cancel { id: 3 },
            Frame::Close,
            Frame::Reply(answer),
            Frame::Ended { id: 5 },
            Frame::HostCall(call),
            Frame::HostCancel { id: 6 },
            Frame::HostReply(answer),
            Frame::HostClose,
        ]
    }

    #[test]
    fn every_frame_comes_back_as_it_was_and_no_part_of_one_is_taken_for_it() {
        for frame in frames() {
            let mut bytes = encode(&frame).expect("it is short");
            let length = bytes.len();
            bytes.extend_from_slice(b"more");
            assert_eq!(decode(&bytes), Ok(Decoded::Complete(Some(frame), length)));
            for cut in 0..length {
                assert_eq!(decode(&bytes[..cut]), Ok(Decoded::Incomplete), "{frame:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_kind_of_a_later_release_is_passed_over() {
        let mut bytes = encode(&Frame::Cancel { id: 3 }).expect("it is short");
        bytes[LENGTH] = 200;
        assert_eq!(decode(&bytes), Ok(Decoded::Complete(None, bytes.len())));
    }

    #[test]
    fn a_length_that_no_frame_has_is_garbage_before_its_body_is_waited_for() {
        for length in [0, 8, LONGEST + 1, u32::MAX as usize] {
            let bytes = u32::try_from(length).expect("it fits").to_le_bytes();
            assert_eq!(decode(&bytes), Err(Garbage::Length(length)));
        }
    }

    #[test]
    fn a_body_that_is_cut_or_no_text_is_garbage() {
        for frame in frames() {
            let Frame::Call(_) = frame else { continue };
            let whole = encode(&frame).expect("it is short");
            // Up to the names the length can be right and the body wrong.
            for cut in LENGTH + LEAST..whole.len() - b"{}".len() {
                let mut bytes = whole[..cut].to_vec();
                let length = u32::try_from(cut - LENGTH).expect("it fits");
                bytes[..LENGTH].copy_from_slice(&length.to_le_bytes());
                assert_eq!(decode(&bytes), Err(Garbage::Body(CALL)), "cut at {cut}");
            }
            let mut bytes = whole.clone();
            let at = bytes.windows(9).position(|w| w == b"tool.call").expect("the operation");
            bytes[at] = 0xff;
            assert_eq!(decode(&bytes), Err(Garbage::Body(CALL)));
        }
    }

    #[test]
    fn what_is_too_long_is_not_written() {
        let payload = vec![0; LONGEST];
        let call = Call { id: 1, deadline_ms: 0, token: "", trace: "", operation: "", payload: &payload };
        assert!(matches!(encode(&Frame::Call(call)), Err(TooLong::Frame(_))));
        let name = "x".repeat(70_000);
        let call = Call { token: &name, payload: b"", ..call };
        assert_eq!(encode(&Frame::HostCall(call)), Err(TooLong::Name));
    }

    #[test]
    fn any_bytes_are_a_frame_part_of_one_or_garbage() {
        // Every frame with every byte changed to a few values: nothing may panic, and nothing reads past its end.
        for frame in frames() {
            let whole = encode(&frame).expect("it is short");
            for at in 0..whole.len() {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut bytes = whole.clone();
                    bytes[at] = value;
                    if let Ok(Decoded::Complete(_, used)) = decode(&bytes) {
                        assert!(used <= bytes.len());
                    }
                }
            }
        }
    }
}
