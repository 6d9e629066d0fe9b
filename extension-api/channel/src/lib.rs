//! What channels to chat services share, so that they differ where their services do and nowhere else.
//!
//! A [`ChatService`] says how a message is sent and changed, how long it may be and how often one is taken. [`ChatChannel`] does the rest with
//! it: answers that grow while they are made and are one message in the end, parts of long ones, questions with buttons and what became of
//! them, what the service does not take yet, and what somebody wants who writes there.
//!
//! A message that may have arrived is never sent a second time: services know no id by which they would see that two are one. A change of one
//! may come twice, since the same text is the same message. What has to be known after a restart is one small file ([`Kept`]), in which the
//! oldest make room for the newest.

mod buttons;
mod channel;
mod draft;
mod hear;
mod kept;
mod pace;
mod record;
mod service;
mod text;

pub use self::{
    buttons::{Button, ButtonStyle},
    channel::ChatChannel,
    hear::{Heard, WriterWish},
    kept::{Kept, Recent},
    record::ChannelRecord,
    service::{ChatService, NewMessage, SendFailure},
    text::parts,
};

#[cfg(test)]
mod tests;
