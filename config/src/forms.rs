//! The forms of text that the files know.

use drupe_extension_api::{ExtensionId, MODEL_NAME, SessionId, ToolName, is_model_name, wire::Sender};

use crate::shape::Text;

const fn form(expected: &'static str, check: fn(&str) -> bool, pattern: Option<&'static str>) -> Text {
    Text { expected, check, pattern, secret: false, placeholders: false }
}

const SLUG: &str = "^[a-z0-9][a-z0-9_-]{0,47}$";

pub(crate) static ANY: Text = form("text", |_| true, None);
pub(crate) static NON_EMPTY: Text = WRITTEN;
const WRITTEN: Text = form("text that is not empty", |text| !text.trim().is_empty(), Some(r"[^\s]"));
pub(crate) static MODEL: Text = Text {
    placeholders: true,
    ..form(MODEL_NAME, is_model_name, Some(r"^(scripted:[^\x00-\x1f]+|[^\s\x00-\x1f]{1,256})$"))
};
pub(crate) static ID: Text = form(
    "an id: a lower-case letter or digit, then up to 47 of a-z, 0-9, `_` and `-`",
    |text| ExtensionId::new(text).is_ok(),
    Some(SLUG),
);
pub(crate) static TOOL_NAME: Text = form(
    "a tool's name: 1 to 64 letters, digits, `_`, `.` and `-`",
    |text| ToolName::new(text).is_ok(),
    Some("^[A-Za-z0-9_.-]{1,64}$"),
);
pub(crate) static SELECTOR: Text = form(
    "an extension's id, or `id/tool_name` for one tool of it",
    |text| match text.split_once('/') {
        Some((id, tool)) => ExtensionId::new(id).is_ok() && ToolName::new(tool).is_ok(),
        None => ExtensionId::new(text).is_ok(),
    },
    Some("^[a-z0-9][a-z0-9_-]{0,47}(/[A-Za-z0-9_.-]{1,64})?$"),
);
/// Somebody who writes through a channel.
pub(crate) static PERSON: Text = form(
    "`channel/id`, with the service's own id of somebody: 1 to 48 letters, digits, `_`, `.` and `-`",
    |text| match text.split_once('/') {
        Some((channel, id)) => {
            ExtensionId::new(channel).is_ok() && Sender { id: id.to_owned(), name: None }.is_sound()
        }
        None => false,
    },
    Some("^[a-z0-9][a-z0-9_-]{0,47}/[A-Za-z0-9_.-]{1,48}$"),
);
/// Conversations that people are told things in.
pub(crate) static SESSIONS: Text = form(
    "a session's id, or what the ids of several begin with and `*` behind it",
    |text| {
        let id = text.strip_suffix('*').unwrap_or(text);
        (text != id && id.is_empty()) || SessionId::new(id).is_ok()
    },
    Some(r"^([A-Za-z0-9_.:-]{1,96}\*?|\*)$"),
);
/// A place in a channel, which the channel alone understands.
pub(crate) static ADDRESS: Text = form(
    "1 to 256 characters without spaces",
    |text| (1..=256).contains(&text.len()) && !text.contains(|c: char| c.is_whitespace() || c.is_control()),
    Some(r"^[^\s\x00-\x1f]{1,256}$"),
);
pub(crate) static VARIABLE: Text = form(
    "a variable's name: a letter or `_`, then up to 127 letters, digits and `_`",
    is_variable,
    Some("^[A-Za-z_][A-Za-z0-9_]{0,127}$"),
);
pub(crate) static NAME: Text = form(
    "a name: a lower-case letter or digit, then up to 47 of a-z, 0-9, `_` and `-`",
    |text| ExtensionId::new(text).is_ok(),
    Some(SLUG),
);
/// The name of an MCP server: what its tools begin with.
pub(crate) static SERVER: Text = form(
    "a server's name: 1 to 24 letters and digits, with single `_` or `-` between them",
    is_server,
    Some("^[A-Za-z0-9]+([_-][A-Za-z0-9]+)*$"),
);
/// The name of a skill, as the open format has it.
pub(crate) static SKILL: Text = form(
    "a skill's name: 1 to 64 lower-case letters and digits, with single hyphens between them",
    is_skill,
    Some("^[a-z0-9]+(-[a-z0-9]+)*$"),
);
pub(crate) static SKILL_DESCRIPTION: Text = form(
    "1 to 1024 characters that say what it is for and when to use it",
    |text| !text.trim().is_empty() && text.chars().count() <= 1024,
    Some(r"[^\s]"),
);
pub(crate) static SKILL_COMPATIBILITY: Text =
    form("1 to 500 characters", |text| (1..=500).contains(&text.chars().count()), None);
/// A folder beneath that of the file which names it.
pub(crate) static BENEATH: Text =
    form("a path relative to this file's folder, without `..`", is_beneath, None);
/// A file of the workspace.
pub(crate) static WORKSPACE_FILE: Text = form("a path within the workspace, without `..`", is_beneath, None);
pub(crate) static HEADER: Text = form(
    "the name of an HTTP header: letters, digits and `-`",
    |text| {
        (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    },
    Some("^[A-Za-z0-9-]{1,64}$"),
);
/// Topics that are kept for those who follow them: of an extension, with its id before, and these of the kernel.
pub(crate) static TOPIC: Text = form(
    "a topic: `<extension>.<topic>`, `agent_invoked`, `agent_result` or `agent_error`",
    is_topic,
    Some(r"^(agent_invoked|agent_result|agent_error|[a-z0-9][a-z0-9_-]{0,47}\.[^\x00-\x1f]{1,128})$"),
);
/// A host that secrets are bound to.
pub(crate) static HOST: Text = form(
    "a host in small letters, with a port or without: `api.example.org`, `localhost:8080`, `[::1]:8080`",
    is_host,
    Some(r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(:[0-9]{1,5})?$"),
);
/// A time between two backups.
pub(crate) static INTERVAL: Text = form(
    "`daily`, `hourly`, or a time from a minute to a year such as `90m`, `6h` or `2d`",
    |text| crate::settings::Interval::new(text).is_some(),
    Some("^(daily|hourly|[0-9]+[mhd])$"),
);
/// For whom something is encrypted by the program `age`.
// What stands there by mistake is the private key, which the same program writes into the same file.
pub(crate) static RECIPIENT: Text = Text { secret: true, ..PUBLIC_KEY };
const PUBLIC_KEY: Text = form(
    "a recipient of `age`, which is public: `age1…`, as `age-keygen -y KEYFILE` says it, or a public key of SSH, `ssh-ed25519 …` or `ssh-rsa …`",
    is_recipient,
    Some("^(age1[0-9a-z]+|ssh-(ed25519|rsa) [A-Za-z0-9+/]{40,}={0,2}( .*)?)$"),
);
/// A folder that an operator's environment places.
pub(crate) static FOLDER: Text = form(
    "an absolute path, which may begin with `~/`, `${NAME}/` or `${NAME:-~/usual}/`",
    is_folder,
    Some(r"^(/|~/|\$\{[A-Za-z_][A-Za-z0-9_]{0,127}(:-(/|~/)[^}]*)?\}(/|$))[^\x00-\x1f]*$"),
);
pub(crate) static VERSION: Text = form(
    "a semantic version such as `1.0.0`",
    |text| semver::Version::parse(text).is_ok(),
    Some(r"^[0-9]+\.[0-9]+\.[0-9]+([-+].*)?$"),
);
/// The same, with variables in it.
pub(crate) static SETTING: Text = Text { placeholders: true, ..WRITTEN };
/// A value of `env`, which finds its own variables.
pub(crate) static VARIABLE_VALUE: Text = Text { secret: true, ..form("text", |_| true, None) };
pub(crate) static SECRET: Text = Text { secret: true, placeholders: true, ..form("text", |_| true, None) };

/// A text in which `*` stands for any characters.
pub(crate) static PATTERN: Text = form(
    "1 to 256 characters, of which `*` stands for any others",
    |text| !text.trim().is_empty() && text.chars().nth(256).is_none(),
    Some(r"^[^\x00]{1,256}$"),
);
pub(crate) static PARAMETER: Text = form(
    "a parameter's name, with those of maps around it before it as in `to.address`",
    |text| !text.is_empty() && text.split('.').all(|part| !part.is_empty()),
    Some(r"^[^.]+(\.[^.]+)*$"),
);

fn is_skill(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 64 && text.split('-').all(|part| !part.is_empty() && part.bytes().all(is_letter))
}

fn is_server(text: &str) -> bool {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (1..=24).contains(&text.len())
        && text.bytes().all(usual)
        && !text.starts_with(['_', '-'])
        && !text.ends_with(['_', '-'])
        && !text.as_bytes().windows(2).any(|two| two.iter().all(|byte| b"_-".contains(byte)))
}

fn is_topic(text: &str) -> bool {
    let of_an_extension = |(id, topic): (&str, &str)| {
        ExtensionId::new(id).is_ok()
            && (1..=128).contains(&topic.len())
            && !topic.contains(|letter: char| letter < ' ')
    };
    ["agent_invoked", "agent_result", "agent_error"].contains(&text)
        || text.split_once('.').is_some_and(of_an_extension)
}

/// A key that was copied wrongly would be found at the first backup alone, so its checksum is looked at: Bech32 of any length
/// (<https://c2sp.org/age> and BIP 173, read on 2026-11-27).
fn is_recipient(text: &str) -> bool {
    const LETTERS: &str = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
    const SUMS: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    if let Some((kind, key)) = text.split_once(' ') {
        let key = key.split(' ').next().unwrap_or_default();
        let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        return ["ssh-ed25519", "ssh-rsa"].contains(&kind) && key.len() >= 40 && key.bytes().all(usual);
    }
    let Some((name, data)) = text.rsplit_once('1').filter(|_| text.starts_with("age1")) else { return false };
    let data = data.chars().map(|c| Some(LETTERS.find(c)? as u32)).collect::<Option<Vec<u32>>>();
    let Some(data) = data else { return false };
    let (high, low) = (name.bytes().map(|b| u32::from(b) >> 5), name.bytes().map(|b| u32::from(b) & 31));
    let sum = high.chain([0]).chain(low).chain(data).fold(1, |sum: u32, value| {
        let carried = SUMS.iter().enumerate().filter(|(bit, _)| sum >> (25 + bit) & 1 == 1);
        carried.fold((sum & 0x01ff_ffff) << 5 ^ value, |sum, (_, term)| sum ^ term)
    });
    sum == 1
}

/// As an address has it once it is read, so that the two can be compared.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let usual = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    let named = (1..=253).contains(&host.len())
        && host.bytes().all(usual)
        && !host.starts_with(['.', '-'])
        && !host.ends_with(['.', '-'])
        && !host.contains("..");
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let numbered = address
        .and_then(|host| host.parse::<std::net::Ipv6Addr>().ok())
        .is_some_and(|ip| Some(ip.to_string().as_str()) == address);
    let port = port
        .is_none_or(|port| port.parse::<u16>().is_ok_and(|number| number > 0 && number.to_string() == port));
    (named || numbered) && port
}

fn is_folder(text: &str) -> bool {
    let rooted = |path: &str| path.starts_with('/') || path.starts_with("~/");
    let sound = text.len() <= 1024
        && !text.contains(|letter: char| letter < ' ')
        && !text.split('/').any(|part| part == "..");
    let Some(named) = text.strip_prefix("${") else { return sound && rooted(text) };
    let Some((named, rest)) = named.split_once('}') else { return false };
    let (name, usual) = match named.split_once(":-") {
        Some((name, usual)) => (name, rooted(usual)),
        None => (named, true),
    };
    sound && is_variable(name) && usual && (rest.is_empty() || rest.starts_with('/'))
}

fn is_beneath(text: &str) -> bool {
    let path = std::path::Path::new(text);
    !text.is_empty() && path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

pub(crate) fn is_variable(text: &str) -> bool {
    text.len() <= 128
        && text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipient_that_was_copied_wrongly_is_none() {
        // The second is of a plugin, whose keys lie in a device.
        for key in [
            "age1vn0ejns92yzaa7kgq2ddhal4hk08tpdwgp49rl8v7xapq5j6s3equ6qkm0",
            "age1yubikey1qds33lxxw9gaj82vqedjulgtedqeqxhv3tnu5f28zq3lpwpp25j4u9fu8kg",
        ] {
            assert!(is_recipient(key), "{key}");
            for at in 4..key.len() {
                let other = if key[at..].starts_with('q') { "p" } else { "q" };
                let wrong = format!("{}{other}{}", &key[..at], &key[at + 1..]);
                assert!(!is_recipient(&wrong), "{wrong}");
                assert!(!is_recipient(&key[..at]), "{}", &key[..at]);
            }
        }
        let key = "AAAAC3NzaC1lZDI1NTE5AAAAIEv0hDxkOgpsBvpCVbPNkv2Q5aPXsGZ8gvYzuN0r0Yd7";
        assert!(is_recipient(&format!("ssh-ed25519 {key}")));
        assert!(is_recipient(&format!("ssh-rsa {key} ada@example.org")));
        let secret = "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ";
        for text in
            ["", "age1", "1", "-", "--help", "age1é", "key.txt", "ssh-ed25519", "ssh-dss AAAA", secret]
        {
            assert!(!is_recipient(text), "{text}");
        }
    }
}
