//! The wire formats of OpenAI (Chat Completions and Responses) and of Anthropic (Messages), between a vendor's JSON and
//! drupe's own types.
//!
//! Each agent is a model, and the orchestrator is the model `drupe`. A request is parsed into its own type, such as
//! [`ChatRequest`], which holds the [`Ask`] that is the same for all of them and makes the [`Encoder`] that writes the answer
//! in its format. Where there is no answer, a [`Rejection`] has status and body in the vendor's shape.
//!
//! It is pure: no socket, no clock, no task. It deliberately does not know what a turn, a session or a token of the control
//! API can do; what a surface cannot pass on of an [`Ask`] it has to refuse itself ([`Rejection::unsupported`]), and must never
//! leave out silently.
//!
//! Fields that nobody here looks for are ignored: vendors add some every month, and most of them are hints. What changes the
//! meaning of a call and cannot be done is refused, by name, and a value that asks for nothing (`n: 1`, `logprobs: false`) is
//! as good as none.

mod ask;
pub mod chat;
mod encoder;
mod fields;
pub mod messages;
pub mod models;
mod rejection;
pub mod responses;
mod speech;

pub use ask::{Ask, ORCHESTRATOR, Thread, ToolChoice};
pub use chat::ChatRequest;
pub use encoder::{ClientCall, Encoder, ServedTurn, SseFrame};
pub use messages::MessagesRequest;
pub use rejection::{Rejection, RejectionKind, Vendor};
pub use responses::ResponsesRequest;
