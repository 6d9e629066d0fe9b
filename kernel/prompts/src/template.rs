//! Templates, filled in by this process. A template sees the extension's own facts and reads its own folder; what users
//! and tools say is never part of a template.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use drupe_config::{MAX_FILE_BYTES, instructions::read};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Day, NoText};

/// Steps that it may take to fill a template in: a long prompt takes a few thousand.
const FUEL: u64 = 200_000;

/// The most that a template may write, and that it may read of its folder in all, in bytes.
const MOST: usize = MAX_FILE_BYTES as usize;

/// A template of an extension, with what it is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Template {
    source: String,
    /// Stands before what is wrong with it.
    named: String,
    variables: Map<String, Value>,
    /// Where its includes are: a path need not be text, and is handed over beside the rest.
    #[serde(skip)]
    folder: PathBuf,
    /// What it included when it was filled in for the first time, by name; none before that.
    included: Option<BTreeMap<String, String>>,
}

/// What came of filling a template in.
#[derive(Debug, Serialize, Deserialize)]
pub struct Filled {
    /// The text of each day, or why there is none.
    pub texts: Vec<Result<String, NoText>>,
    /// What was read of the folder, by name.
    pub included: BTreeMap<String, String>,
}

impl Template {
    /// One that was not filled in before. `named` stands before what is wrong with it.
    pub fn new(named: String, source: String, folder: &Path, variables: Map<String, Value>) -> Self {
        Self { source, named, variables, folder: folder.to_owned(), included: None }
    }

    /// The same, which includes these texts and reads nothing any more.
    pub(crate) fn with_included(mut self, included: BTreeMap<String, String>) -> Self {
        self.included = Some(included);
        self
    }

    pub(crate) fn named(&self) -> &str {
        &self.named
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn beneath(mut self, folder: &Path) -> Self {
        self.folder = folder.to_owned();
        self
    }

    /// Whether all that it does is to put in variables by their names, so that it can ask for nothing.
    pub(crate) fn only_names(&self) -> bool {
        let is_name = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let names =
            |rest: &str| rest.split_once("}}").is_some_and(|(path, _)| path.trim().split('.').all(is_name));
        !self.source.contains("{%") && self.source.split("{{").skip(1).all(names)
    }

    /// Fills it in for each day: undefined variables are errors, includes stay in the folder, loops end. What it includes is
    /// read for the first day alone.
    pub fn fill(&self, days: &[Day]) -> Filled {
        let included = Arc::new(Mutex::new(Included::of(self)));
        let environment = environment(&included);
        let lock = || included.lock().unwrap_or_else(PoisonError::into_inner);
        let text = |day: &Day| {
            let mut variables = self.variables.clone();
            variables.insert("now".into(), day.to_string().into());
            let text = filled(&environment, &self.source, &variables);
            lock().folder = None;
            text.map_err(|why| NoText(format!("{}{why}", self.named)))
        };
        let texts = days.iter().map(text).collect();
        let included = std::mem::take(&mut lock().texts);
        Filled { texts, included }
    }
}

/// Fills in a template that the operator wrote: it includes nothing.
pub fn fill(source: &str, variables: &impl Serialize) -> Result<String, NoText> {
    filled(&environment(&Arc::default()), source, variables)
}

fn filled(environment: &Environment<'_>, source: &str, variables: &impl Serialize) -> Result<String, NoText> {
    let mut output = Bounded(Vec::new());
    let filled = environment.template_from_str(source).and_then(|template| {
        template.render_captured_to(minijinja::value::Serde(variables), &mut output).map(drop)
    });
    filled.map_err(|error| {
        let line = error.line().map(|l| format!("line {l}: ")).unwrap_or_default();
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        NoText(format!("{line}{error}{cause}"))
    })?;
    String::from_utf8(output.0).map_err(|error| NoText(error.to_string()))
}

fn environment(included: &Arc<Mutex<Included>>) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    let included = Arc::clone(included);
    environment.set_loader(move |name| included.lock().unwrap_or_else(PoisonError::into_inner).text(name));
    environment
}

#[derive(Debug, Default)]
struct Included {
    texts: BTreeMap<String, String>,
    /// Where more is; none once all was read.
    folder: Option<PathBuf>,
}

impl Included {
    fn of(template: &Template) -> Self {
        match &template.included {
            Some(texts) => Self { texts: texts.clone(), folder: None },
            None => Self { texts: BTreeMap::new(), folder: template.folder.canonicalize().ok() },
        }
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, Error> {
        if let Some(text) = self.texts.get(name) {
            return Ok(Some(text.clone()));
        }
        let Some(root) = &self.folder else { return Ok(None) };
        let Ok(path) = root.join(name).canonicalize() else { return Ok(None) };
        let Ok(within) = path.strip_prefix(root) else { return Ok(None) };
        let refused = |why: String| Err(Error::new(ErrorKind::InvalidOperation, why));
        if is_uncounted(within) {
            let why = "is no part of what the operator agrees to; give it another name";
            return refused(format!("`{name}` {why}"));
        }
        let Ok(text) = read(&path) else { return Ok(None) };
        if self.texts.values().map(String::len).sum::<usize>() + text.len() > MOST {
            return refused(format!("what it includes is longer than {} KiB in all", MOST / 1024));
        }
        self.texts.insert(name.to_owned(), text.clone());
        Ok(Some(text))
    }
}

/// Whether a file of an extension's folder does not count to its content, so that it may change without a question: hidden
/// ones, what cargo builds, and sources.
fn is_uncounted(within: &Path) -> bool {
    let names: Vec<_> = within.iter().map(|part| part.to_string_lossy()).collect();
    let source = |name: &str| {
        name.ends_with(".rs") || names.len() == 1 && ["Cargo.toml", "Cargo.lock"].contains(&name)
    };
    names.iter().any(|name| name.starts_with('.'))
        || names.first().is_some_and(|first| first == "target")
        || names.last().is_some_and(|last| source(last))
}

/// Takes a text as long as it is no longer than a file may be: fuel counts steps, not what each writes.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST {
            return Err(io::Error::other(format!("the text is longer than {} KiB", MOST / 1024)));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(source: &str, folder: &Path) -> Result<String, String> {
        let Value::Object(variables) = json!({"name": "x", "user": "{{ name }}"}) else { unreachable!() };
        let template = Template::new(String::new(), source.to_owned(), folder, variables);
        template.fill(&[Day::of(0)]).texts.remove(0).map_err(String::from)
    }

    fn check(source: &str) -> Result<String, String> {
        one(source, Path::new("/nonexistent"))
    }

    #[test]
    fn variables_are_data_and_never_templates() {
        assert_eq!(check("{{ user }}").as_deref(), Ok("{{ name }}"));
    }

    #[test]
    fn an_undefined_variable_is_an_error() {
        assert!(check("{{ nope }}").expect_err("strict").contains("undefined"));
    }

    #[test]
    fn an_endless_template_runs_out_of_fuel() {
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        assert!(check(endless).expect_err("fuel").contains("fuel"));
    }

    #[test]
    fn a_template_that_writes_without_end_is_stopped_early() {
        let endless = "{% set a = 'x' * 100000 %}{% for i in range(20000) %}{{ a }}{% endfor %}";
        assert!(check(endless).expect_err("bounded").contains("longer than 1024 KiB"));
        assert_eq!(check("{{ 'x' * 1000000 }}").map(|text| text.len()), Ok(1_000_000));
    }

    #[test]
    fn an_include_of_what_may_change_without_a_question_is_refused() {
        let root = tempfile::tempdir().expect("a folder");
        for folder in ["target", ".hidden", "sub/target"] {
            std::fs::create_dir_all(root.path().join(folder)).expect("a folder");
        }
        let include = |name: &str| {
            std::fs::write(root.path().join(name), "text").expect("a file");
            one(&format!("{{% include '{name}' %}}"), root.path())
        };
        for counted in ["part.md", "sub/target/part.md", "sub/Cargo.toml"] {
            assert_eq!(include(counted).as_deref(), Ok("text"), "{counted}");
        }
        for bad in [".part.md", "target/part.md", ".hidden/part.md", "sub/.part", "a.rs", "Cargo.lock"] {
            let why = include(bad).expect_err(bad);
            assert!(why.contains("no part of what the operator agrees to"), "{why}");
        }
        std::os::unix::fs::symlink(".part.md", root.path().join("link.md")).expect("a link");
        assert!(one("{% include 'link.md' %}", root.path()).is_err());
    }

    #[test]
    fn what_a_template_includes_is_read_once_and_bounded_in_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).expect("a file");
        write("part.md", "agreed");
        write("late.md", "late");
        let source =
            "{% include 'part.md' %} {{ now }}{% if now == '1970-01-02' %}{% include 'late.md' %}{% endif %}";
        let template = Template::new(String::new(), source.into(), folder.path(), Map::new());
        let days = [Day::of(0), Day::of(0).next()];
        let first = template.fill(&days);
        assert_eq!(first.texts[0].as_deref(), Ok("agreed 1970-01-01"));
        assert!(
            first.texts[1].is_err(),
            "what only another day includes was not there when it was agreed to"
        );
        write("part.md", "other");
        let later = template.with_included(first.included).fill(&days);
        assert_eq!(later.texts[0].as_deref(), Ok("agreed 1970-01-01"));
        assert!(later.texts[1].is_err());

        let half = "x".repeat(MOST / 2 + 1);
        write("a.md", &half);
        write("b.md", &half);
        let long = one("{% set a %}{% include 'a.md' %}{% endset %}{% include 'b.md' %}", folder.path());
        assert!(long.expect_err("bounded").contains("longer than 1024 KiB in all"));
    }

    #[test]
    fn what_only_names_variables_is_told_from_what_computes() {
        let only_names = |source: &str| {
            Template::new(String::new(), source.into(), Path::new("/"), Map::new()).only_names()
        };
        for plain in ["", "no template", "{{name}} and {{ agent.name }}.", "{ {{ now }} }", "{# why #}x"] {
            assert!(only_names(plain), "{plain}");
        }
        for computes in [
            "{{ 'x' * 9 }}",
            "{{ a ~ a }}",
            "{{ a|indent(9) }}",
            "{{ f() }}",
            "{% if a %}{% endif %}",
            "{{ a[0] }}",
            "{{ {{ a }}",
            "{{ a",
            "{{ a }}{{ b + c }}",
            "{{ 1 }}",
            "{{- a }}",
            "{{ a..b }}",
        ] {
            assert!(!only_names(computes), "{computes}");
        }
    }

    #[test]
    fn an_include_outside_the_folder_is_refused() {
        assert!(check("{% include '/etc/hostname' %}").is_err());
        assert!(check("{% include '../../etc/hostname' %}").is_err());
        assert!(fill("{% include 'Cargo.toml' %}", &json!({})).is_err());
    }
}
