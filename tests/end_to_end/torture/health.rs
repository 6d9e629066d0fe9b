//! Extensions that say that they are not well, or say nothing any more: taken out, and tried again.

use serde_json::json;

use super::{Effort, Row, print_head, scene::Scene};
use crate::harness::until;

/// How often they are asked.
const OFTEN: &str = "health_interval_ms: 200\n";

#[test]
fn an_extension_that_is_not_well_is_taken_out_and_tried_again_while_others_work() {
    print_head();
    let healths: &[&str] = if Effort::of_this_run().whole { &["sick", "hang"] } else { &["sick"] };
    for isolation in ["inproc", "process"] {
        for health in healths {
            ails(isolation, health);
        }
    }
}

fn ails(isolation: &'static str, health: &str) {
    let mut scene = Scene::prepare(isolation, "");
    let config = scene.daemon.path().join("drupe.yaml");
    let text = std::fs::read_to_string(&config).expect("a configuration");
    std::fs::write(config, text + OFTEN).expect("a configuration");
    scene.daemon.run();
    let before = scene.daemon.until_ready();
    let waits = scene.wait_meanwhile("w");
    // What it is told is forgotten with the instance: the next one is well.
    let told = scene.daemon.turn("s", &format!("torture_health {}", json!({"health": health})));
    assert_eq!(told["status"], "success", "{told}");
    let found = until("it is taken out and works again", || {
        let history = scene.history();
        let out = history.iter().position(|change| change["state"] == "degraded")?;
        let works = history[out..].iter().any(|change| change["state"] == "active");
        works.then(|| history[out]["reason"].as_str().unwrap_or_default().to_owned())
    });
    let reason = found.unwrap_or_else(|| panic!("{:#?}\n{}", scene.history(), scene.daemon.log()));
    assert!(reason.contains("twice in a row"), "{health} {isolation}: {reason}");
    assert_eq!(scene.daemon.until_ready()["kernel_pid"], before["kernel_pid"]);
    scene.end_wait(&waits);
    assert_eq!(scene.daemon.turn("s", "torture_variant {}")["content"], "0");
    let lost = "nothing: the other's call went on";
    Row { what: health, place: "health", isolation, how: &reason, named: "torture", ready: None, lost }
        .print();
}
