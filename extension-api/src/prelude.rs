//! All that most extensions need: `use drupe_extension_api::prelude::*;`.

pub use schemars::JsonSchema;
pub use serde::{Deserialize, Serialize};

#[doc(no_inline)]
pub use crate::{
    AgentDescriptor, AgentId, AgentInvocationContext, AgentResponse, Definition, EffectId, ExtensionId,
    FailureClass, Fault, FaultCode, IntegrationMode, ItemKind, ResponseStatus, SessionId, ToolAnnotations,
    ToolName, ToolPreview, ToolResult, ToolSpec, TurnId, export,
    sdk::{
        AgentProvider, Call, Channel, ContextProvider, Extension, Hook, Host, Items, Level, NoInput, Process,
        Scheduler, Service, Shutdown, Subscription, Tool, ToolProvider, Turn,
    },
    wire::{
        Admission, BusMessage, ChannelStream, ContextText, Delivery, FileSource, HookCall, HookPoint,
        HookVerdict, InboundFile, LookupResult, OutboundFile, OutboundKind, OutboundMessage, OutwardRequest,
        OutwardResponse, ProcessOutput, ProcessSpec, RunProcess, Schedule, Sender, StreamPart, Submit,
        Submitted,
    },
};
