//! Values of servers: which of them are secret, and what they refer to.

use serde_json::{Map, Value};

use crate::{TakenServer, plain};

/// Parts of a name that say that its value is secret.
const SECRET: [&str; 10] =
    ["KEY", "TOKEN", "SECRET", "PASSW", "PWD", "CREDENTIAL", "AUTH", "COOKIE", "PRIVATE", "DSN"];

impl TakenServer {
    /// Variables or headers; where `all` are secret, or their names or values say so, names stand for them.
    pub(crate) fn map(
        &mut self,
        map: Option<&Map<String, Value>>,
        all: bool,
        elsewhere: &dyn Fn(&str) -> bool,
    ) -> Map<String, Value> {
        let mut taken = Map::new();
        for (name, value) in map.into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let value = match all || is_secret_name(name) || looks_secret(&value) {
                true => self.secret(name, &value, elsewhere),
                false => self.references(&value, elsewhere),
            };
            taken.insert(name.clone(), value.into());
        }
        taken
    }

    /// The value of a secret, in the form in which its name stands for it.
    fn secret(&mut self, name: &str, value: &str, elsewhere: &dyn Fn(&str) -> bool) -> String {
        if value.contains("${") || value.contains("{env:") || whole_variable(value).is_some() {
            return self.references(value, elsewhere);
        }
        // The kind of a credential before it is no secret: `Bearer …`.
        let (kind, _) = value
            .rsplit_once(' ')
            .filter(|(kind, _)| kind.chars().all(char::is_alphabetic))
            .unwrap_or_default();
        let space = if kind.is_empty() { "" } else { " " };
        let name = self.placeholder(name, elsewhere);
        format!("{kind}{space}${{{name}}}")
    }

    /// A variable for a secret. Two servers may have different ones of the same name.
    pub(crate) fn placeholder(&mut self, name: &str, elsewhere: &dyn Fn(&str) -> bool) -> String {
        let of = format!("`{}` of the server `{}`", plain(name), self.name);
        let named = variable(name);
        let taken = match self.secrets.get(&named) {
            Some(other) => *other != of,
            None => elsewhere(&named),
        };
        let named = if taken { variable(&format!("{}_{name}", self.name)) } else { named };
        self.secrets.insert(named.clone(), of);
        named
    }

    /// Arguments; a word after `--api-key` or in `--api-key=…` is a secret, and so is what looks like one.
    pub(crate) fn arguments(
        &mut self,
        arguments: &[String],
        elsewhere: &dyn Fn(&str) -> bool,
    ) -> Vec<String> {
        let mut after = None;
        let mut written = Vec::new();
        for argument in arguments {
            let flag = argument.starts_with('-');
            let value = match (after.take(), argument.split_once('=')) {
                (Some(name), _) if !flag => self.secret(name, argument, elsewhere),
                (_, Some((name, value))) if is_secret_name(name) || looks_secret(value) => {
                    format!("{name}={}", self.secret(name, value, elsewhere))
                }
                _ if looks_secret(argument) => self.secret("argument", argument, elsewhere),
                _ => self.references(argument, elsewhere),
            };
            if flag && !argument.contains('=') && is_secret_name(argument) {
                after = Some(argument.as_str());
            }
            written.push(value);
        }
        written
    }

    /// An address, without what stands for a person in it.
    pub(crate) fn of_url(&mut self, url: &str, elsewhere: &dyn Fn(&str) -> bool) -> String {
        let Some((before, query)) = url.split_once('?') else { return self.references(url, elsewhere) };
        let parts: Vec<String> = query
            .split('&')
            .map(|part| match part.split_once('=') {
                Some((name, value)) if is_secret_name(name) || looks_secret(value) => {
                    format!("{name}={}", self.secret(name, value, elsewhere))
                }
                _ => self.references(part, elsewhere),
            })
            .collect();
        format!("{}?{}", self.references(before, elsewhere), parts.join("&"))
    }

    /// `${env:NAME}`, `${NAME}`, `${input:id}`, `${NAME:-usual}`, `${{ secrets.NAME }}`, `{env:NAME}`, and `$NAME` where it is
    /// the whole, as drupe writes them. Any other `${` stands for itself.
    pub(crate) fn references(&mut self, text: &str, elsewhere: &dyn Fn(&str) -> bool) -> String {
        if let Some(name) = whole_variable(text) {
            return format!("${{{}}}", self.placeholder(name, elsewhere));
        }
        // opencode's, made one of the others.
        let text = text.replace("{env:", "${env:").replace("$${env:", "${env:");
        let mut written = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("${") {
            written += before;
            let end = if after.starts_with('{') { "}}" } else { "}" };
            let Some((named, later)) = after.split_once(end) else {
                rest = after;
                written += "$${";
                continue;
            };
            match self.referred(named, elsewhere) {
                Some(name) => written += &format!("${{{name}}}"),
                None => {
                    self.notes.push(format!("`${{{}}}` of `{}` means nothing here", plain(named), self.name));
                    written += &format!("$${{{named}{end}");
                }
            }
            rest = later;
        }
        written + rest
    }

    /// The variable that stands for what is referred to.
    fn referred(&mut self, named: &str, elsewhere: &dyn Fn(&str) -> bool) -> Option<String> {
        let is_plain = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
        };
        if let Some(inner) = named.strip_prefix('{') {
            let inner = inner.trim();
            let name = inner.strip_prefix("secrets.").or(inner.strip_prefix("vars."))?;
            return is_plain(name).then(|| self.placeholder(name, elsewhere));
        }
        if let Some((name, usual)) = named.split_once(":-").filter(|(name, _)| is_plain(name)) {
            if !usual.is_empty() {
                let note =
                    format!("what `{}` of `{}` is where it is not set is left out", plain(name), self.name);
                self.notes.push(note);
            }
            return Some(self.placeholder(name, elsewhere));
        }
        let (kind, name) = named.split_once(':').unwrap_or(("", named));
        // Those with small letters are values that an editor knows, such as its folder.
        let known = match kind {
            "" => !name.bytes().any(|byte| byte.is_ascii_lowercase()),
            kind => ["env", "input"].contains(&kind),
        };
        (known && is_plain(name)).then(|| self.placeholder(name, elsewhere))
    }
}

/// The name in `$NAME`, where nothing else stands there.
fn whole_variable(text: &str) -> Option<&str> {
    let name = text.strip_prefix('$')?;
    let usual = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    (name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_') && name.bytes().all(usual))
        .then_some(name)
}

/// A name for a variable.
fn variable(name: &str) -> String {
    let usual = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = name.chars().map(usual).collect();
    let name = name.trim_matches('_').to_owned();
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        format!("MCP_{name}")
    } else {
        name
    }
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_uppercase();
    SECRET.iter().any(|part| name.contains(part)) && !name.ends_with("PATH") && !name.ends_with("FILE")
}

/// Whether a value looks made by a machine: long, of letters and digits both, no path, no address and no words.
fn looks_secret(value: &str) -> bool {
    let usual = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.+=".contains(&byte));
    let (letters, digits) =
        (value.bytes().any(|b| b.is_ascii_alphabetic()), value.bytes().any(|b| b.is_ascii_digit()));
    let known = ["sk-", "ghp_", "github_pat_", "xoxb-", "xoxp-", "glpat-", "AKIA"];
    let with_password =
        value.contains("://") && value.split('/').nth(2).is_some_and(|host| host.contains('@'));
    known.iter().any(|start| value.starts_with(start)) && value.len() > 12
        || with_password
        || usual && letters && digits && value.len() >= 24 && !value.contains(".js") && !value.contains(".py")
}
