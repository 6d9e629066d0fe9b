//! Shows an editor what happens in a session, and what happened.

use std::sync::Arc;

use drupe_extension_api::{Event, Fault, Preview, ResponseStatus, SessionId, TurnId, sdk::Items};

use crate::{
    connection::EditorConnection,
    permission,
    session::OpenSession,
    translation::{ReadWhole, ShownPiece, Translation, TurnEnding},
    updates,
};

/// Sends all of a session so far. Gives what is known of it then, and where it ended.
pub async fn replay(
    connection: &Arc<EditorConnection>,
    session: &SessionId,
) -> Result<(Translation, u64), Fault> {
    let mut translation = Translation::new(connection.daemon.workspace());
    let mut events = connection.daemon.events(session, 0, false).await?;
    let mut last = 0;
    while let Some(event) = events.next().await? {
        last = last.max(event.seq);
        for piece in translation.take(&event) {
            again(connection, session, piece).await?;
        }
    }
    // What streams now began before.
    translation.missed();
    Ok((translation, last))
}

/// What has passed is shown, and nobody is asked or told about it once more.
async fn again(
    connection: &Arc<EditorConnection>,
    session: &SessionId,
    piece: ShownPiece,
) -> Result<(), Fault> {
    match piece {
        ShownPiece::Update(update) => connection.update(session.as_str(), update).await,
        ShownPiece::Read { handle, then } => read(connection, session, handle, then).await?,
        ShownPiece::Begun { turn, input } => said(connection, session, turn, &input).await?,
        ShownPiece::Answer(turn) => answer(connection, session, turn).await?,
        ShownPiece::Ended(turn, ending) => failed(connection, session, &turn, &ending).await,
        ShownPiece::TakenIn { .. }
        | ShownPiece::Asked(_)
        | ShownPiece::Settled(_)
        | ShownPiece::Notice { .. } => {}
    }
    Ok(())
}

/// Shows what happens from now on, until the session is closed.
pub async fn follow(
    connection: Arc<EditorConnection>,
    open: Arc<OpenSession>,
    mut translation: Translation,
    mut events: Items<Event>,
) {
    open.runs(translation.running().cloned());
    let fault = loop {
        let next = tokio::select! {
            next = events.next() => next,
            () = open.closed.notified() => break Fault::internal("the session was closed"),
        };
        let event = match next {
            Ok(Some(event)) => event,
            Ok(None) => break Fault::internal("the session's events ended"),
            Err(fault) => break fault,
        };
        for piece in translation.take(&event) {
            if let Err(fault) = live(&connection, &open, piece).await {
                connection.warn(&fault);
            }
        }
    };
    open.broke(fault);
    let mut sessions = connection.sessions.lock();
    if sessions.get(open.id.as_str()).is_some_and(|current| Arc::ptr_eq(current, &open)) {
        sessions.remove(open.id.as_str());
    }
}

async fn live(
    connection: &Arc<EditorConnection>,
    open: &Arc<OpenSession>,
    piece: ShownPiece,
) -> Result<(), Fault> {
    let session = &open.id;
    match piece {
        ShownPiece::Update(update) => connection.update(session.as_str(), update).await,
        ShownPiece::Read { handle, then } => read(connection, session, handle, then).await?,
        ShownPiece::Begun { turn, input } => {
            if !open.is_own(&turn, &input) {
                said(connection, session, turn, &input).await?;
            }
        }
        ShownPiece::TakenIn { turn, by } => open.moved(turn, by),
        ShownPiece::Answer(turn) => answer(connection, session, turn).await?,
        ShownPiece::Ended(turn, ending) => {
            // What the answer to a prompt says is not said twice.
            if !open.awaits(&turn) || !matches!(ending.stop_reason(), None | Some("cancelled")) {
                failed(connection, session, &turn, &ending).await;
            }
            open.ended(turn, ending);
        }
        ShownPiece::Asked(question) => permission::ask(connection, session, question),
        ShownPiece::Settled(call) => permission::settled(connection, &call).await,
        ShownPiece::Notice { severity, title } => connection.notice(session.as_str(), severity, &title).await,
    }
    Ok(())
}

/// Shows a message of the user, all of it.
async fn said(
    connection: &Arc<EditorConnection>,
    session: &SessionId,
    turn: TurnId,
    input: &Preview,
) -> Result<(), Fault> {
    let text = match input.truncated {
        true => connection.daemon.turn(turn.clone()).await?.input,
        false => input.text.clone(),
    };
    let update = updates::chunk("user_message_chunk", &text, &format!("{turn}.input"));
    connection.update(session.as_str(), update).await;
    Ok(())
}

/// Sends what depends on all of a text that an event shows the beginning of.
async fn read(
    connection: &Arc<EditorConnection>,
    session: &SessionId,
    handle: String,
    then: ReadWhole,
) -> Result<(), Fault> {
    let whole = connection.daemon.item(session, handle).await?;
    let text = if matches!(then, ReadWhole::Input { .. }) { whole.input } else { whole.output };
    if let Some(update) = then.with(&text.unwrap_or_default(), &connection.daemon.workspace()) {
        connection.update(session.as_str(), update).await;
    }
    Ok(())
}

/// Shows the answer of a turn that no message showed.
async fn answer(connection: &Arc<EditorConnection>, session: &SessionId, turn: TurnId) -> Result<(), Fault> {
    let result = connection.daemon.turn(turn.clone()).await?;
    if !result.content.is_empty() {
        let update = updates::chunk("agent_message_chunk", &result.content, &format!("{turn}.answer"));
        connection.update(session.as_str(), update).await;
    }
    Ok(())
}

/// Shows why a turn did not succeed.
async fn failed(connection: &Arc<EditorConnection>, session: &SessionId, turn: &TurnId, ending: &TurnEnding) {
    let Some(error) = ending.error.as_ref().filter(|_| ending.status != ResponseStatus::Success) else {
        return;
    };
    let update = updates::chunk("agent_message_chunk", error, &format!("{turn}.error"));
    connection.update(session.as_str(), update).await;
}
