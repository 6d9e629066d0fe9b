//! The body of a request, which tells when it is sent.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use drupe_agent::Dispatch;
use http_body::{Body, Frame, SizeHint};

/// The body of a request. That it is read shows that there is a connection to write it to: before that nothing was sent,
/// however long the connection took.
pub(super) struct Sent {
    text: String,
    dispatch: Dispatch,
    model: String,
}

impl Sent {
    /// The body of a request to this model, as `provider/model`.
    pub(super) fn new(text: String, dispatch: &Dispatch, model: &str) -> Self {
        Self { text, dispatch: dispatch.clone(), model: model.to_owned() }
    }
}

impl Body for Sent {
    type Data = <String as Body>::Data;
    type Error = <String as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.dispatch.goes_to(&self.model);
        Pin::new(&mut self.text).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.text.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.text.size_hint()
    }
}
