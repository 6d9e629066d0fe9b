//! A connection with one server, by either revision of the protocol and either transport.
//!
//! The newer revision is tried first, with its probe. What does not answer that as the library expects (it ends, it answers what
//! is no answer, it is a program and says nothing) is begun again from nothing with `initialize`; which of the two a server wants is
//! remembered.

use std::{sync::Arc, time::Duration};

use drupe_extension_api::prelude::*;
use reqwest::redirect;
use rmcp::{
    RoleClient,
    model::PaginatedRequestParams,
    service::{ClientInitializeError, RunningService, ServiceError},
    transport::{
        StreamableHttpClientTransport,
        async_rw::AsyncRwTransport,
        streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError},
    },
};
use url::Url;

use crate::{
    asking::Asking,
    begin::{Way, begin},
    client::McpClient,
    config::{McpSettings, ServerSettings},
    definition::{self, NotOffered, ToolText, shown},
    load_skill::HeldSkills,
    oauth::{BearerChallenge, Signed, SignedClient},
    pins::Told,
    process::{self, ProgramGuard},
    tail::LastLines,
};

/// Pages of a list, and what all of them may hold: a server could give pages without end.
pub const PAGES: usize = 64;

/// Bytes of what an error of the library says.
const ERROR: usize = 1024;

/// A server that answers. Dropping it ends the connection, and the program behind it.
pub struct Connection {
    name: String,
    pub service: RunningService<RoleClient, McpClient>,
    /// The program, where it is one.
    _running: Option<ProgramGuard>,
    pub tail: Arc<LastLines>,
    /// Who may be signed in to it, where somebody can.
    signed: Option<Signed>,
    pub version: String,
    pub initialize: bool,
    /// The calls on whose behalf it may ask people.
    pub asking: Arc<Asking>,
    /// By which entries skills were loaded.
    pub held: HeldSkills,
}

/// Connects with a server, within its time.
pub async fn connect(
    host: &Host,
    settings: &McpSettings,
    name: &str,
    server: &ServerSettings,
    signed: Option<Signed>,
    initialize: bool,
    changed: Arc<dyn Fn() + Send + Sync>,
) -> Result<Connection, Fault> {
    let ways = if initialize { [Way::Initialize, Way::Probe] } else { [Way::Probe, Way::Initialize] };
    let mut failed = None;
    for way in ways {
        let tail = Arc::new(LastLines::new(server.secrets()));
        let asking = Arc::<Asking>::default();
        let client = McpClient {
            name: name.to_owned(),
            root: root(host, server),
            skills: server.skills,
            changed: Arc::clone(&changed),
            asking: Arc::clone(&asking),
        };
        let begun = async {
            match &server.url {
                Some(url) => Ok((begin(client, http(url, server, signed.clone())?, way).await?, None)),
                None => {
                    let spec = process::spec(host, settings, name, server)?;
                    let (stream, running) = process::start(host, &spec, &tail).await?;
                    let (read, write) = tokio::io::split(stream);
                    let transport = AsyncRwTransport::new(read, write).with_max_line_length(process::MESSAGE);
                    Ok((begin(client, transport, way).await?, Some(running)))
                }
            }
        };
        let begun = within(host, settings.start(), begun).await;
        let Some(begun) = begun? else {
            let message = format!(
                "the MCP server `{name}` did not answer in {} s{}",
                settings.start().as_secs(),
                tail.told()
            );
            let fault = Fault::new(FaultCode::Timeout, message);
            // Programs of older revisions need not answer what they do not know; who serves HTTP and says nothing is away.
            if way == Way::Probe && !initialize && server.url.is_none() {
                failed = Some(fault);
                continue;
            }
            return Err(fault);
        };
        match begun {
            Ok((service, running)) => {
                let version =
                    service.peer_info().map(|info| info.protocol_version.clone()).unwrap_or_default();
                let initialize = version.has_initialize();
                let version = shown(&version.to_string());
                let name = name.to_owned();
                return Ok(Connection {
                    name,
                    service,
                    _running: running,
                    tail,
                    signed,
                    version,
                    initialize,
                    asking,
                    held: HeldSkills::default(),
                });
            }
            Err(Begun::Fault(fault)) => return Err(told(name, &tail, fault)),
            // It is not asked in another way, since it answered.
            Err(Begun::Protocol(error)) if error.is_authorization_required() => {
                return Err(sign_in(name, signed.is_some()));
            }
            Err(Begun::Protocol(error)) => {
                let message = tail.hidden(hidden(signed.as_ref(), cut(&shown(&of_start(&error)))));
                failed = Some(told(name, &tail, Fault::new(FaultCode::Unavailable, message)));
            }
        }
    }
    Err(failed.unwrap_or_else(|| Fault::internal("a server was begun in no way")))
}

/// Why a server could not be begun with: before anything was said to it, or by what it said.
enum Begun {
    Fault(Fault),
    Protocol(Box<ClientInitializeError>),
}

impl From<Fault> for Begun {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Box<ClientInitializeError>> for Begun {
    fn from(error: Box<ClientInitializeError>) -> Self {
        Self::Protocol(error)
    }
}

/// The fault that a server wants to know who asks.
fn sign_in(name: &str, can: bool) -> Fault {
    let what = match can {
        true => format!("sign in with `drupe mcp login {name}`"),
        false => "give it a token that it takes under `headers`".to_owned(),
    };
    let message = format!("the MCP server `{name}` wants to know who asks: {what}");
    Fault::new(FaultCode::Unauthenticated, message)
}

/// A text without the tokens of a server.
fn hidden(signed: Option<&Signed>, text: String) -> String {
    match signed {
        Some(signed) => signed.signins.hidden(&signed.name, text),
        None => text,
    }
}

fn told(name: &str, tail: &LastLines, fault: Fault) -> Fault {
    let message = format!("the MCP server `{name}` could not be started: {}{}", fault.message, tail.told());
    Fault { message, ..fault }
}

fn root(host: &Host, server: &ServerSettings) -> Option<String> {
    let folder = server.workspace.then(|| host.workspace().canonicalize().ok()).flatten()?;
    Url::from_directory_path(folder).ok().map(|url| url.to_string().trim_end_matches('/').to_owned())
}

/// One that is spoken to by HTTP. It is not followed elsewhere, since its headers would go there, and no proxy of an
/// environment is asked.
fn http(
    url: &str,
    server: &ServerSettings,
    signed: Option<Signed>,
) -> Result<StreamableHttpClientTransport<SignedClient>, Fault> {
    let client = SignedClient { web: client(|builder| builder)?, signed };
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(server.header_map()?.into_iter().collect())
        .max_json_response_size(process::MESSAGE)
        .max_sse_event_size(process::MESSAGE);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// A client that follows nowhere and asks no proxy.
pub fn client(
    more: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> Result<reqwest::Client, Fault> {
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls()?)
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(Duration::from_secs(10));
    more(builder).build().map_err(|error| Fault::internal(format!("no HTTP client can be made: {error}")))
}

/// TLS by the authorities of the system.
fn tls() -> Result<rustls::ClientConfig, Fault> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Fault::internal)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// What a future gives within a time, on the host's clock; none where the time is over.
pub async fn within<T>(
    host: &Host,
    time: Duration,
    work: impl Future<Output = T>,
) -> Result<Option<T>, Fault> {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased;
        done = &mut work => Ok(Some(done)),
        slept = host.sleep(time) => slept.map(|()| None),
    }
}

/// The same for a call of a server that may ask people: its time begins anew when it is answered.
pub async fn within_asked<T>(
    host: &Host,
    time: Duration,
    asking: &Asking,
    work: impl Future<Output = T>,
) -> Result<Option<T>, Fault> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Ok(Some(done)),
            () = asking.until(true) => {}
            slept = host.sleep(time) => return slept.map(|()| None),
        }
        tokio::select! {
            biased;
            done = &mut work => return Ok(Some(done)),
            () = asking.until(false) => {}
        }
    }
}

/// Why a server could not be begun with, without the names of the library's types.
fn of_start(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => reason(error.error.as_ref()),
        error => reason(error),
    }
}

/// What an error says, with what is behind all of it.
pub fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    // It does not name the error of the client as its cause.
    if let Some(StreamableHttpError::Client(error)) =
        error.downcast_ref::<StreamableHttpError<reqwest::Error>>()
    {
        return reason(error);
    }
    let told = error.to_string();
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    match causes.last().map(ToString::to_string) {
        Some(cause) if !told.contains(&cause) => format!("{told}: {cause}"),
        _ => told,
    }
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(ERROR);
    if end < text.len() { format!("{}…", &text[..end]) } else { text.to_owned() }
}

impl Connection {
    /// Whether nothing can be asked of it any more.
    pub fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.is_transport_closed()
    }

    /// A text of the server without the tokens that it is asked with.
    pub fn hidden(&self, text: String) -> String {
        hidden(self.signed.as_ref(), text)
    }

    pub fn all_hidden(&self, texts: Vec<String>) -> Vec<String> {
        texts.into_iter().map(|text| self.hidden(text)).collect()
    }

    /// What it says of itself.
    pub async fn tell(&self) -> Result<Told, Fault> {
        let capabilities = self.service.peer_info().map(|info| info.capabilities.clone()).unwrap_or_default();
        let mut told = Told {
            resources: capabilities.resources.is_some(),
            prompts: capabilities.prompts.is_some(),
            skills: capabilities.supports_skills(),
            ..Told::default()
        };
        if capabilities.tools.is_none() {
            return Ok(told);
        }
        let unfit = |why: &str| NotOffered(why.to_owned());
        let (mut cursor, mut bytes) = (None, 0);
        for _ in 0..PAGES {
            let page = Some(PaginatedRequestParams::default().with_cursor(cursor.take()));
            let page = self.service.list_tools(page).await.map_err(|error| self.fault(&error))?;
            for tool in page.tools {
                let name = shown(&tool.name);
                let description = tool.description.as_deref().unwrap_or_default();
                let schema = serde_json::to_string(&*tool.input_schema).unwrap_or_default();
                let read = match self.hidden(schema.clone()) == schema {
                    true => ToolText::new(&self.hidden(description.to_owned()), (*tool.input_schema).clone()),
                    false => Err(unfit("repeats the token that the server is asked with")),
                };
                let read = read.and_then(|read| {
                    bytes += read.size();
                    let fits = told.tools.len() < definition::TOOLS && bytes <= definition::ALL;
                    // Skills are agreed to by their addresses.
                    let named = (1..=256).contains(&name.len()) && name == tool.name && !name.contains("://");
                    match (fits, named, told.tools.contains_key(&name)) {
                        (true, true, false) => Ok(read),
                        (false, ..) => Err(unfit("is beyond what one server may offer")),
                        (_, false, _) => Err(unfit("has a name that cannot be used")),
                        (.., true) => Err(unfit("is told twice")),
                    }
                });
                let name: String = name.chars().take(256).collect();
                match read {
                    Ok(definition) => drop(told.tools.insert(name, definition)),
                    Err(NotOffered(why)) if told.unfit.len() < definition::TOOLS => {
                        drop(told.unfit.insert(name, why))
                    }
                    Err(_) => {}
                }
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(told)
    }

    /// What became of something that was asked of it, as a fault.
    pub fn fault(&self, error: &ServiceError) -> Fault {
        match error {
            ServiceError::McpError(error) => {
                let message = self.tail.hidden(self.hidden(cut(&shown(&error.message))));
                Fault::new(
                    FaultCode::Other,
                    format!("the server answers with the error {}: {message}", error.code.0),
                )
            }
            error if error.is_authorization_required() => sign_in(&self.name, self.signed.is_some()),
            error => {
                if let Some(challenge) = lacks(error) {
                    return self.lacking(&challenge);
                }
                let reason = match error {
                    ServiceError::TransportSend(error) => reason(error.error.as_ref()),
                    error => reason(error),
                };
                let message = self.tail.hidden(self.hidden(cut(&shown(&reason))));
                Fault::new(FaultCode::Unavailable, format!("{message}{}", self.tail.told()))
            }
        }
    }
}

impl Connection {
    /// The fault that what somebody signed in with does not suffice.
    fn lacking(&self, challenge: &BearerChallenge) -> Fault {
        let scopes = shown(challenge.scope.as_deref().unwrap_or_default());
        let what = match scopes.trim() {
            "" => "what it was signed in to with does not allow this".to_owned(),
            scopes => {
                format!("what it was signed in to with does not allow this, which needs `{}`", cut(scopes))
            }
        };
        let fault = Fault::denied(format!("the server refuses: {what}"));
        match &self.signed {
            Some(signed) => fault.help(format!("`drupe mcp login {}` asks for that as well", signed.name)),
            None => fault.help("give it a token that allows it under `headers`"),
        }
    }
}

/// What a server says that a request lacked, where it was refused for that.
fn lacks(error: &ServiceError) -> Option<BearerChallenge> {
    let ServiceError::TransportSend(error) = error else { return None };
    match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::InsufficientScope(error)) => {
            Some(BearerChallenge::read(&error.www_authenticate_header))
        }
        _ => None,
    }
}

/// Whether a server refused something for want of scopes, and is well otherwise.
pub fn is_lacking(error: &ServiceError) -> bool {
    lacks(error).is_some()
}
