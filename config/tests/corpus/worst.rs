//! Manifests that are as costly as a mebibyte can be, one for each idea of how to make them so.

const HEAD: &str = "id: demo\nname: Demo\ndescription: d\nentrypoint: libdemo\n";
const AGENT: &str = "id: demo\nname: Demo\ndescription: d\nagent:\n  model: m\n  instructions: ''\n";
/// Just within the bound on a file.
const FULL: usize = 1024 * 1024 - 600;

/// Each with its name.
pub fn all() -> Vec<(&'static str, String)> {
    let mut cases = shapes();
    cases.extend(keys());
    cases.extend(schemas());
    cases.extend(validated());
    cases.extend(texts());
    cases
}

/// Schemas and configurations that are both as large as they may be.
fn validated() -> Vec<(&'static str, String)> {
    let against = |schema: &str| {
        let items = |n: usize| if n.is_multiple_of(2) { format!("[x{n}],") } else { format!("{n},") };
        some(11_000, &format!("{HEAD}config: {{a: ["), items, &format!("]}}\nconfig_schema: {schema}\n"))
    };
    let of_items = |items: &str| against(&format!("{{properties: {{a: {{items: {items}}}}}}}"));
    let list = |count, item: &dyn Fn(usize) -> String| some(count, "[", item, "]");
    vec![
        ("unique items", against("{properties: {a: {uniqueItems: true}}}")),
        (
            "an enumeration of each item",
            of_items(&format!("{{enum: {}}}", list(1_900, &|n| format!("k{n},")))),
        ),
        (
            "alternatives of each item",
            of_items(&format!("{{anyOf: {}}}", list(900, &|n| format!("{{const: k{n}}},")))),
        ),
        (
            "references of each item",
            of_items(&format!(
                "{{oneOf: {}}}, contains: {{$ref: '#/x'}}}}}}, x: {{type: string}}, y: {{z: {{",
                list(600, &|_| "{$ref: '#/x'},".into())
            )),
        ),
        (
            "patterns of each item",
            of_items(&format!(
                "{{anyOf: {}}}",
                list(200, &|n| format!("{{pattern: '^([a-z]{{0,20}}x?)*{n}$'}},"))
            )),
        ),
        (
            "large patterns",
            against(&format!("{{anyOf: {}}}", list(15, &|n| format!("{{pattern: '\\p{{L}}{{9}}{n}'}},")))),
        ),
        (
            "nested leftovers",
            against(&format!("{}{}", "{unevaluatedProperties: false, allOf: [".repeat(12), "]}".repeat(12))),
        ),
        (
            "side by side leftovers",
            against(&format!(
                "{{unevaluatedProperties: false, anyOf: {}}}",
                list(600, &|n| format!("{{properties: {{k{n}: true}}}},"))
            )),
        ),
    ]
}

/// `item(0) item(1) …` up to the bound on a file.
fn fill(head: &str, item: impl Fn(usize) -> String, tail: &str) -> String {
    let mut text = head.to_owned();
    for number in 0.. {
        let next = item(number);
        if text.len() + next.len() + tail.len() > FULL {
            break;
        }
        text.push_str(&next);
    }
    text + tail
}

fn some(count: usize, head: &str, item: impl Fn(usize) -> String, tail: &str) -> String {
    (0..count).fold(head.to_owned(), |text, number| text + &item(number)) + tail
}

fn shapes() -> Vec<(&'static str, String)> {
    let config = format!("{HEAD}config:\n");
    let mut ladder = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        ladder.push_str(&format!(
            "a{level}: &a{level} [{}]\n",
            vec![format!("*a{}", level - 1); 10].join(", ")
        ));
    }
    vec![
        ("brackets", "[".repeat(FULL)),
        ("braces", "{".repeat(FULL)),
        ("questions", "? ".repeat(FULL / 2)),
        ("dashes", "- ".repeat(FULL / 2)),
        ("indents", fill("", |level| format!("{}a:\n", " ".repeat(level)), "")),
        ("quotes", "'\"".repeat(FULL / 2)),
        ("commas", format!("[{}]", ",".repeat(FULL))),
        ("newlines", "\n".repeat(FULL)),
        ("carriage returns", "\r".repeat(FULL)),
        ("comments", "#\n".repeat(FULL / 2)),
        ("documents", "---\n".repeat(FULL / 4)),
        ("zero bytes", "\0".repeat(FULL)),
        ("marks of byte order", "\u{feff}".repeat(FULL / 3)),
        ("anchors", fill(&config, |n| format!(" k{n}: &a{n} x\n"), "")),
        ("aliases", fill(&format!("{config} a: &a [1, 2, 3, 4, 5]\n"), |n| format!(" k{n}: *a\n"), "")),
        ("a ladder of aliases", ladder),
        ("an alias of a large text", {
            let text = "x".repeat(900_000);
            some(9_000, &format!("{config} a: &a {text}\n b: [*a"), |_| ", *a".into(), "]\n")
        }),
        ("a list", fill(&format!("{config} a: ["), |_| "1,".into(), "]")),
        ("a long list within the bound", some(19_900, &format!("{config} a: ["), |_| "1,".into(), "]")),
        ("a wide map", some(9_900, &config, |n| format!(" key{n}: {{}}\n"), "")),
        ("a deep map of many", deep("k", 9_800)),
    ]
}

/// Sixty levels of maps, and `count` entries in the last.
fn deep(key: &str, count: usize) -> String {
    let mut text = format!("{HEAD}config: ");
    for _ in 0..58 {
        text.push_str(&format!("{{? {key} : "));
    }
    text.push('{');
    text = some(count, &text, |n| format!("k{n}: 1e999,"), "}");
    text + &"}".repeat(58)
}

fn keys() -> Vec<(&'static str, String)> {
    vec![
        ("unknown keys", fill(HEAD, |n| format!("k{n}: {{}}\n"), "")),
        ("keys like known ones", fill(HEAD, |n| format!("entrypoin{n}: {{}}\n"), "")),
        ("one key again and again", fill(HEAD, |_| "name: x\n".into(), "")),
        ("one key again and again, below", fill(&format!("{HEAD}config:\n"), |_| " k: x\n".into(), "")),
        ("a long key", format!("{HEAD}? {}\n: x\n", "k".repeat(FULL - 100))),
        (
            "a long key over many",
            some(
                20_000,
                &format!("{HEAD}config:\n  ? {}\n  :\n", "k".repeat(500_000)),
                |n| format!("   k{n}: 1\n"),
                "",
            ),
        ),
        ("long keys over many", deep(&"k".repeat(250), 9_800)),
        (
            "long keys over the same",
            deep(&"k".repeat(250), 0).replace("{}", &format!("{{{}}}", "k: 1,".repeat(9_800))),
        ),
        ("wrong types", format!("{HEAD}secrets: [{}]\n", "[],".repeat(19_900))),
        ("bad ids", fill(&format!("{HEAD}depends_on: ["), |_| "A,".into(), "]")),
        ("itself", some(19_900, &format!("{AGENT}  uses_tools: ["), |_| "demo,".into(), "]\n")),
        (
            "files that are not there",
            some(20_000, &format!("{AGENT}  context: ["), |n| format!("x{n}.md,"), "]\n"),
        ),
        (
            "one large file many times",
            some(64, &format!("{AGENT}  context: ["), |_| "large.md,".into(), "]\n"),
        ),
    ]
}

fn schemas() -> Vec<(&'static str, String)> {
    let schema = format!("{HEAD}config: {{a: [[[[1]]]]}}\nconfig_schema:\n");
    let ladder = |word: &str| {
        let defs = some(
            40,
            "  $ref: '#/$defs/d0'\n  $defs:\n",
            |n| {
                let next = format!("{{$ref: '#/$defs/d{}'}}", n + 1);
                let doubled = if word == "properties" {
                    format!("{{properties: {{a: {next}, b: {next}}}, additionalProperties: {next}}}")
                } else {
                    format!("{{{word}: [{next}, {next}]}}")
                };
                format!("   d{n}: {doubled}\n")
            },
            "   d40: {type: string}\n",
        );
        schema.clone() + &defs
    };
    vec![
        ("a ladder of allOf", ladder("allOf")),
        ("a ladder of anyOf", ladder("anyOf")),
        ("a ladder of oneOf", ladder("oneOf")),
        ("a ladder of properties", ladder("properties")),
        ("a schema that is its own part", schema.clone() + "  allOf: [{$ref: '#'}, {$ref: '#'}]\n"),
        (
            "a schema that is its own item, twice",
            schema.clone()
                + "  additionalProperties: {$ref: '#'}\n  items: {anyOf: [{$ref: '#'}, {$ref: '#'}, {$ref: '#'}]}\n",
        ),
        (
            "patterns",
            some(
                9_000,
                &format!("{schema}  properties:\n"),
                |n| format!("   k{n}: {{pattern: '\\w{{40}}{n}'}}\n"),
                "",
            ),
        ),
        (
            "patterns of properties",
            some(
                9_000,
                &format!("{schema}  patternProperties:\n"),
                |n| format!("   '^\\w{{40}}{n}$': {{}}\n"),
                "",
            ),
        ),
        ("an enumeration", some(30_000, &format!("{schema}  enum: ["), |n| format!("k{n},"), "]\n")),
        ("many schemas", some(20_000, &format!("{schema}  anyOf: ["), |_| "{},".into(), "]\n")),
        (
            "many references",
            some(
                12_000,
                &format!("{schema}  $defs: {{a: {{type: string}}}}\n  anyOf: ["),
                |_| "{$ref: '#/$defs/a'},".into(),
                "]\n",
            ),
        ),
        (
            "dynamic references",
            some(
                300,
                &format!("{schema}  $dynamicAnchor: x\n  allOf: ["),
                |_| "{$dynamicRef: '#x'},".into(),
                "]\n",
            ),
        ),
        (
            "unevaluated properties",
            some(
                3_000,
                &format!("{schema}  unevaluatedProperties: false\n  anyOf: ["),
                |n| format!("{{properties: {{k{n}: true}}}},"),
                "]\n",
            ),
        ),
        ("bad formats", some(3_000, &format!("{schema}  anyOf: ["), |_| "{type: wrong},".into(), "]\n")),
    ]
}

fn texts() -> Vec<(&'static str, String)> {
    let offline = format!("{AGENT}  offline:\n");
    vec![
        ("one long text", format!("{HEAD}summary: {}\n", "x".repeat(FULL - 200))),
        (
            "one long text of many bytes a letter",
            format!("{HEAD}summary: {}\n", "\u{1f980}".repeat(FULL / 4 - 200)),
        ),
        ("a long text of the wrong form", format!("{HEAD}version: {}\n", "1".repeat(FULL - 200))),
        ("a long number", format!("{HEAD}config: {{a: {}}}\n", "9".repeat(FULL - 200))),
        ("a long fraction", format!("{HEAD}config: {{a: 0.{}}}\n", "9".repeat(FULL - 200))),
        ("escapes", format!("{HEAD}summary: \"{}\"\n", "\\U0001F980".repeat(FULL / 10 - 200))),
        ("a folded text", format!("{HEAD}summary: >\n{}", "  x\n".repeat(FULL / 4 - 200))),
        ("placeholders", format!("{HEAD}config: {{a: '{}'}}\n", "${A}".repeat(FULL / 4 - 200))),
        ("malformed placeholders", format!("{HEAD}config: {{a: '{}'}}\n", "${".repeat(FULL / 2 - 200))),
        ("expressions", some(9_000, &offline, |n| format!("   - {{when: '\\w{{30}}{n}', say: x}}\n"), "")),
        (
            "an expression of many groups",
            format!(
                "{offline}   - {{when: '{}', say: x}}\n",
                some(8_000, "", |n| format!("(?P<g{n}>a)"), "")
            ),
        ),
        (
            "an expression in an expression",
            format!("{offline}   - {{when: '{}a{}', say: x}}\n", "(".repeat(200_000), ")".repeat(200_000)),
        ),
        (
            "groups that later rules may use",
            some(
                4_000,
                &offline,
                |n| format!("   - {{when: '(?P<g{n}>a)', say: x}}\n   - {{after: t, say: '{{{{h}}}}'}}\n"),
                "",
            ),
        ),
        (
            "names in a template",
            format!("{offline}   - {{after: t, say: '{}'}}\n", "{{x}}".repeat(FULL / 5 - 200)),
        ),
        (
            "a template that is never closed",
            format!("{offline}   - {{after: t, say: '{}'}}\n", "{{".repeat(FULL / 2 - 200)),
        ),
        ("names of files", format!("{AGENT}  usage: {}/x.md\n", "a/".repeat(FULL / 2 - 200))),
    ]
}
