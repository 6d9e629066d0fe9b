//! The files are checked as a browser under the page's policy would meet them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use super::{FILES, asset};
use crate::CONTENT_SECURITY_POLICY;

/// The files of the folder, by their paths below it.
fn folder() -> BTreeMap<String, String> {
    fn walk(folder: &Path, root: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, root, found);
            } else {
                let name = path.strip_prefix(root).expect("beneath the root").display().to_string();
                found.insert(name, fs::read_to_string(&path).expect("a text"));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("files");
    let mut found = BTreeMap::new();
    walk(&root, &root, &mut found);
    found
}

fn of(ending: &str) -> Vec<(String, String)> {
    folder().into_iter().filter(|(name, _)| name.ends_with(ending)).collect()
}

/// What stands between `begin` and `end`, each time.
fn between<'a>(text: &'a str, begin: &str, end: char) -> Vec<&'a str> {
    text.split(begin).skip(1).filter_map(|rest| rest.split(end).next()).collect()
}

#[test]
fn every_file_of_the_folder_is_carried_and_nothing_else() {
    let carried: BTreeSet<&str> = FILES.iter().map(|(name, _)| *name).collect();
    let there = folder();
    assert_eq!(carried, there.keys().map(String::as_str).collect());
    for (name, text) in &there {
        let served = asset(&format!("/page/{name}")).expect("it is carried");
        assert_eq!(served.body, text.as_bytes(), "{name}");
        let known = ["text/html; ", "text/css; ", "text/javascript; ", "image/svg+xml"];
        assert!(known.iter().any(|kind| served.content_type.starts_with(kind)), "{name}");
    }
    assert_eq!(asset("/"), asset("/page/index.html"));
}

#[test]
fn no_way_of_writing_a_path_leads_elsewhere() {
    for path in [
        "",
        "/page",
        "/page/",
        "/index.html",
        "page/index.html",
        "/page//index.html",
        "/page/../index.html",
        "/page/js/../index.html",
        "/page/%69ndex.html",
        "/page/js",
        "/page/INDEX.HTML",
        "/page/index.html/",
        "//page/index.html",
    ] {
        assert_eq!(asset(path), None, "{path}");
    }
}

#[test]
fn another_content_has_another_etag() {
    let tags: BTreeSet<&str> =
        FILES.iter().filter_map(|(name, _)| asset(&format!("/page/{name}"))).map(|a| a.etag).collect();
    assert_eq!(tags.len(), FILES.len());
    assert!(tags.iter().all(|tag| tag.len() == 34 && tag.starts_with('"') && tag.ends_with('"')));
}

#[test]
fn what_a_file_names_is_there() {
    let there = folder();
    for (name, text) in &there {
        let here = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let named = [" from \"./", "import \"./", "later(\"./", "import(\"./"]
            .iter()
            .flat_map(|begin| between(text, begin, '"'))
            .map(|file| format!("{here}/{file}"));
        let linked =
            ["=\"/page/", "url(/page/", "url(\"/page/"].iter().flat_map(|begin| between(text, begin, '"'));
        for file in named.chain(linked.map(str::to_owned)) {
            assert!(there.contains_key(&file), "{name} names {file}, which is not there");
        }
    }
    let used: String = there.values().map(String::as_str).collect();
    for name in there.keys().filter(|name| name.contains('/')) {
        let file = name.rsplit('/').next().expect("a name");
        // What the server gives under a name of its own.
        let served = ["embed/embed.js", "embed/index.html"].contains(&name.as_str());
        assert!(served || used.contains(&format!("/{file}\"")), "nothing uses {name}");
    }
}

#[test]
fn nothing_is_asked_of_another_host() {
    for (name, text) in folder() {
        let text = text.replace("http://www.w3.org/2000/svg", "");
        for outside in
            ["http:", "https:", "ws://", "wss://", "\"//", "'//", "url(//", "@import", "\"data:", "url(data:"]
        {
            assert!(!text.contains(outside), "{name} has {outside}");
        }
    }
}

#[test]
fn no_script_and_no_style_stands_in_the_markup() {
    for (name, text) in of(".html") {
        for script in text.split("<script").skip(1) {
            let tag = script.split('>').next().unwrap_or_default();
            assert!(
                tag.contains(" src=\"/page/") && script[tag.len() + 1..].starts_with("</script>"),
                "{name}: {tag}"
            );
        }
        for bad in [
            "<style",
            " style=",
            "javascript:",
            " onclick",
            " onload",
            " onerror",
            "<base",
            "<iframe",
            "<meta http-equiv",
        ] {
            assert!(!text.contains(bad), "{name} has {bad}");
        }
    }
}

/// Text of models, tools and files reaches the page as text; the one file that makes markup says so to the browser.
#[test]
fn one_module_alone_makes_markup_of_a_text() {
    let mut makers = Vec::new();
    for (name, text) in of(".js") {
        for bad in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "srcdoc",
            "cssText",
            "setAttribute(\"style",
            "setHTMLUnsafe",
            "createContextualFragment",
            "javascript:",
        ] {
            assert!(!text.contains(bad), "{name} has {bad}");
        }
        if text.contains("DOMParser") || text.contains("createPolicy") {
            makers.push(name);
        }
    }
    assert_eq!(makers, ["js/markdown.js"]);
    let maker = &folder()["js/markdown.js"];
    assert!(maker.contains("createPolicy(\"drupe-markdown\""));
}

#[test]
fn the_policy_lets_nothing_but_what_the_page_is_made_of() {
    let directives: BTreeMap<&str, &str> =
        CONTENT_SECURITY_POLICY.split("; ").filter_map(|one| one.trim().split_once(' ')).collect();
    let expected = [
        ("default-src", "'none'"),
        ("script-src", "'self'"),
        ("style-src", "'self'"),
        ("connect-src", "'self'"),
        ("img-src", "'self'"),
        ("frame-ancestors", "'none'"),
        ("base-uri", "'none'"),
        ("form-action", "'self'"),
        ("require-trusted-types-for", "'script'"),
        ("trusted-types", "drupe-markdown"),
    ];
    assert_eq!(directives, BTreeMap::from(expected));
}

#[test]
fn every_file_is_one_thing() {
    for (name, text) in folder() {
        assert!(text.lines().count() <= 300, "{name} has {} lines", text.lines().count());
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(longest <= 200, "{name} has a line of {longest} characters");
    }
}

#[test]
fn who_is_not_signed_in_reads_what_to_do() {
    let page = asset("/page/sign-in.html").expect("it is carried");
    let text = std::str::from_utf8(page.body).expect("a text");
    assert!(text.contains("drupe open") && !text.contains("main.js"));
}
