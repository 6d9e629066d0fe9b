//! The extension's configuration, and what it means.

use std::{net::IpAddr, time::Duration};

use drupe_extension_api::prelude::*;
use serde_json::Value;

use crate::{address::MailAddress, results::OwnResults};

/// As its manifest has it, whose schema says what each key means.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmailSettings {
    address: String,
    #[serde(default)]
    name: Option<String>,
    imap: String,
    smtp: String,
    #[serde(default)]
    user: Option<String>,
    mailbox: String,
    authserv_id: String,
    own_received: usize,
    #[serde(default)]
    authority: Option<String>,
    idle_seconds: u64,
    poll_seconds: u64,
    answer_seconds: u64,
    /// Who is answered is the daemon's to decide, which reads it.
    #[serde(default)]
    allowed: Option<Vec<Value>>,
    #[serde(default)]
    agent: Option<AgentId>,
}

/// A mailbox, and the server that sends for it.
pub struct MailAccount {
    pub address: MailAddress,
    pub name: Option<String>,
    pub user: String,
    pub password: String,
    pub imap: MailServer,
    pub smtp: MailServer,
    pub mailbox: String,
    pub results: OwnResults,
    /// Certificates by which the servers are known, in place of those of the system.
    pub authority: Option<String>,
    pub idle: Duration,
    pub poll: Duration,
    /// Time for an answer of the server of the mailbox.
    pub answer: Duration,
    pub agent: Option<AgentId>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct MailServer {
    pub host: String,
    pub port: u16,
    pub encryption: Encryption,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// It is there from the first byte.
    Tls,
    /// It is begun by a command, before anything else is said.
    StartTls,
    /// There is none, and the server is on this machine.
    Plain,
}

impl MailServer {
    /// Reads an address of one of these forms, each with its usual port.
    fn read(text: &str, forms: &[(&str, Encryption, u16)]) -> Option<Self> {
        let (scheme, place) = text.split_once("://")?;
        let (_, encryption, usual) = forms.iter().find(|(form, ..)| *form == scheme)?;
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
            }
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        let port = port.map_or(Some(*usual), |port| port.parse().ok().filter(|port| *port != 0))?;
        let ip = host.parse::<IpAddr>();
        let is_name = !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
        let is_here = ip.as_ref().is_ok_and(IpAddr::is_loopback);
        ((is_name || ip.is_ok()) && (*encryption != Encryption::Plain || is_here)).then(|| Self {
            host: host.to_owned(),
            port,
            encryption: *encryption,
        })
    }
}

impl MailAccount {
    pub fn new(settings: EmailSettings, password: &str) -> Result<Self, Fault> {
        let wrong = |key: &str, value: &str, help: &str| {
            Fault::invalid(format!("`extensions.email.{key}` is `{value}`")).help(help.to_owned())
        };
        let address = MailAddress::read(&settings.address).ok_or_else(|| {
            wrong("address", &settings.address, "write one address, such as `plum@example.org`")
        })?;
        let imap = MailServer::read(&settings.imap, &[("imaps", Encryption::Tls, 993), ("imap+plain", Encryption::Plain, 143)])
            .ok_or_else(|| wrong("imap", &settings.imap, "write `imaps://HOST` or `imaps://HOST:PORT`; `imap+plain://` needs an address such as `127.0.0.1`"))?;
        let forms = [
            ("smtps", Encryption::Tls, 465),
            ("smtp+starttls", Encryption::StartTls, 587),
            ("smtp+plain", Encryption::Plain, 25),
        ];
        let smtp = MailServer::read(&settings.smtp, &forms).ok_or_else(|| {
            let help = "write `smtps://HOST` or `smtp+starttls://HOST`, each with or without `:PORT`; `smtp+plain://` needs an address such as `127.0.0.1`";
            wrong("smtp", &settings.smtp, help)
        })?;
        for id in settings.allowed.iter().flatten().filter_map(Value::as_str) {
            if let Some(address) = MailAddress::read(id) {
                return Err(wrong("allowed", id, &format!("write its id, `{}`", address.sender_id())));
            }
        }
        if password.contains(['\r', '\n']) {
            return Err(
                Fault::invalid("the secret `EMAIL_PASSWORD` has more than one line").help("set it anew")
            );
        }
        Ok(Self {
            user: settings.user.unwrap_or_else(|| settings.address.clone()),
            address,
            name: settings.name,
            password: password.to_owned(),
            imap,
            smtp,
            mailbox: settings.mailbox,
            results: OwnResults { authserv_id: settings.authserv_id, received_above: settings.own_received },
            authority: settings.authority,
            idle: Duration::from_secs(settings.idle_seconds),
            poll: Duration::from_secs(settings.poll_seconds),
            answer: Duration::from_secs(settings.answer_seconds),
            agent: settings.agent,
        })
    }

    /// What the mailbox is called, so that another one is known as another.
    pub fn place(&self) -> String {
        format!("{}@{}:{}/{}", self.user, self.imap.host, self.imap.port, self.mailbox)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn account(key: &str, value: Value) -> Result<MailAccount, Fault> {
        let mut settings = json!({
            "address": "plum@example.net", "imap": "imaps://mail.example.net", "smtp": "smtps://mail.example.net",
            "mailbox": "INBOX", "authserv_id": "mx", "own_received": 0, "idle_seconds": 540, "poll_seconds": 60, "answer_seconds": 30,
        });
        settings[key] = value;
        MailAccount::new(serde_json::from_value(settings).expect("settings"), "secret")
    }

    #[test]
    fn a_server_is_spoken_to_with_encryption_or_is_this_machine() {
        for (key, text, host, port, encryption) in [
            ("imap", "imaps://mail.example.org", "mail.example.org", 993, Encryption::Tls),
            ("imap", "imap+plain://127.0.0.1:1143", "127.0.0.1", 1143, Encryption::Plain),
            ("smtp", "smtps://[::1]:4650", "::1", 4650, Encryption::Tls),
            ("smtp", "smtp+starttls://mail.example.org", "mail.example.org", 587, Encryption::StartTls),
            ("smtp", "smtp+plain://[::1]", "::1", 25, Encryption::Plain),
        ] {
            let account = account(key, json!(text)).unwrap_or_else(|fault| panic!("{text}: {fault}"));
            let server = if key == "imap" { account.imap } else { account.smtp };
            assert_eq!(server, MailServer { host: host.into(), port, encryption }, "{text}");
        }
        for (key, text) in [
            ("imap", "imap://mail.example.org"),
            ("imap", "imap+plain://mail.example.org"),
            ("imap", "imap+plain://10.0.0.1"),
            ("imap", "imap+plain://localhost"),
            ("imap", "imaps://"),
            ("imap", "imaps://a@b"),
            ("imap", "imaps://a:0"),
            ("imap", "imaps://a:b"),
            ("smtp", "smtp://mail.example.org"),
            ("smtp", "smtp+plain://192.0.2.1:25"),
            ("smtp", "imaps://mail.example.org"),
            ("address", "plum"),
            ("address", "a@b\r\nBcc: c@d"),
        ] {
            let Err(fault) = account(key, json!(text)) else { panic!("{text}") };
            assert!(
                fault.message.contains(&format!("extensions.email.{key}")) && fault.help.is_some(),
                "{fault}"
            );
        }
    }

    #[test]
    fn whoever_names_an_address_where_an_id_belongs_is_told_the_id() {
        let Err(fault) = account("allowed", json!(["ben_at_example.org", "Ada@example.org"])) else {
            panic!("taken")
        };
        assert!(fault.to_string().contains("`ada_at_example.org`"), "{fault}");
        assert!(account("allowed", json!(["ada_at_example.org"])).is_ok());
    }
}
