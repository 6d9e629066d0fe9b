//! What an editor asks for: the methods of an agent of ACP v1, without those for which there is nothing to do here (`logout`,
//! `session/delete`).

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use drupe_extension_api::{
    AgentId, Fault, ResponseStatus, SessionId,
    control::AgentStatus,
    wire::{Submit, Submitted},
};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    connection::{EditorConnection, MOST_SESSIONS, Work},
    following, permission,
    prompt::{self, PromptBlock},
    rpc::{self, RpcError},
    session::OpenSession,
    translation::{Translation, TurnEnding},
    updates,
};

/// The version of the protocol that is spoken, whichever the editor would like best.
const VERSION: u16 = 1;

/// Sessions of one page of the list.
const PAGE: usize = 100;

/// The way to sign in. There is nothing to do: whoever is connected has shown a token.
const AUTH_METHOD: &str = "token";

/// An answer, and what is to be done once it is sent.
pub struct Answered {
    pub result: Value,
    pub then: Option<Work>,
}

impl From<Value> for Answered {
    fn from(result: Value) -> Self {
        Self { result, then: None }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NewSession {
    /// As the protocol has it, though agents work in the daemon's workspace.
    cwd: String,
    #[serde(default)]
    mcp_servers: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KnownSession {
    session_id: SessionId,
    #[serde(default)]
    mcp_servers: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListedSessions {
    cwd: Option<String>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetMode {
    session_id: SessionId,
    mode_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetOption {
    session_id: SessionId,
    config_id: String,
    value: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptOf {
    session_id: SessionId,
    prompt: Vec<PromptBlock>,
}

/// Does what a request asks for. `taken_back` says of a prompt that the editor does not want it any more.
pub async fn call(
    connection: &Arc<EditorConnection>,
    method: &str,
    params: Value,
    id: &Value,
    taken_back: Option<Arc<AtomicBool>>,
) -> Result<Answered, RpcError> {
    match method {
        "initialize" => initialize(connection, &params),
        "authenticate" => match params["methodId"].as_str() {
            Some(AUTH_METHOD) => Ok(json!({}).into()),
            other => Err(RpcError::params(format!("`methodId` is {other:?}; there is `{AUTH_METHOD}`"))),
        },
        "session/new" => new(connection, rpc::read(params)?).await,
        "session/load" => load(connection, rpc::read(params)?).await,
        "session/resume" => resume(connection, rpc::read(params)?).await,
        "session/list" => {
            list(connection, if params.is_null() { Default::default() } else { rpc::read(params)? }).await
        }
        "session/close" => Ok(close(connection, &rpc::read(params)?).await),
        "session/set_mode" => set_mode(connection, rpc::read(params)?).await,
        "session/set_config_option" => set_option(connection, rpc::read(params)?).await,
        "session/prompt" => prompt(connection, rpc::read(params)?, id, &taken_back.unwrap_or_default())
            .await
            .map(Answered::from),
        _ => Err(RpcError::no_method(method)),
    }
}

fn initialize(connection: &EditorConnection, params: &Value) -> Result<Answered, RpcError> {
    if !params["protocolVersion"].is_u64() {
        return Err(RpcError::params("`protocolVersion` is to be a number"));
    }
    let notices = params["clientCapabilities"]["session"]["notices"].is_object();
    connection.notices.store(notices, Ordering::Relaxed);
    Ok(json!({
        "protocolVersion": VERSION,
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": { "image": false, "audio": false, "embeddedContext": true },
            "mcpCapabilities": { "http": false, "sse": false },
            "sessionCapabilities": { "list": {}, "resume": {}, "close": {} },
        },
        "agentInfo": { "name": "drupe", "title": "drupe", "version": env!("CARGO_PKG_VERSION") },
        "authMethods": [{
            "id": AUTH_METHOD,
            "name": "Token of the daemon",
            "description": "`drupe acp` shows the token of its user, or the one that it is given.",
        }],
    })
    .into())
}

async fn new(connection: &Arc<EditorConnection>, asked: NewSession) -> Result<Answered, RpcError> {
    if !asked.cwd.starts_with('/') {
        return Err(RpcError::params("`cwd` is to be an absolute path"));
    }
    let id = format!("{}:{}", connection.daemon.above(), Uuid::now_v7().simple());
    let session = SessionId::new(id).map_err(Fault::from)?;
    let agents = connection.daemon.agents().await?;
    follow(connection, &session, Translation::new(connection.daemon.workspace()), 0).await?;
    let mut result = chosen(&agents, None);
    result["sessionId"] = json!(session);
    Ok(Answered { result, then: Some(shown(connection, session, agents, asked.mcp_servers)) })
}

/// Everything of a session is shown before this is answered, and questions that are still open are asked after it.
async fn load(connection: &Arc<EditorConnection>, asked: KnownSession) -> Result<Answered, RpcError> {
    let session = asked.session_id;
    let detail = connection.daemon.session(&session).await?;
    let agents = connection.daemon.agents().await?;
    forget(connection, session.as_str());
    let (translation, last) = following::replay(connection, &session).await?;
    let questions = translation.questions().to_vec();
    follow(connection, &session, translation, last).await?;
    let result = chosen(&agents, detail.status.agent.as_ref());
    let shown = shown(connection, session.clone(), agents, asked.mcp_servers);
    let connection = Arc::clone(connection);
    let then = Box::pin(async move {
        shown.await;
        questions.into_iter().for_each(|question| permission::ask(&connection, &session, question));
    });
    Ok(Answered { result, then: Some(then) })
}

/// The same, and nothing of it is shown.
async fn resume(connection: &Arc<EditorConnection>, asked: KnownSession) -> Result<Answered, RpcError> {
    let session = asked.session_id;
    let detail = connection.daemon.session(&session).await?;
    let agents = connection.daemon.agents().await?;
    forget(connection, session.as_str());
    follow(connection, &session, Translation::new(connection.daemon.workspace()), detail.last_seq).await?;
    let result = chosen(&agents, detail.status.agent.as_ref());
    Ok(Answered { result, then: Some(shown(connection, session, agents, asked.mcp_servers)) })
}

async fn list(connection: &Arc<EditorConnection>, asked: ListedSessions) -> Result<Answered, RpcError> {
    let from: usize = match &asked.cursor {
        None => 0,
        Some(cursor) => cursor.parse().map_err(|_| RpcError::params("`cursor` is none that was given"))?,
    };
    let mut sessions = connection.daemon.sessions().await?;
    sessions.sort_by(|one, other| other.updated.cmp(&one.updated).then(one.id.cmp(&other.id)));
    // A session is bound to no folder: it can be gone on with from each.
    let cwd = asked.cwd.unwrap_or_else(|| connection.daemon.workspace());
    let page = sessions.iter().skip(from).take(PAGE).map(|session| {
        json!({ "sessionId": session.id, "cwd": cwd, "title": session.title, "updatedAt": session.updated })
    });
    let mut result = json!({ "sessions": page.collect::<Vec<_>>() });
    if sessions.len() > from.saturating_add(PAGE) {
        result["nextCursor"] = (from + PAGE).to_string().into();
    }
    Ok(result.into())
}

/// What goes on in it is stopped, as the protocol has it.
async fn close(connection: &Arc<EditorConnection>, asked: &KnownSession) -> Answered {
    connection.cancel(asked.session_id.as_str());
    forget(connection, asked.session_id.as_str());
    permission::closed(connection, asked.session_id.as_str()).await;
    json!({}).into()
}

async fn set_mode(connection: &Arc<EditorConnection>, asked: SetMode) -> Result<Answered, RpcError> {
    let agents = select(connection, &asked.session_id, &asked.mode_id).await?;
    let update = json!({
        "sessionUpdate": "config_option_update",
        "configOptions": updates::options(&agents, &asked.mode_id),
    });
    Ok(Answered { result: json!({}), then: Some(later(connection, asked.session_id, update)) })
}

async fn set_option(connection: &Arc<EditorConnection>, asked: SetOption) -> Result<Answered, RpcError> {
    if asked.config_id != updates::AGENT_OPTION {
        return Err(RpcError::params(format!(
            "there is no option `{}`, but `{}`",
            asked.config_id,
            updates::AGENT_OPTION
        )));
    }
    let Some(value) = asked.value.as_str() else {
        return Err(RpcError::params("`value` is to be the id of an agent"));
    };
    let agents = select(connection, &asked.session_id, value).await?;
    let result = json!({ "configOptions": updates::options(&agents, value) });
    let update = json!({ "sessionUpdate": "current_mode_update", "currentModeId": value });
    Ok(Answered { result, then: Some(later(connection, asked.session_id, update)) })
}

async fn select(
    connection: &EditorConnection,
    session: &SessionId,
    mode: &str,
) -> Result<Vec<AgentStatus>, RpcError> {
    let agent = match mode {
        updates::ORCHESTRATOR => None,
        id => Some(AgentId::new(id).map_err(Fault::from)?),
    };
    // One that has no message yet does not exist, so it needs no giving back.
    if agent.is_some() || connection.daemon.session(session).await.is_ok() {
        connection.daemon.select(session, agent).await?;
    }
    Ok(connection.daemon.agents().await?)
}

/// A turn in the session; this is answered when it has ended, after all of it was shown.
async fn prompt(
    connection: &Arc<EditorConnection>,
    asked: PromptOf,
    id: &Value,
    taken_back: &AtomicBool,
) -> Result<Value, RpcError> {
    let session = asked.session_id;
    let agents = connection.daemon.agents().await?;
    let (agent, text) = prompt::message(asked.prompt, &agents)?;
    let open = opened(connection, &session).await?;
    if taken_back.load(Ordering::Relaxed) {
        return Ok(json!({ "stopReason": "cancelled" }));
    }
    let mut prompted = open.prompt(&text)?;
    let message =
        Submit { agent, ..Submit::new(session.clone(), format!("{}:{id}", connection.key), text.clone()) };
    let Submitted { turn, duplicate, .. } = connection.daemon.submit(message).await?;
    prompted.became(turn.clone());
    if taken_back.load(Ordering::Relaxed) {
        connection.daemon.stop(turn.clone()).await?;
    }
    // The turn of a message that was handed in before may have ended before anybody followed it.
    let result = if duplicate { connection.daemon.turn(turn.clone()).await.ok() } else { None };
    let ended_before = result.and_then(|result| {
        let (error, class, spend) = (result.error, result.class, result.spend);
        result.status.map(|status| TurnEnding { status, error, class, limit: None, spend })
    });
    let ending = match ended_before {
        Some(ending) => ending,
        None => match prompted.end().await {
            // It was closed, which stops the turn.
            Err(_) if taken_back.load(Ordering::Relaxed) => return Ok(json!({ "stopReason": "cancelled" })),
            end => end?,
        },
    };
    if taken_back.load(Ordering::Relaxed) && ending.status != ResponseStatus::Success {
        return Ok(json!({ "stopReason": "cancelled", "usage": ending.usage() }));
    }
    match ending.stop_reason() {
        Some(reason) => Ok(
            json!({ "stopReason": reason, "usage": ending.usage(), "_meta": { "drupe": { "turn": turn } } }),
        ),
        None => {
            let remedy = ending.class.map(|class| class.remedy());
            let data = json!({ "turn": turn, "class": ending.class, "help": remedy });
            let error = ending.error.unwrap_or_else(|| "the turn failed".into());
            Err(RpcError::failed(error, data))
        }
    }
}

/// The session as this connection has it open; one that it has not is followed from now on.
async fn opened(
    connection: &Arc<EditorConnection>,
    session: &SessionId,
) -> Result<Arc<OpenSession>, RpcError> {
    let known = connection.sessions.lock().get(session.as_str()).cloned();
    match known {
        Some(open) => Ok(open),
        None => {
            let last = connection.daemon.session(session).await?.last_seq;
            follow(connection, session, Translation::new(connection.daemon.workspace()), last).await
        }
    }
}

async fn follow(
    connection: &Arc<EditorConnection>,
    session: &SessionId,
    translation: Translation,
    after: u64,
) -> Result<Arc<OpenSession>, RpcError> {
    let events = connection.daemon.events(session, after, true).await?;
    let open = Arc::new(OpenSession::new(session.clone()));
    {
        let mut sessions = connection.sessions.lock();
        if sessions.len() >= MOST_SESSIONS {
            let fault = Fault::invalid(format!("{MOST_SESSIONS} sessions are open over this connection"));
            return Err(fault.help("close one with `session/close`").into());
        }
        if let Some(before) = sessions.insert(session.to_string(), Arc::clone(&open)) {
            before.closed.notify_one();
        }
    }
    let follow = following::follow(Arc::clone(connection), Arc::clone(&open), translation, events);
    connection.begin(Box::pin(follow));
    Ok(open)
}

fn forget(connection: &EditorConnection, session: &str) {
    if let Some(open) = connection.sessions.lock().remove(session) {
        open.closed.notify_one();
    }
}

fn chosen(agents: &[AgentStatus], agent: Option<&AgentId>) -> Value {
    let current = agent.map_or(updates::ORCHESTRATOR, AgentId::as_str);
    json!({ "modes": updates::modes(agents, current), "configOptions": updates::options(agents, current) })
}

/// What an editor is told of a session once it knows it.
fn shown(
    connection: &Arc<EditorConnection>,
    session: SessionId,
    agents: Vec<AgentStatus>,
    servers: Vec<Value>,
) -> Work {
    let connection = Arc::clone(connection);
    Box::pin(async move {
        connection.update(session.as_str(), updates::commands(&agents)).await;
        if !servers.is_empty() {
            let text = "the editor's MCP servers are not used: agents have the tools of the daemon, in its workspace";
            connection.notice(session.as_str(), "info", text).await;
        }
    })
}

fn later(connection: &Arc<EditorConnection>, session: SessionId, update: Value) -> Work {
    let connection = Arc::clone(connection);
    Box::pin(async move { connection.update(session.as_str(), update).await })
}
