//! MCP servers into `drupe.yaml`: turned off, so that nothing starts before somebody looked at it.
//!
//! The file is the operator's, with their comments. Lines are put in, and what that comes to is read again: where it is not
//! what was there before with the servers added, nothing is written.

use std::{fmt::Write as _, fs, io, os::unix::fs::PermissionsExt, path::Path};

use drupe_config::Config;
use drupe_mcp_import::TakenServer;
use serde_json::{Map, Value, json};

use super::{
    gather::NotImported,
    plan::{ImportKind, ImportState, ImportWork, LeftOut, PlannedItem},
    staged,
};

const PATH: [&str; 3] = ["extensions", "mcp", "servers"];

/// The text of a configuration, and what it holds.
pub struct Written {
    text: String,
    value: Value,
}

impl Written {
    pub fn read(file: &Path) -> Result<Self, NotImported> {
        let text = match file.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            _ => drupe_config::read_text_file(file).map_err(|faults| NotImported(faults.to_string()))?,
        };
        let value = value(&text)?;
        Ok(Self { text, value })
    }

    fn servers(&self) -> Option<&Map<String, Value>> {
        PATH.iter().try_fold(&self.value, |value, key| value.get(key))?.as_object()
    }
}

fn value(text: &str) -> Result<Value, NotImported> {
    serde_yaml::from_str(text)
        .map_err(|error| NotImported(format!("the configuration cannot be read: {error}")))
}

/// One server, and what is in its way.
pub fn planned(
    system: &'static str,
    from: &str,
    server: TakenServer,
    written: &Written,
    (file, config): (&Path, &Config),
) -> PlannedItem {
    let TakenServer { given, name, mut settings, secrets, notes } = server;
    let mut item = PlannedItem::new(ImportKind::McpServer, system, format!("{from}#{given}"));
    item.to = Some(file.to_owned());
    let (left, known): (Vec<String>, Vec<String>) =
        notes.into_iter().partition(|note| note.contains("left out") || note.contains("not taken over"));
    item.left_out = left.into_iter().map(|note| LeftOut::new("mcp_servers", note)).collect();
    item.notes = known;
    item.notes.insert(0, reached_by(&settings));
    settings.insert("enabled".into(), false.into());
    let there = written.servers().and_then(|servers| servers.get(&name));
    let missing: Vec<&String> = secrets.keys().filter(|name| config.overlay.get(name).is_none()).collect();
    if !secrets.is_empty() {
        let names: Vec<String> = secrets.iter().map(|(name, of)| format!("`{name}` ({of})")).collect();
        item.notes.push(format!("it is given {}", names.join(", ")));
    }
    match there {
        Some(there) if same(there, &settings) => item.is_there(),
        Some(_) => item.refuse(format!("`{}.{name}` of the configuration is another server", PATH.join("."))),
        // A name without a value would keep all servers from starting, those of the operator among them.
        None if !missing.is_empty() => {
            let names: Vec<String> =
                missing.iter().map(|name| format!("`drupe secret set {name}`")).collect();
            item.refuse(format!("it needs secrets that have no value: {}, then try again", names.join(", ")));
        }
        None => item.work = ImportWork::McpServer(settings),
    }
    item.id = name;
    item
}

fn reached_by(settings: &Map<String, Value>) -> String {
    match (settings.get("url").and_then(Value::as_str), settings.get("command").and_then(Value::as_str)) {
        (Some(url), _) => format!("it is reached at {url}"),
        (None, command) => {
            let args = settings.get("args").and_then(Value::as_array).into_iter().flatten();
            let words = command.into_iter().chain(args.filter_map(Value::as_str));
            format!("it is started by: {}", words.collect::<Vec<_>>().join(" "))
        }
    }
}

/// Whether they are one server, turned on or off.
fn same(there: &Value, settings: &Map<String, Value>) -> bool {
    let without = |map: &Map<String, Value>| {
        let mut map = map.clone();
        map.remove("enabled");
        map
    };
    there.as_object().is_some_and(|there| without(there) == without(settings))
}

/// The configuration with the servers in it.
pub fn with_servers(
    written: &Written,
    servers: &[(&str, &Map<String, Value>)],
) -> Result<String, NotImported> {
    let text = inserted(&written.text, servers)
        .filter(|text| value(text).is_ok_and(|now| Some(now) == expected(&written.value, servers)));
    text.ok_or_else(|| {
        let mut yaml = String::new();
        for (name, settings) in servers {
            yaml += &lines(name, settings, 6);
        }
        let message = format!(
            "the configuration is not written in a form into which lines can be put. Under `extensions`, `mcp`, `servers` write:\n{yaml}"
        );
        NotImported(message)
    })
}

/// What is to stand there in the end; nothing where something else than maps stands on the way.
fn expected(before: &Value, servers: &[(&str, &Map<String, Value>)]) -> Option<Value> {
    let mut after = before.clone();
    let mut place = &mut after;
    for key in PATH {
        if place.is_null() {
            *place = json!({});
        }
        place = place.as_object_mut()?.entry(key).or_insert(Value::Null);
    }
    if place.is_null() {
        *place = json!({});
    }
    let there = place.as_object_mut()?;
    there.extend(
        servers.iter().map(|(name, settings)| ((*name).to_owned(), Value::Object((*settings).clone()))),
    );
    Some(after)
}

fn lines(name: &str, settings: &Map<String, Value>, margin: usize) -> String {
    let server = TakenServer { name: name.to_owned(), settings: settings.clone(), ..TakenServer::default() };
    server.yaml(margin)
}

/// The text with lines put in; `None` where it is not known where they belong.
fn inserted(text: &str, servers: &[(&str, &Map<String, Value>)]) -> Option<String> {
    let all: Vec<&str> = text.split_inclusive('\n').collect();
    let (mut from, mut to, mut margin) = (0, all.len(), 0);
    let mut found = 0;
    let mut at = all.len();
    for key in PATH {
        let Some(line) = (from..to).find(|line| is_key(all[*line], key, margin)) else { break };
        found += 1;
        let ends = |line: &&usize| is_content(all[**line]) && indent(all[**line]) <= margin;
        to = (line + 1..to).collect::<Vec<_>>().iter().find(ends).copied().unwrap_or(to);
        let first = (line + 1..to).find(|line| is_content(all[*line]));
        (from, at) = (line + 1, line + 1);
        margin = first.map_or(margin + 2, |line| indent(all[line]));
    }
    let mut new = String::new();
    for key in &PATH[found..] {
        let _ = writeln!(new, "{:margin$}{key}:", "");
        margin += 2;
    }
    for (name, settings) in servers {
        new += &lines(name, settings, margin);
    }
    let mut before: String = all[..at].concat();
    if !before.is_empty() && !before.ends_with('\n') {
        before.push('\n');
    }
    Some(before + &new + &all[at..].concat())
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn is_content(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#')
}

/// A key with a block below it, or with nothing yet.
fn is_key(line: &str, key: &str, margin: usize) -> bool {
    let rest = line.trim_start_matches(' ').strip_prefix(key).and_then(|rest| rest.strip_prefix(':'));
    indent(line) == margin && rest.is_some_and(|rest| !is_content(rest))
}

/// Writes it, if the file is still what was read.
pub fn write(file: &Path, written: &Written, text: &str) -> Result<(), NotImported> {
    let failed = |error: io::Error| NotImported(format!("`{}` cannot be written: {error}", file.display()));
    if Written::read(file)?.text != written.text {
        return Err(NotImported(format!("`{}` was changed meanwhile: import again", file.display())));
    }
    let made = staged::beside(file.parent().unwrap_or(file));
    let put = || {
        staged::create(&made, text.as_bytes(), false)?;
        match file.symlink_metadata() {
            Ok(meta) => {
                fs::set_permissions(&made, PermissionsExt::from_mode(meta.permissions().mode()))?;
                fs::rename(&made, file)
            }
            Err(_) => staged::place(&made, file),
        }
    };
    put().map_err(|error| {
        // The error that is told is the one that matters.
        let _ = fs::remove_file(&made);
        failed(error)
    })
}

/// Marks those that were written, or says why none was.
pub fn settle(items: &mut [PlannedItem], done: Result<(), NotImported>) {
    for item in items.iter_mut().filter(|item| matches!(item.work, ImportWork::McpServer(_))) {
        match &done {
            Ok(()) => item.state = ImportState::Made,
            Err(why) => item.refuse(why.0.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<String, NotImported> {
        let settings = json!({"command": "x", "args": ["-y", "é: #"], "env": {"A": "b"}, "enabled": false});
        let written = Written { text: text.into(), value: value(text)? };
        with_servers(&written, &[("new", settings.as_object().expect("a map"))])
    }

    #[test]
    fn lines_are_put_where_they_belong_and_all_else_stays() {
        for text in [
            "",
            "# a comment alone\n",
            "log: info",
            "log: info\nextensions:\n",
            "extensions:\n  # kept\n  files: {}\n\nlog: info\n",
            "extensions:\n    mcp:\n        enabled: true\n    web: {}\n",
            "extensions:\n  mcp:\n    servers:\n      # mine\n      own: {command: y} # here\n  web: {}\nlog: info\n",
            "extensions:\n  mcp:\n    servers:\n    enabled: true\n",
        ] {
            let now = with(text).unwrap_or_else(|why| panic!("{text:?}: {why}"));
            for line in text.lines() {
                assert!(now.contains(line), "{line:?} of {now}");
            }
            assert_eq!(
                value(&now).expect("YAML")["extensions"]["mcp"]["servers"]["new"]["command"],
                "x",
                "{now}"
            );
        }
    }

    #[test]
    fn what_cannot_be_edited_line_by_line_is_left_alone_and_told() {
        for text in [
            "extensions: {mcp: {servers: {}}}\n",
            "extensions:\n  mcp: {enabled: true}\n",
            "extensions: &e\n  mcp:\n    servers: {}\n",
            "{log: info}\n",
            "- a list\n",
        ] {
            let why = with(text).expect_err(text);
            assert!(why.0.contains("servers") || why.0.contains("cannot be read"), "{text}: {why}");
        }
        assert!(with("a: [").is_err());
    }
}
