//! Webhooks come in here: `POST /hooks/{name}`.

use std::sync::Arc;

use axum::{
    extract::{FromRequest as _, Request, State},
    http::StatusCode,
};
use drupe_extension_api::{
    Fault, FaultCode,
    control::method,
    wire::{Submit, Submitted},
};

use super::{body::Body, parts::Path, sessions::AcceptedMessage};
use crate::{failure::HttpFault, hooks::RefusedDelivery, server::Server};

/// Takes a delivery in. It is answered once the message is in the journal: whoever delivers need not come again.
pub async fn deliver(
    State(server): State<Arc<Server>>,
    Path(name): Path,
    request: Request,
) -> Result<AcceptedMessage, HttpFault> {
    let headers = request.headers().clone();
    let submit = {
        let _room = server.hooks.room(&headers).map_err(refused)?;
        let body = Body::from_request(request, &server).await?;
        server.hooks.message(&name, &headers, body.bytes()).map_err(refused)?
    };
    let session = submit.session.clone();
    let submitted = hand_in(&server, submit).await?;
    Ok(AcceptedMessage { session, submitted })
}

/// As the extension itself.
async fn hand_in(server: &Server, submit: Submit) -> Result<Submitted, Fault> {
    let agent = submit.agent.clone();
    server.host.control(method::TURN_SUBMIT, submit).await.map_err(|fault| match (fault.code, agent) {
        // It may be there again when the delivery comes again.
        (FaultCode::NotFound, Some(agent)) => {
            server.host.warn(format!("a webhook was not taken in: {fault}"));
            let message = format!("agent `{agent}`, which this hook is for, is not there");
            Fault::new(FaultCode::Unavailable, message)
        }
        _ => fault,
    })
}

fn refused(why: RefusedDelivery) -> HttpFault {
    match why {
        RefusedDelivery::Unknown => Fault::new(
            FaultCode::Unauthenticated,
            "there is no such hook, or it was not signed with its secret",
        )
        .into(),
        RefusedDelivery::Stale(off) => {
            let message = format!("the delivery is {off} s off the time of this server");
            Fault::new(FaultCode::Unauthenticated, message).help("sign it anew; 300 s are allowed").into()
        }
        RefusedDelivery::TooLong => {
            let fault = Fault::invalid("the body is too long").help("the most is `max_body_kb` of the hook");
            HttpFault::with(StatusCode::PAYLOAD_TOO_LARGE, fault)
        }
        RefusedDelivery::Busy => {
            Fault::new(FaultCode::Busy, "too many webhooks come at once; deliver it again").into()
        }
        RefusedDelivery::Invalid(fault) => fault.into(),
    }
}
