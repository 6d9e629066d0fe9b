//! The events of a session, as they come.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{
        State,
        ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::HeaderMap,
    response::{
        IntoResponse, Response,
        sse::{self, KeepAlive, Sse},
    },
};
use drupe_extension_api::{Event, Fault, SessionId, control::EventsSubscribe, sdk::Items};
use futures_util::{StreamExt as _, future, stream};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use super::socket;
use crate::routes::parts::{Path, Query};
use crate::{
    connections::Place,
    credentials::Bearer,
    failure::HttpFault,
    server::Server,
    visitors::{Visitor, reach},
};

/// How often a reader hears something, so that nothing on the way takes the connection for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Of which session, and from where.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Which {
    /// The session that is followed.
    session: SessionId,
    // Not one `EventsAfter` made flat: a query's numbers are texts until their own type reads them.
    /// The number of the last event that the reader knows.
    #[serde(default)]
    after: u64,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EventsAfter {
    /// The number of the last event that the reader knows.
    #[serde(default)]
    after: u64,
}

/// The events of the session that the query names.
pub async fn of_query(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    headers: HeaderMap,
    Query(Which { session, after }): Query<Which>,
    Extension(place): Extension<Place>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, HttpFault> {
    follow(server, &bearer, &headers, session, after, place, upgrade).await
}

/// The events of the session that the path names.
pub async fn of_path(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    headers: HeaderMap,
    Path(session): Path,
    Query(EventsAfter { after }): Query<EventsAfter>,
    Extension(place): Extension<Place>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, HttpFault> {
    let session = SessionId::new(session).map_err(Fault::from)?;
    follow(server, &bearer, &headers, session, after, place, upgrade).await
}

/// Kept events first, then those that come. A reader that comes back says what it knows: in `Last-Event-ID`, or in the query.
async fn follow(
    server: Arc<Server>,
    bearer: &Bearer,
    headers: &HeaderMap,
    session: SessionId,
    after: u64,
    place: Place,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, HttpFault> {
    let known = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let ask = EventsSubscribe { session, after: known.unwrap_or(after), follow: true };
    let items = server.events(bearer, ask).await?;
    match (socket::is_asked(headers), &bearer.visitor) {
        (true, None) => socket::answer(server, place, upgrade, items),
        (true, Some(_)) => Err(Fault::denied("visitors of a site read events as server-sent ones").into()),
        (false, visitor) => Ok(stream(server, items, visitor.clone())),
    }
}

/// What a visitor follows is told as far as it is for them, and as long as they are known.
fn stream(server: Arc<Server>, items: Items<Event>, visitor: Option<Visitor>) -> Response {
    let ends = visitor.as_ref().map(|visitor| Instant::now() + visitor.left());
    let over = async move {
        match ends {
            Some(ends) => sleep_until(ends).await,
            None => future::pending().await,
        }
    };
    let shown = move |event: Event| if visitor.is_some() { reach::event(event) } else { Some(event) };
    let frames = stream::unfold(Some((server, items)), move |open| {
        let shown = shown.clone();
        async move {
            let (server, mut items) = open?;
            loop {
                let next = tokio::select! {
                    next = items.next() => next,
                    () = server.closing() => return None,
                };
                return Some(match next {
                    Ok(Some(event)) => match shown(event) {
                        Some(event) => (Ok::<_, Infallible>(frame(&event)), Some((server, items))),
                        None => continue,
                    },
                    Ok(None) => return None,
                    Err(fault) => (Ok(broken(&fault)), None),
                });
            }
        }
    });
    let frames = frames.take_until(over);
    Sse::new(frames).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response()
}

/// Live ones have no number: a reader that comes back goes on after the last kept one.
fn frame(event: &Event) -> sse::Event {
    let frame = sse::Event::default();
    let frame = if event.seq > 0 { frame.id(event.seq.to_string()) } else { frame };
    // An event is plain data; it always has a form in JSON, without line breaks.
    frame.data(serde_json::to_string(event).unwrap_or_default())
}

/// The end of a stream that breaks off.
fn broken(fault: &Fault) -> sse::Event {
    sse::Event::default().event("fault").data(serde_json::to_string(fault).unwrap_or_default())
}
