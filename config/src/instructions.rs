//! Renders instructions. A template sees the extension's own facts and reads its own folder; what users and tools say
//! is never part of a template.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde::Serialize;

use crate::{ContextSource, Instructions, read_text_file, source::MAX_FILE_BYTES};

/// Steps that rendering may take: a long prompt takes a few thousand.
const FUEL: u64 = 200_000;

/// Instructions as they were read.
#[derive(Debug)]
pub enum Source {
    /// A text that is used as it is.
    Text(String),
    /// A text that is filled in first.
    Template(Box<Template>),
}

/// Reads instructions.
pub fn source(instructions: &Instructions, folder: &Path) -> Result<Source, String> {
    match instructions {
        Instructions::Inline(text) => Ok(Source::Text(text.clone())),
        Instructions::Template(text) => Ok(Source::Template(Box::new(Template::new(text.clone(), folder)))),
        Instructions::File { path, template: false } => read(path).map(Source::Text),
        Instructions::File { path, template: true } => {
            let named = format!("`{}`: ", path.display());
            Ok(Source::Template(Box::new(Template { named, ..Template::new(read(path)?, folder) })))
        }
    }
}

/// A template that can be rendered more than once. What it includes is read at the first rendering: whoever agreed to it
/// agreed to that, and not to what stands there later.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    source: String,
    /// Stands before what is wrong with it.
    named: String,
    rendered: Arc<AtomicBool>,
}

impl Template {
    /// One whose includes are in `folder`.
    pub fn new(source: String, folder: &Path) -> Self {
        let rendered = Arc::new(AtomicBool::new(false));
        let environment = environment(folder, Arc::clone(&rendered));
        Self { environment, source, named: String::new(), rendered }
    }

    /// Fills it in: undefined variables are errors, includes stay in the folder, loops end.
    pub fn render(&self, variables: &impl Serialize) -> Result<String, String> {
        let mut output = Bounded(Vec::new());
        let rendered = self.environment.template_from_str(&self.source).and_then(|template| {
            template.render_captured_to(minijinja::value::Serde(variables), &mut output).map(drop)
        });
        self.rendered.store(true, Ordering::Release);
        rendered.map_err(|error| {
            let line = error.line().map(|l| format!("line {l}: ")).unwrap_or_default();
            let cause =
                std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            format!("{}{line}{error}{cause}", self.named)
        })?;
        String::from_utf8(output.0).map_err(|error| error.to_string())
    }
}

/// Renders a template once.
pub fn template(source: &str, folder: &Path, variables: &impl Serialize) -> Result<String, String> {
    Template::new(source.to_owned(), folder).render(variables)
}

fn environment(folder: &Path, rendered: Arc<AtomicBool>) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    let root = folder.to_owned();
    environment.set_loader(move |name| {
        // What was found before, the environment has kept.
        if rendered.load(Ordering::Acquire) {
            return Ok(None);
        }
        let Ok(root) = root.canonicalize() else { return Ok(None) };
        let Ok(path) = root.join(name).canonicalize() else { return Ok(None) };
        match path.strip_prefix(&root) {
            Ok(within) if is_uncounted(within) => {
                let why = "is no part of what the operator agrees to; give it another name";
                Err(minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, format!("`{name}` {why}")))
            }
            Ok(_) => Ok(read(&path).ok()),
            Err(_) => Ok(None),
        }
    });
    environment
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

/// Takes a rendered prompt as long as it is no longer than a file may be: fuel counts steps, not what each writes.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_FILE_BYTES as usize {
            return Err(io::Error::other(format!("the text is longer than {} KiB", MAX_FILE_BYTES / 1024)));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The texts of an agent's default context.
pub fn context(sources: &[ContextSource]) -> Result<Vec<String>, String> {
    let text = |source: &ContextSource| match source {
        ContextSource::Inline(text) => Ok(text.clone()),
        ContextSource::File(path) => read(path),
    };
    sources.iter().map(text).collect()
}

/// The text of a prompt file. What is no regular file, or larger than 1 MiB, is refused and never opened for long.
pub fn read(path: &Path) -> Result<String, String> {
    read_text_file(path).map_err(|faults| faults.render(false).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(source: &str) -> Result<String, String> {
        template(source, Path::new("/nonexistent"), &json!({"name": "x", "user": "{{ name }}"}))
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
            template(&format!("{{% include '{name}' %}}"), root.path(), &json!({}))
        };
        for counted in ["part.md", "sub/target/part.md", "sub/Cargo.toml"] {
            assert_eq!(include(counted).as_deref(), Ok("text"), "{counted}");
        }
        for bad in [".part.md", "target/part.md", ".hidden/part.md", "sub/.part", "a.rs", "Cargo.lock"] {
            let why = include(bad).expect_err(bad);
            assert!(why.contains("no part of what the operator agrees to"), "{why}");
        }
        std::os::unix::fs::symlink(".part.md", root.path().join("link.md")).expect("a link");
        assert!(template("{% include 'link.md' %}", root.path(), &json!({})).is_err());
    }

    #[test]
    fn what_a_template_includes_is_read_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).expect("a file");
        write("part.md", "agreed");
        let source = "{% include 'part.md' %} {{ now }}{% if now == '2' %}{% include 'late.md' %}{% endif %}";
        let template = Template::new(source.into(), folder.path());
        assert_eq!(template.render(&json!({"now": "1"})).as_deref(), Ok("agreed 1"));
        write("part.md", "other");
        write("late.md", "other");
        assert_eq!(template.render(&json!({"now": "3"})).as_deref(), Ok("agreed 3"));
        assert!(template.render(&json!({"now": "2"})).is_err());
    }

    #[test]
    fn an_include_outside_the_folder_is_refused() {
        assert!(check("{% include '/etc/hostname' %}").is_err());
        assert!(check("{% include '../../etc/hostname' %}").is_err());
    }
}
