//! What channels to chat services share, so that they differ where their services do and nowhere else.
//!
//! A [`ChatService`] says how a message is sent and changed, how long it may be and how often one is taken. [`ChatChannel`] does the rest with
//! it: answers that grow while they are made and are one message in the end, parts of long ones, questions with buttons and what became of
//! them, what the service does not take yet, and what somebody wants who writes there.
//!
//! A message that may have arrived is never sent a second time: services know no id by which they would see that two are one. A change of one
//! may come twice, since the same text is the same message. What has to be known after a restart is one small file ([`KeptState`]), in which the
//! oldest make room for the newest.
//!
//! A channel to a board, on which everybody writes who is known:
//!
//! ```
//! use drupe_channel::{ChatChannel, ChatService, HeardMessage, NewPost, SendFailure, WriterWish};
//! use drupe_extension_api::prelude::*;
//!
//! /// The service: how a message is sent.
//! #[derive(Clone)]
//! struct Board(Host);
//!
//! impl ChatService for Board {
//!     const NAME: &'static str = "Board";
//!     const LONGEST: usize = 4000;
//!     type Record = ();
//!
//!     async fn post(&self, address: &str, message: &NewPost<'_>) -> Result<String, SendFailure> {
//!         let url = format!("https://board.example/{address}");
//!         let request = OutwardRequest::new("POST", url).body(message.text);
//!         let answer = self.0.send(&request).await.map_err(SendFailure::unanswered)?;
//!         match answer.status {
//!             201 => Ok(answer.body),
//!             429 => Err(SendFailure::TooMany { seconds: 30 }),
//!             400..=499 => Err(SendFailure::refused(answer.status, answer.body)),
//!             // It may be there or not.
//!             _ => Err(SendFailure::doubtful(answer.body)),
//!         }
//!     }
//! }
//!
//! struct Boarding(ChatChannel<Board>);
//!
//! impl Extension for Boarding {
//!     async fn initialize(host: Host) -> Result<Self, Fault> {
//!         Ok(Self(ChatChannel::open(host.clone(), Board(host), "board.json")?))
//!     }
//! }
//!
//! impl Channel for Boarding {
//!     async fn send(&self, message: OutboundMessage) -> Result<Delivery, Fault> {
//!         self.0.send(message).await
//!     }
//! }
//!
//! impl Boarding {
//!     /// Somebody wrote; a service of the extension's own asks the board for such, and comes here.
//!     async fn wrote(&self, who: &str, id: &str, text: String) -> Result<(), Fault> {
//!         let heard = HeardMessage {
//!             address: "wall".to_owned(),
//!             conversation: format!("{}:group.wall", self.0.host.id()),
//!             is_private: false,
//!             sender: Sender { id: who.to_owned(), name: None },
//!             external_id: id.to_owned(),
//!             agent: None,
//!             wish: WriterWish::Answer { text, files: Vec::new() },
//!         };
//!         let said = self.0.hear(&heard).await?;
//!         if let Some(said) = said {
//!             self.0.say(&heard, &said).await;
//!         }
//!         Ok(())
//!     }
//! }
//!
//! export!(Boarding: Channel);
//! ```

mod buttons;
mod channel;
mod draft;
mod hear;
mod kept;
mod pace;
mod record;
mod service;
mod taking;
mod text;

pub use self::{
    buttons::{Button, ButtonStyle},
    channel::ChatChannel,
    hear::{HeardMessage, WriterWish, file_not_taken},
    kept::{KeptState, Recent},
    record::ChannelRecord,
    service::{ChatService, NewPost, SendFailure},
    taking::{TakenIn, Taking},
    text::parts,
};

#[cfg(test)]
mod tests;
