//! Texts of models, tools, files, agents and people that are made to run in a browser, in every view that shows them: no script
//! runs, nothing is loaded, and nobody outside is asked.

use serde_json::{Value, json};

use super::{
    ESCAPE, Scene,
    browser::{DESK, PHONE, Window},
    stage::{Gate, staged},
};
use crate::harness::Daemon;

/// Each way that markdown, markup and addresses are known to lead to code or to a request. They set `owned`, or ask `outside.invalid`.
const ATTACKS: &[&str] = &[
    "<script>owned=1</script>",
    "<script src=http://outside.invalid/x.js></script>",
    "<img src=http://outside.invalid/a.png onerror=owned=1>",
    "<svg onload=owned=1><script>owned=1</script><image href=http://outside.invalid/b.png /></svg>",
    "<math><mtext><table><mglyph><style><!--</style><img title=\"--><img src=1 onerror=owned=1>\">",
    "<noscript><p title=\"</noscript><img src=x onerror=owned=1>\">",
    "<iframe srcdoc=\"<script>parent.owned=1</script>\"></iframe>",
    "<iframe src=\"javascript:parent.owned=1\"></iframe>",
    "<object data=http://outside.invalid/o></object><embed src=http://outside.invalid/e>",
    "<link rel=stylesheet href=http://outside.invalid/s.css><style>@import url(http://outside.invalid/t.css);*{background:url(http://outside.invalid/u)}</style>",
    "<meta http-equiv=refresh content='0;url=http://outside.invalid/'><base href=http://outside.invalid/>",
    "<form action=http://outside.invalid/><button autofocus onfocus=owned=1 formaction=javascript:owned=1>x</button></form>",
    "<input autofocus onfocus=owned=1><details open ontoggle=owned=1><video src=http://outside.invalid/v autoplay onerror=owned=1>",
    "<body onload=owned=1><a href=javascript:owned=1 id=main class=primary>x</a><p style=\"background:url(http://outside.invalid/w)\">x</p>",
    "![a](http://outside.invalid/c.png) ![b](/page/icon.svg \"onload=owned=1\")",
    "[c](javascript:owned=1) [d](JaVaScRiPt:owned=1) [e](&#106;avascript&colon;owned=1) [f](javascript&#58;owned=1)",
    "[g](data:text/html,<script>owned=1</script>) [h](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9b3duZWQ9MT4=) [i](vbscript:owned=1)",
    "[j](<java\tscript:owned=1>) [k](\u{1}javascript:owned=1) [l](//outside.invalid/m) [m](file:///etc/passwd) [n](blob:x)",
    "<javascript:owned=1> <http://outside.invalid/auto> <a@outside.invalid>",
    "[o] [p][o]\\n\\n[o]: javascript:owned=1",
    "&lt;script&gt;owned=1&lt;/script&gt; &#60;img src=x onerror=owned=1&#62;",
    "`<script>owned=1</script>` \u{202e}<script>owned=1</script>",
    "{{constructor.constructor('owned=1')()}} ${owned=1} \"><script>owned=1</script> '-owned=1-'",
];

/// What the page holds that a text must not have made, a sentence each.
const FOUND: &str = r"
const found = [];
if (typeof owned !== 'undefined') found.push('a script ran');
for (const e of document.querySelectorAll('script, style, img, iframe, object, embed, video, audio, math, base, form, image, use, animate, foreignObject, link, meta, template, noscript'))
  if (!e.closest('head') && !e.matches('form.composer, form.ask, form.fields, dialog form') && !(e.matches('noscript') && e.parentElement.id === 'main')) found.push('made: ' + e.outerHTML.slice(0, 120));
for (const e of document.querySelectorAll('*'))
  for (const {name, value} of e.attributes)
    if (/^on/i.test(name) || name === 'srcdoc' || name === 'formaction' || (name === 'style' && value.includes('url'))) found.push('attribute: ' + e.outerHTML.slice(0, 120));
for (const a of document.links)
  if (!['http:', 'https:', 'mailto:'].includes(a.protocol) || (a.origin !== location.origin && (a.target !== '_blank' || !a.relList.contains('noopener')))) found.push('link: ' + a.href);
return found;
";

struct Attacked {
    scene: Scene,
    /// What the page holds that it must not, with where.
    found: Vec<String>,
}

impl Attacked {
    /// Looks at what is shown.
    fn look(&mut self, place: &str) {
        let found = self.scene.browser.eval(FOUND);
        self.found.extend(found.as_array().into_iter().flatten().map(|what| format!("{place}: {what}")));
    }

    fn visit(&mut self, view: &str, shown: &str, text: &str) {
        self.scene.view(view);
        self.scene.browser.shows(shown, text);
        self.look(view);
    }
}

/// A name of a file, an agent's description, an example, and an extension that waits for an answer: all of them attacks.
fn prepare(daemon: &Daemon) {
    let file = daemon.path().join("drupe.yaml");
    let settings = std::fs::read_to_string(file).expect("its settings");
    daemon.write("drupe.yaml", &(settings + "approvals: {preauthorized: [careful]}\n"));
    let all = json!(ATTACKS.join(" "));
    let one = json!(ATTACKS[2]);
    daemon.write(
        "extensions/evil/manifest.yaml",
        &format!(
            "id: evil\nname: {one}\nsummary: {one}\ndescription: {all}\nagent: {{model: default, usage: {one}, instructions: x}}\n"
        ),
    );
    daemon.write(
        "extensions/asks/manifest.yaml",
        &format!("id: asks\nname: {one}\ndescription: {all}\nsetup_instructions: {all}\nagent: {{model: default, instructions: x, uses_agents: [haiku]}}\n"),
    );
}

fn attack(window: Window) {
    let Some(scene) = Scene::open(window, staged(&Gate::default()), prepare) else { return };
    let mut all = Attacked { scene, found: Vec::new() };
    let _ = all.scene.browser.requests();
    let name = format!("{}.txt", ATTACKS[2].replace('/', "_"));
    // Each as a message, so as a title, and as an answer, while it streams and afterwards.
    for text in ATTACKS {
        all.scene.view("#/new");
        all.scene.browser.until("document.querySelector('.welcome') && !document.querySelector('.turn')");
        all.scene.send_lines(&[&format!("SAY {text}")]);
        all.scene.ended();
        all.look("conversation");
    }
    // As parameters and results of tools, as tasks and answers of sub-agents, as steps of a plan and as the name of a file.
    let everything = ATTACKS.join("\n\n");
    let parameters = json!({ATTACKS[0]: ATTACKS, "x": everything});
    let plan = json!({"items": [{"step": ATTACKS[2], "status": "in_progress"}]});
    let task = json!({"task": format!("SAY {}", ATTACKS.join("\\n\\n"))});
    let file = json!({"path": name, "content": everything});
    all.scene.send_lines(&[
        &format!("CALL update_plan {plan}"),
        &format!("CALL careful_echo {parameters}"),
        &format!("CALL agent_haiku {task}"),
        &format!("CALL files_write {file}"),
        &format!("CALL files_read {}", json!({"path": name})),
        &format!("CALL nothing_like_this {parameters}"),
        &format!("SAY {}", ATTACKS.join("\\n\\n")),
    ]);
    all.scene.browser.shows(".turn:last-child .plan", ATTACKS[2]);
    all.scene.ended();
    all.look("work");
    let opened = all.scene.browser.eval(
        "const all = [...document.querySelectorAll('.turn:last-child .work .more:not([hidden])')]; all.forEach(b => b.click()); return all.length",
    );
    assert!(opened.as_u64().is_some_and(|opened| opened >= 4), "{opened}");
    all.scene
        .browser
        .until(&format!("document.querySelectorAll('.turn:last-child .io > section').length >= {opened}"));
    all.look("input and output");
    let (conversation, turn) = (all.scene.conversation(), all.scene.turn());
    // The rest of the views, each with what it has of it.
    let timeline = format!("{conversation}/t/{turn}");
    all.visit(&timeline, ".rows", "haiku");
    let rows = all.scene.browser.eval("return [...document.querySelectorAll('.rows a')].map(a => a.hash)");
    for row in rows.as_array().into_iter().flatten().filter_map(Value::as_str) {
        all.visit(row, ".inspector .facts", "id");
        all.scene.browser.until("!document.querySelector('.inspector').innerText.includes('Reading…')");
        all.look(row);
    }
    all.scene.browser.click("[data-look=flame]");
    all.scene.browser.until("document.querySelector('.flame-bar')");
    all.look("flame");
    let call = json!({"path": "/nowhere/at/all", "nonce": everything});
    all.scene.view(&conversation);
    all.scene.browser.until("document.querySelector('.turn')");
    all.scene.send_lines(&[&format!("CALL careful_effect_append {call}"), "SAY x"]);
    all.scene.browser.shows(".question .io-text", "<script>owned=1</script>");
    all.look("question");
    all.visit("#/approvals", ".question .io-text", "<script>owned=1</script>");
    all.visit("#/agents", ".card", "onerror=owned=1");
    all.visit("#/agents/evil", "main h1", "onerror=owned=1");
    all.visit("#/agents/orchestrator", "main", "agent_evil");
    all.visit("#/extensions", ".card", "asks");
    all.visit("#/extensions/asks", "main h1", "onerror=owned=1");
    let task = json!({"name": "evil", "when": "@yearly", "task": everything});
    all.scene.daemon.client().ask("schedules.add", task).expect("it is added");
    all.visit("#/schedules/evil", ".kept summary", "onerror=owned=1");
    all.scene.browser.click(".kept summary.text");
    all.look("a long task");
    let mut saves: Vec<_> =
        ATTACKS.iter().map(|text| format!("CALL memory_save {}", json!({"text": text}))).collect();
    saves.push("SAY kept".into());
    all.scene.daemon.turn("facts", &saves.join("\n"));
    all.visit("#/memory", ".kept .text", "onerror=owned=1");
    // Some say the same but for their signs, and are one fact.
    all.scene.browser.until(&format!("document.querySelectorAll('.kept').length > {}", ATTACKS.len() / 2));
    all.scene
        .browser
        .eval("document.querySelectorAll('.kept button:first-child').forEach(edit => edit.click())");
    all.look("facts that are edited");
    all.visit("#/memory/q/script", ".kept .text", "<script>owned=1</script>");
    all.scene.browser.eval("document.querySelector('.kept .danger').click()");
    all.scene.browser.until("document.querySelector('dialog.confirm[open] .text')");
    all.look("a fact that is to be forgotten");
    all.scene.browser.press(&ESCAPE.to_string());
    all.visit("#/usage", ".sums", "tokens");
    all.visit("#/daemon", "table", "careful");
    all.visit(&format!("#/why/{turn}"), ".why", "answered");
    all.visit(
        &format!("#/why/{}", "%3Cimg%20src%3Dx%20onerror%3Downed%3D1%3E"),
        ".notice",
        "onerror=owned=1",
    );
    all.visit("#/agents/%3Cimg%20src%3Dx%20onerror%3Downed%3D1%3E", ".notice", "onerror=owned=1");
    all.visit("#/s/%3Cimg%20src%3Dx%20onerror%3Downed%3D1%3E", "main", "");
    all.visit("#/%3Cscript%3Eowned=1", "h1", "nothing");
    all.visit("#/new", ".welcome", "@evil");
    all.scene.browser.write(".composer textarea", "@ev");
    all.scene.browser.shows(".mentions", "@evil");
    all.look("mentions");
    // From the journal, anew, with every title at the side and every answer made whole.
    all.scene
        .browser
        .until(&format!("document.querySelectorAll('#sessions li a').length >= {}", ATTACKS.len()));
    let conversations =
        all.scene.browser.eval("return [...document.querySelectorAll('#sessions li a')].map(a => a.hash)");
    for conversation in conversations.as_array().into_iter().flatten().filter_map(Value::as_str) {
        all.scene.visit(conversation);
        all.scene.browser.until("document.querySelector('.turn .prose')?.innerText");
        all.look(conversation);
    }
    assert!(all.found.is_empty(), "{:#?}", all.found);
    let origin = all.scene.browser.eval("return location.origin");
    let origin = origin.as_str().expect("an origin");
    let asked = all.scene.browser.requests();
    let outside: Vec<_> =
        asked.iter().filter(|url| !url.starts_with(origin) && *url != "about:blank").collect();
    assert!(outside.is_empty() && asked.len() > 50, "{outside:?} of {}", asked.len());
    let complaints: Vec<_> = all
        .scene
        .browser
        .log()
        .into_iter()
        .filter(|line| line.contains("Content Security") || line.contains("Trusted"))
        .collect();
    assert!(complaints.is_empty(), "nothing even tried: {complaints:?}");
}

#[test]
fn no_text_of_others_runs_or_loads_anything_in_any_view_on_a_desk() {
    attack(DESK);
}

#[test]
fn no_text_of_others_runs_or_loads_anything_in_any_view_on_a_phone() {
    attack(PHONE);
}
