//! A model that answers from a list, for examples and tests of the loop alone.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use drupe_extension_api::{FailureClass, ToolCallRequest, Usage};
use futures_util::{StreamExt, stream, stream::BoxStream};

use crate::model::{Model, ModelEvent, ModelFault, ModelProfile, ModelRequest, StopReason};

/// Gives one prepared answer a request, in order, and keeps the requests.
pub struct ScriptedModel {
    profile: ModelProfile,
    answers: Mutex<VecDeque<Vec<ModelEvent>>>,
    requests: Mutex<Vec<ModelRequest>>,
}

impl ScriptedModel {
    /// A model that gives these answers.
    pub fn new(answers: impl IntoIterator<Item = Vec<ModelEvent>>) -> Self {
        let profile = ModelProfile {
            name: "scripted/list".into(),
            context_window: 1_000_000,
            max_output_tokens: 1_000,
            price: None,
            tools: true,
            images: true,
        };
        Self { profile, answers: Mutex::new(answers.into_iter().collect()), requests: Mutex::default() }
    }

    /// An answer in words.
    pub fn say(text: &str) -> Vec<ModelEvent> {
        vec![ModelEvent::Text(text.into()), done(StopReason::End)]
    }

    /// An answer that calls tools: names with parameters as JSON text.
    pub fn call(calls: &[(&str, &str)]) -> Vec<ModelEvent> {
        let call = |(at, (name, arguments)): (usize, &(&str, &str))| {
            ModelEvent::ToolCall(ToolCallRequest {
                call_id: format!("call_{at}"),
                name: (*name).into(),
                arguments: (*arguments).into(),
            })
        };
        calls.iter().enumerate().map(call).chain([done(StopReason::ToolCalls)]).collect()
    }

    /// The requests that came so far.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn done(stop: StopReason) -> ModelEvent {
    let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
    ModelEvent::Done { usage: Some(usage), stop, model: "scripted/list".into() }
}

impl Model for ScriptedModel {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn stream(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        let next = self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let events = next.unwrap_or_else(|| {
            vec![ModelEvent::Failed(ModelFault::fatal(FailureClass::Model, "the list of answers is used up"))]
        });
        stream::iter(events).boxed()
    }
}
