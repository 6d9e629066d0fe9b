//! Plays who signs people in, and a server that wants them signed in: real sockets of this machine, and the real protocol.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use url::{Url, form_urlencoded};

use super::played::tool;

/// A request.
pub struct HttpAsked {
    pub path: String,
    /// Of the address, and of a form.
    pub given: BTreeMap<String, String>,
    pub token: String,
    pub json: Value,
}

/// An answer: status, further lines of the head, body.
pub type HttpTold = (u16, String, String);

/// Answers until the test ends, each connection on a thread of its own; gives the address.
pub fn listens(answer: impl Fn(&HttpAsked) -> HttpTold + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            thread::spawn(move || serve(stream, &*answer));
        }
    });
    address
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&HttpAsked) -> HttpTold) {
    let mut reader = BufReader::new(&stream);
    let mut head = String::new();
    while reader.read_line(&mut head).is_ok_and(|count| count > 2) {}
    let line = |name: &str| {
        let all = head.lines().filter_map(|line| line.split_once(": "));
        all.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let mut body = vec![0; line("content-length").and_then(|length| length.parse().ok()).unwrap_or_default()];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let target = head.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let form = line("content-type").is_some_and(|kind| kind.contains("form"));
    let mut given: BTreeMap<String, String> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    if form {
        given.extend(form_urlencoded::parse(&body).into_owned());
    }
    let token = line("authorization").unwrap_or_default().trim_start_matches("Bearer ").to_owned();
    let asked = HttpAsked {
        path: path.to_owned(),
        given,
        token,
        json: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let (status, head, body) = answer(&asked);
    let told = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\nconnection: close\r\n{head}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(told.as_bytes());
}

/// What both know and a test changes.
#[derive(Default)]
pub struct Issued {
    /// What of the metadata of the issuer, and of the server, is otherwise.
    pub issuer: BTreeMap<&'static str, Value>,
    pub resource: BTreeMap<&'static str, Value>,
    /// Seconds for which a token is said to be good.
    pub lasts: Option<u64>,
    /// Whether answers do not say from whom they are, and whom they name instead.
    pub anonymous: bool,
    pub named: Option<String>,
    /// Codes with what they were given for.
    codes: BTreeMap<String, BTreeMap<String, String>>,
    /// Tokens that are good at the server, with the server; tokens to renew by.
    pub good: BTreeMap<String, String>,
    pub renewing: BTreeSet<String>,
    pub scopes: BTreeMap<String, String>,
    pub revoked: Vec<String>,
    /// What was asked for, and what came to the server.
    pub asked_tokens: Vec<BTreeMap<String, String>>,
    pub asked_authorizations: Vec<BTreeMap<String, String>>,
    pub registered: Vec<Value>,
    pub came: Vec<String>,
    made: usize,
}

#[derive(Clone, Default)]
pub struct Issuer(Arc<Mutex<Issued>>);

pub fn ok(body: &Value) -> HttpTold {
    (200, String::new(), body.to_string())
}

fn wrong(error: &str) -> HttpTold {
    let told = json!({"error": error, "error_description": "It is <not> to be."});
    (400, String::new(), told.to_string())
}

impl Issuer {
    pub fn lock(&self) -> MutexGuard<'_, Issued> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins; gives the name of the issuer.
    pub fn begin(&self) -> String {
        let (issuer, place) = (self.clone(), Arc::<Mutex<String>>::default());
        let own = Arc::clone(&place);
        let address = listens(move |asked| {
            let own = own.lock().expect("a lock").clone();
            issuer.answer(&own, asked)
        });
        place.lock().expect("a lock").clone_from(&address);
        address
    }

    fn answer(&self, own: &str, asked: &HttpAsked) -> HttpTold {
        let mut all = self.lock();
        match asked.path.as_str() {
            "/.well-known/oauth-authorization-server" => {
                let mut facts = json!({"issuer": own, "authorization_endpoint": format!("{own}/authorize"),
                    "token_endpoint": format!("{own}/token"), "registration_endpoint": format!("{own}/register"),
                    "revocation_endpoint": format!("{own}/revoke"), "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                    "authorization_response_iss_parameter_supported": true});
                for (key, value) in &all.issuer {
                    facts[*key] = value.clone();
                }
                ok(&facts)
            }
            "/register" => {
                all.registered.push(asked.json.clone());
                ok(&json!({"client_id": format!("client-{}", all.registered.len())}))
            }
            "/authorize" => {
                all.made += 1;
                let code = format!("code-{}", all.made);
                all.codes.insert(code.clone(), asked.given.clone());
                all.asked_authorizations.push(asked.given.clone());
                let mut back = Url::parse(&asked.given["redirect_uri"]).expect("an address");
                back.query_pairs_mut().append_pair("code", &code).append_pair("state", &asked.given["state"]);
                if !all.anonymous {
                    let named = all.named.clone().unwrap_or(own.to_owned());
                    back.query_pairs_mut().append_pair("iss", &named);
                }
                (302, format!("location: {back}\r\n"), String::new())
            }
            "/token" => Self::tokens(&mut all, &asked.given),
            "/revoke" => {
                let token = asked.given["token"].clone();
                all.good.remove(&token);
                all.renewing.remove(&token);
                all.revoked.push(token);
                ok(&json!({}))
            }
            _ => (404, String::new(), String::new()),
        }
    }

    fn tokens(all: &mut Issued, given: &BTreeMap<String, String>) -> HttpTold {
        all.asked_tokens.push(given.clone());
        let get = |name: &str| given.get(name).cloned().unwrap_or_default();
        let scope = match get("grant_type").as_str() {
            "authorization_code" => {
                let Some(asked) = all.codes.remove(&get("code")) else { return wrong("invalid_grant") };
                let proof = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(get("code_verifier")));
                let same =
                    ["redirect_uri", "client_id", "resource"].iter().all(|name| asked[*name] == get(name));
                if proof != asked["code_challenge"] || asked["code_challenge_method"] != "S256" || !same {
                    return wrong("invalid_grant");
                }
                asked.get("scope").cloned()
            }
            // What was used once is worth nothing any more.
            _ if !all.renewing.remove(&get("refresh_token")) => return wrong("invalid_grant"),
            _ => None,
        };
        all.made += 1;
        let (access, refresh) = (format!("access-token-{}", all.made), format!("refresh-token-{}", all.made));
        all.good.insert(access.clone(), get("resource"));
        all.scopes.insert(access.clone(), scope.unwrap_or_default());
        all.renewing.insert(refresh.clone());
        let mut told = json!({"access_token": access, "token_type": "Bearer", "refresh_token": refresh});
        if let Some(lasts) = all.lasts {
            told["expires_in"] = lasts.into();
        }
        ok(&told)
    }

    /// Begins a server that takes the tokens of this issuer alone; gives its address.
    pub fn server(&self, issuer: &str) -> String {
        let (all, issuer, place) = (self.clone(), issuer.to_owned(), Arc::<Mutex<String>>::default());
        let own = Arc::clone(&place);
        let address = listens(move |asked| {
            let own = format!("{}/mcp", own.lock().expect("a lock"));
            all.guarded(&own, &issuer, asked)
        });
        place.lock().expect("a lock").clone_from(&address);
        format!("{address}/mcp")
    }

    fn guarded(&self, own: &str, issuer: &str, asked: &HttpAsked) -> HttpTold {
        let mut all = self.lock();
        if asked.path == "/.well-known/oauth-protected-resource/mcp" {
            let mut facts =
                json!({"resource": own, "authorization_servers": [issuer], "scopes_supported": ["basic"]});
            for (key, value) in &all.resource {
                facts[*key] = value.clone();
            }
            return ok(&facts);
        }
        all.came.push(asked.token.clone());
        if all.good.get(&asked.token).is_none_or(|resource| resource != own) {
            return (
                401,
                "www-authenticate: Bearer error=\"invalid_token\", scope=\"use read\"\r\n".into(),
                String::new(),
            );
        }
        if asked.json["params"]["arguments"]["text"] == "more"
            && !all.scopes[&asked.token].split(' ').any(|scope| scope == "write")
        {
            let told = "www-authenticate: Bearer error=\"insufficient_scope\", scope=\"write\"\r\n";
            return (403, told.into(), String::new());
        }
        let result = match asked.json["method"].as_str() {
            Some("initialize") => {
                json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "h", "version": "1"}})
            }
            Some("tools/list") => json!({"tools": [tool("say", "Says it.")]}),
            // It repeats what it may not.
            Some("tools/call") => {
                json!({"content": [{"type": "text", "text": format!("by {}", asked.token)}]})
            }
            Some("server/discover") => return (400, String::new(), "what?".into()),
            None => return (405, String::new(), String::new()),
            _ => return (202, String::new(), String::new()),
        };
        ok(&json!({"jsonrpc": "2.0", "id": asked.json["id"], "result": result}))
    }
}

/// Does what a browser would do at an address: gives where it is led.
pub fn visits(address: &str) -> String {
    let url = Url::parse(address).expect("an address");
    let mut stream = TcpStream::connect((url.host_str().expect("a host"), url.port().expect("a port")))
        .expect("it listens");
    let target = &url[url::Position::BeforePath..];
    write!(stream, "GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let place = answer.lines().find_map(|line| line.strip_prefix("location: "));
    place.unwrap_or_else(|| panic!("led nowhere: {answer}")).to_owned()
}
