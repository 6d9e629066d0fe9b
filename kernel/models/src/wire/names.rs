//! Tool names on the wire: letters, digits, `_` and `-`, no more than 64, beginning with a letter or `_`.
//!
//! That is what every API takes. Ours may hold dots and begin with a digit. A name that needs no change has none;
//! any other is changed so that no two names of a list become one, and the model's calls are read back by the list.
//! What a call names is a tool of the list before it is any other, and a tool's own name before a changed one.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use drupe_extension_api::ToolSpec;

const DOT: &str = "_dot_";
const LONGEST: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Those that differ on the wire: own name, wire name.
    changed: Vec<(String, String)>,
    same: HashSet<String>,
}

impl Names {
    pub(crate) fn of(specs: &[Arc<ToolSpec>]) -> Self {
        let names = || specs.iter().map(|spec| spec.name.as_str());
        let same: HashSet<String> = names().filter(|name| fits(name)).map(str::to_owned).collect();
        if same.len() == specs.len() {
            return Self { changed: Vec::new(), same };
        }
        let mut taken = same.clone();
        let mut changed = Vec::new();
        for name in names().filter(|name| !fits(name)) {
            let mut wire = plain(name);
            let mut n = 2;
            while !taken.insert(wire.clone()) {
                wire = marked(&plain(name), &format!("_{n}"));
                n += 1;
            }
            changed.push((name.to_owned(), wire));
        }
        Self { changed, same }
    }

    /// What stands on the wire for `name`, be it of the list or what a model made up.
    pub(crate) fn wire<'a>(&'a self, name: &'a str) -> Cow<'a, str> {
        if fits(name) {
            return Cow::Borrowed(name);
        }
        match self.changed.iter().find(|(own, _)| own == name) {
            Some((_, wire)) => Cow::Borrowed(wire),
            None => Cow::Owned(plain(name)),
        }
    }

    /// The tool that a model means by `name`. `further` tools may be called without having been on the list.
    pub(crate) fn own(&self, name: String, further: &[Arc<ToolSpec>]) -> String {
        if self.same.contains(&name) {
            return name;
        }
        if let Some((own, _)) = self.changed.iter().find(|(_, wire)| *wire == name) {
            return own.clone();
        }
        let mut changed = further.iter().map(|spec| spec.name.as_str()).filter(|own| !fits(own));
        match changed.find(|own| plain(own) == name) {
            Some(own) if !further.iter().any(|spec| spec.name.as_str() == name) => own.to_owned(),
            _ => name,
        }
    }
}

fn allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn begins(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

fn fits(name: &str) -> bool {
    name.len() <= LONGEST && begins(name) && name.chars().all(allowed)
}

/// The changed name, as far as it does not depend on a list.
fn plain(name: &str) -> String {
    let start = if begins(name) { "" } else { "_" };
    let text = name.replace('.', DOT);
    let wire: String = start.chars().chain(text.chars().map(|c| if allowed(c) { c } else { '_' })).collect();
    if wire.len() <= LONGEST {
        return wire;
    }
    // Two long names that begin alike stay two.
    let sum = name.bytes().fold(0x811c_9dc5_u32, |sum, b| (sum ^ u32::from(b)).wrapping_mul(0x0100_0193));
    marked(&wire, &format!("_{sum:08x}"))
}

fn marked(name: &str, mark: &str) -> String {
    let room = LONGEST - mark.len();
    format!("{}{mark}", &name[..name.len().min(room)])
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use drupe_extension_api::{ToolAnnotations, ToolName};
    use serde_json::json;

    use super::*;

    fn specs(names: &[&str]) -> Vec<Arc<ToolSpec>> {
        let spec = |name: &&str| {
            Arc::new(ToolSpec {
                name: ToolName::new(*name).unwrap(),
                description: String::new(),
                input_schema: json!({}),
                instructions: None,
                annotations: ToolAnnotations::default(),
            })
        };
        names.iter().map(spec).collect()
    }

    #[test]
    fn every_name_of_a_list_fits_differs_and_is_read_back() {
        let long = ["a.".repeat(31), format!("{}b", "a.".repeat(31))];
        let lists: [&[&str]; 4] = [
            &["kv_get", "kv-set"],
            &["kv.get", "kv_dot_get", "kv_dot_get_2", "9lives", "_9lives"],
            &["-x", "_-x", "."],
            &[&long[0], &long[1]],
        ];
        for list in lists {
            let names = Names::of(&specs(list));
            let mut seen = HashSet::new();
            for own in list {
                let wire = names.wire(own).into_owned();
                assert!(fits(&wire), "{own} as {wire}");
                assert!(seen.insert(wire.clone()), "{own} as {wire}");
                assert_eq!(names.own(wire, &[]), *own);
            }
        }
    }

    #[test]
    fn a_deferred_tool_is_known_by_its_name_on_the_wire() {
        let names = Names::of(&specs(&["kv_get"]));
        assert_eq!(names.own("kv_dot_set".to_owned(), &specs(&["kv.set"])), "kv.set");
        assert_eq!(names.own("kv_dot_set".to_owned(), &specs(&["kv.set", "kv_dot_set"])), "kv_dot_set");
        assert_eq!(names.own("unknown".to_owned(), &specs(&["kv.set"])), "unknown");
        for offered in [&["kv_dot_set"][..], &["kv_dot_set", "a.b"]] {
            let names = Names::of(&specs(offered));
            assert_eq!(names.own("kv_dot_set".to_owned(), &specs(&["kv.set"])), "kv_dot_set");
        }
    }

    #[test]
    fn names_that_a_model_made_up_can_be_sent_back_to_it() {
        for name in ["", "süß", "a b", &"x".repeat(500), "{}"] {
            assert!(fits(&Names::default().wire(name)), "{name}");
        }
    }
}
