//! Templates that ask for more memory or time than a machine has: their extensions fail, and nobody else notices.

use std::{collections::BTreeMap, fs};

use serde_json::Value;

use crate::harness::Daemon;

const ANY: &str = "may hold 128 MiB of memory and compute for 1 s";

/// Templates, each greedy in a way of its own, and a part of what its author is told.
fn greedy() -> BTreeMap<&'static str, (String, &'static str)> {
    let big = "{% set a = 'x' * 100000 %}";
    BTreeMap::from([
        ("indents", ("{{ 'x\\nx'|indent(1000000000000) }}".into(), ANY)),
        ("formats", ("{{ '%0300000000d'|format(1) }}".into(), ANY)),
        ("repeats", ("{{ 'x' * 1000000000000 }}".into(), "too large")),
        ("replaces", (format!("{big}{{{{ a|replace('x', a) }}}}"), ANY)),
        ("joins", (format!("{big}{{{{ range(9999)|join(a) }}}}"), ANY)),
        (
            "doubles",
            (
                "{% set n = namespace(t='x') %}{% for i in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}".into(),
                ANY,
            ),
        ),
        (
            "computes",
            (
                "{% set a = 'x' * 20000000 %}{% for i in range(9999) %}{% if a ~ i == a %}x{% endif %}{% endfor %}"
                    .into(),
                ANY,
            ),
        ),
        ("nests", (format!("{{{{ {}1 }}}}", "(".repeat(300_000)), "p.j2")),
        ("calls_itself", ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".into(), "p.j2")),
        ("includes_itself", ("{% include 'p.j2' %}".into(), "p.j2")),
    ])
}

fn write(daemon: &Daemon, id: &str, template: &str) {
    let manifest = format!(
        "id: {id}\nname: {id}\ndescription: Does it.\nagent: {{model: default, usage: x, instructions: p.j2}}\n"
    );
    daemon.write(&format!("extensions/{id}/p.j2"), template);
    daemon.write(&format!("extensions/{id}/manifest.yaml"), &manifest);
}

#[test]
fn a_template_that_asks_for_too_much_fails_its_extension_alone() {
    let mut daemon = Daemon::home("");
    write(&daemon, "modest", "Today is {{ now }}.");
    for (id, (template, _)) in greedy() {
        write(&daemon, id, &template);
    }
    let output = daemon.drupe(&["ext", "check", "--json"]).stdout;
    let report: Value = serde_json::from_slice(&output).expect("a report");
    let foretold = |id: &str| {
        let all = report["extensions"].as_array().expect("a list");
        let one = all.iter().find(|one| one["id"] == id).expect("it was looked at");
        (one["state"].clone(), one["reason"].as_str().unwrap_or_default().to_owned())
    };
    daemon.run();
    for (id, (_, told)) in greedy() {
        let (state, foretold) = foretold(id);
        assert!(state == "failed" && foretold.contains(told), "{id}: {foretold}");
        let reason = daemon.until_extension(id, "failed");
        assert!(reason.contains(told), "{id}: {reason}");
    }
    let before = daemon.until_ready();
    assert_eq!(before["restarts"], 0, "{before}");
    assert_eq!(daemon.turn("s", "@modest hello")["status"], "success");

    // One that works goes on as it was.
    let (template, told) = &greedy()["doubles"];
    daemon.write("extensions/modest/p.j2", template);
    let after =
        daemon.until_status("the change is looked at", |_| daemon.log().contains("its change is not in use"));
    assert!(daemon.log().contains(told));
    assert_eq!(after["kernel_pid"], before["kernel_pid"]);
    assert_eq!(daemon.turn("s", "@modest hello")["status"], "success");
}

#[test]
fn a_template_is_filled_in_by_the_program_that_runs_while_its_file_is_being_replaced() {
    let mut daemon = Daemon::installed("");
    write(&daemon, "before", "{{ 'x' * 9 }}");
    daemon.run();
    daemon.until_extension("before", "active");
    let program = daemon.path().join("../../bin/drupe");
    fs::remove_file(&program).expect("it was there");
    fs::write(&program, "half of a program").expect("its place is free");
    write(&daemon, "meanwhile", "{{ 'y' * 9 }}");
    daemon.until_extension("meanwhile", "active");
    daemon.kill_kernel();
    for id in ["before", "meanwhile"] {
        daemon.until_extension(id, "active");
    }
    let status = daemon.until_ready();
    assert_eq!(status["safe_mode"], false, "{status}");
    assert_eq!(daemon.turn("s", "@meanwhile hello")["status"], "success");
}
