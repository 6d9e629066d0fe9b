//! The keys of the configuration. They hold secrets (variables, headers), so that nothing here can be printed.

use std::{collections::BTreeMap, time::Duration};

use drupe_extension_api::{prelude::*, wire::AgentServers};
use http::{HeaderName, HeaderValue};
use serde_json::json;
use url::Url;

use crate::names;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpSettings {
    pub search_above: usize,
    pub instances: usize,
    idle_minutes: u64,
    start_s: u64,
    output_kb: usize,
    pub memory_mb: u64,
    pub tasks: u64,
    pub servers: BTreeMap<String, ServerSettings>,
}

impl Default for McpSettings {
    fn default() -> Self {
        Self {
            search_above: 40,
            instances: 16,
            idle_minutes: 10,
            start_s: 30,
            output_kb: 256,
            memory_mb: 2048,
            tasks: 256,
            servers: BTreeMap::new(),
        }
    }
}

/// One server, as the operator names it, or an agent's manifest.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerSettings {
    pub command: Option<String>,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub network: bool,
    pub workspace: bool,
    pub url: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub oauth: OauthSettings,
    pub tools: Rules,
    timeout_s: u64,
    pub preconnect: bool,
    pub enabled: bool,
    pub share: bool,
    /// Whether its skills are offered, where it has any.
    pub skills: bool,
    /// The agent whose manifest names it. Nobody else is offered its tools.
    #[serde(skip)]
    pub only_for: Option<AgentId>,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            network: false,
            workspace: false,
            url: None,
            headers: BTreeMap::new(),
            oauth: OauthSettings::default(),
            tools: Rules::default(),
            timeout_s: 60,
            preconnect: false,
            enabled: true,
            share: false,
            skills: true,
            only_for: None,
        }
    }
}

/// With what a server that is spoken to by HTTP is signed in to, where that is not found by itself.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OauthSettings {
    /// As what drupe is registered, and with whom.
    pub client_id: Option<String>,
    pub client_secret: Option<String>,
    pub issuer: Option<String>,
    /// What is asked for, in place of what the server names.
    pub scopes: Vec<String>,
}

impl OauthSettings {
    fn is_empty(&self) -> bool {
        self.client_id.is_none()
            && self.client_secret.is_none()
            && self.issuer.is_none()
            && self.scopes.is_empty()
    }
}

/// Bytes from which a value is taken for a secret. Shorter ones are words such as `true`, which stand everywhere.
pub const SECRET: usize = 6;

/// What the operator says of a server's tools, by patterns of their names.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    allow: Option<Vec<String>>,
    deny: Vec<String>,
    read_only: Vec<String>,
}

impl Rules {
    /// Whether a tool may be offered.
    pub fn admits(&self, tool: &str) -> bool {
        let allowed = self.allow.as_ref().is_none_or(|patterns| any(patterns, tool));
        allowed && !any(&self.deny, tool)
    }

    /// Whether the operator answers for it that it changes nothing.
    pub fn read_only(&self, tool: &str) -> bool {
        any(&self.read_only, tool)
    }
}

fn any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| names::matches(pattern, name))
}

impl McpSettings {
    pub fn read(host: &Host) -> Result<Self, Fault> {
        let settings: Self = host.config()?;
        for (name, server) in &settings.servers {
            names::check_server(name)?;
            server.check().map_err(|why| {
                Fault::invalid(format!("`extensions.mcp.servers.{name}` {}", why.message))
                    .help(why.help.unwrap_or_default())
            })?;
        }
        Ok(settings)
    }

    /// These with the servers of agents in place of those that there were, and what of them cannot be used.
    pub fn with_agents(&self, given: &AgentServers) -> (Self, Vec<Fault>) {
        let mut settings = self.clone();
        settings.servers.retain(|_, server| server.only_for.is_none());
        let mut faults = Vec::new();
        for (agent, servers) in &given.agents {
            for (name, value) in servers {
                // The form of its name is that of manifests.
                let read = || {
                    let server: ServerSettings = serde_json::from_value(value.clone())?;
                    server.check()?;
                    Ok::<_, Fault>(ServerSettings { only_for: Some(agent.clone()), ..server })
                };
                match read() {
                    Ok(server) => drop(settings.servers.insert(names::of_agent(agent, name), server)),
                    Err(fault) => {
                        let message =
                            format!("the MCP server `{name}` of the agent `{agent}` {}", fault.message);
                        faults.push(Fault { message, ..fault });
                    }
                }
            }
        }
        (settings, faults)
    }

    pub fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_minutes * 60)
    }

    /// In which a server must have started.
    pub fn start(&self) -> Duration {
        Duration::from_secs(self.start_s)
    }

    /// Bytes of a result that are given; the rest is cut off.
    pub fn output(&self) -> usize {
        self.output_kb << 10
    }
}

impl ServerSettings {
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s)
    }

    /// Whether what it is given can leave this machine.
    pub fn reaches_out(&self) -> bool {
        self.network || self.url.is_some()
    }

    /// Whom the operator named, as a hash: another command, other arguments or another address are another server.
    pub fn definition(&self) -> String {
        names::hash(json!([self.command, self.args, self.url]).to_string().as_bytes())
    }

    /// Texts that must not be shown, although the server may repeat them.
    pub fn secrets(&self) -> Vec<String> {
        let values = self.env.values().chain(self.headers.values()).chain(&self.oauth.client_secret);
        let words = values.flat_map(|value| [value.as_str(), value.rsplit(' ').next().unwrap_or_default()]);
        let url = self.url.as_ref().and_then(|url| Url::parse(url).ok());
        let asked = url.iter().flat_map(|url| url.query_pairs().map(|(_, value)| value.into_owned()));
        let words = words.map(str::to_owned).chain(asked);
        let mut secrets: Vec<String> = words.filter(|word| word.len() >= SECRET).collect();
        // A part of one that was replaced would leave the rest of it.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        secrets
    }

    /// Whether the operator gives it a token by himself.
    pub fn has_authorization(&self) -> bool {
        self.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"))
    }

    /// Its headers, in the form of the protocol.
    pub fn header_map(&self) -> Result<Vec<(HeaderName, HeaderValue)>, Fault> {
        let header = |(name, value): (&String, &String)| {
            let parsed =
                HeaderName::try_from(name.as_str()).ok().zip(HeaderValue::try_from(value.as_str()).ok());
            let (key, mut value) = parsed
                .ok_or_else(|| Fault::invalid(format!("has the header `{name}`, which cannot be sent")))?;
            value.set_sensitive(true);
            Ok((key, value))
        };
        self.headers.iter().map(header).collect()
    }

    /// What is wrong with it, as the end of a sentence.
    fn check(&self) -> Result<(), Fault> {
        let wrong = |message: &str, help: &'static str| Err(Fault::invalid(message).help(help));
        match (&self.command, &self.url) {
            (None, None) => return wrong("names neither `command` nor `url`", "a server needs one of them"),
            (Some(_), Some(_)) => return wrong("names both `command` and `url`", "leave one of them out"),
            (Some(_), None) if !self.headers.is_empty() => {
                return wrong(
                    "has `headers` and a `command`",
                    "headers go with `url`, variables in `env` with `command`",
                );
            }
            (Some(_), None) if !self.oauth.is_empty() => {
                return wrong("has `oauth` and a `command`", "only a server with a `url` is signed in to");
            }
            (None, Some(url)) => {
                if !self.args.is_empty() || !self.env.is_empty() || self.network || self.workspace {
                    let help = "`args`, `env`, `network` and `workspace` go with `command`";
                    return wrong("has a `url` and keys of a program", help);
                }
                check_url(url)?;
                self.header_map()?;
                if self.has_authorization() && !self.oauth.is_empty() {
                    let help = "leave `Authorization` out of `headers` to sign in, or leave `oauth` out";
                    return wrong("has `oauth` and a token under `headers`", help);
                }
                if self.oauth.client_id.is_some() != self.oauth.issuer.is_some() {
                    let help = "what drupe is registered as holds for one issuer: name both";
                    return wrong("has `oauth.client_id` or `oauth.issuer` without the other", help);
                }
                if self.oauth.client_secret.is_some() && self.oauth.client_id.is_none() {
                    return wrong("has `oauth.client_secret` without `oauth.client_id`", "name both");
                }
            }
            (Some(_), None) => {}
        }
        if self.preconnect && !self.share {
            let help = "without `share: true` each conversation has an instance of its own, so that none could be kept";
            return wrong("has `preconnect` without `share`", help);
        }
        Ok(())
    }
}

fn check_url(url: &str) -> Result<(), Fault> {
    let parsed = Url::parse(url)
        .map_err(|error| Fault::invalid(format!("has a `url` that is no address: {error}")))?;
    if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none() {
        return Err(Fault::invalid("has a `url` that is not `http` or `https`"));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(Fault::invalid("has a name or a password in its `url`")
            .help("give them as a header: `headers: {Authorization: \"Bearer ${NAME}\"}`"));
    }
    Ok(())
}
