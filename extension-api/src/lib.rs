//! The contract between drupe's kernel and everything outside it, as data.
//!
//! Extensions, the kernel and clients of the control socket agree on the types of this crate and on nothing
//! else. Without features it is plain `serde` data; `sdk` adds the traits that an author of an extension
//! implements and [`export!`](macro@export), `runtime` a tokio runtime of the extension's own, and `testing` a
//! fake host.
//!
//! Every payload tolerates unknown fields and has a default for what came later, so that an extension built
//! against an older release loads in a newer kernel and the reverse.

mod agent;
pub mod control;
mod definition;
mod event;
mod fault;
mod ids;
mod image;
mod message;
mod offline;
#[cfg(feature = "schema")]
pub mod schema;
mod tool;
pub mod wire;

/// What the macros and the harness speak, so that an extension need not name the same version.
#[cfg(feature = "sdk")]
pub use serde_json;
/// The runtime that [`Host::spawn`](sdk::Host::spawn) runs tasks on.
#[cfg(feature = "runtime")]
pub use tokio;

#[cfg(feature = "sdk")]
pub mod prelude;
// Authors build on these two and read them without their sources. What is mere data says most by its names: there a doc line
// is for a unit, a default, or what a name cannot say.
#[cfg(feature = "sdk")]
#[warn(missing_docs)]
pub mod sdk;
#[cfg(feature = "testing")]
#[warn(missing_docs)]
pub mod testing;

pub use agent::{
    AgentDescriptor, AgentInvocationContext, AgentResponse, ControlTransfer, FailureClass, IntegrationMode,
    ResponseStatus,
};
pub use definition::{Definition, DefinitionLimits, Format, ModelParameters, OutputSpec, Reasoning};
pub use event::{AgentRef, BudgetUse, Event, EventBody, Item, ItemOutcome, LimitScope, Preview, Spend};
pub use fault::{Fault, FaultCode};
pub use ids::{
    AgentId, CorrelationId, EffectId, ExtensionId, InvalidId, InvocationId, MODEL_NAME, SessionId, ToolName,
    TurnId, is_model_name,
};
pub use image::{
    IMAGE_MAX_BYTES, IMAGE_MAX_SIDE, IMAGES_PER_RESULT, Image, ImageData, ImageFacts, ImageRefusal,
    ImageType, look_at_image,
};
pub use message::{Message, ProviderItems, ToolCallRequest, ToolStatus, Usage};
pub use offline::{OfflineAction, OfflineRule, OfflineTrigger};
pub use tool::{
    ApprovalScope, EffectClass, ItemKind, ScopeKind, ToolAnnotations, ToolPreview, ToolResult, ToolSpec,
};

/// The guide for authors, whose examples are tested.
#[cfg(doctest)]
#[doc = include_str!("../../docs/extensions.md")]
mod extensions_guide {}
