//! A picture of the workspace reaches the model, also after the process that read it is gone.

use std::{
    fs,
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say},
    until,
    wire::Wire,
};

/// A PNG of one red pixel, whole, and the same as an address.
const PIXEL: &[u8] = &[
    137, 80, 78, 71, 13, 10, 26, 10, 0, 0, 0, 13, 73, 72, 68, 82, 0, 0, 0, 1, 0, 0, 0, 1, 8, 2, 0, 0, 0, 144,
    119, 83, 222, 0, 0, 0, 12, 73, 68, 65, 84, 120, 156, 99, 248, 207, 192, 0, 0, 3, 1, 1, 0, 201, 254, 146,
    239, 0, 0, 0, 0, 73, 69, 78, 68, 174, 66, 96, 130,
];
const URL: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

/// The address of the picture that a request ends with, if it does.
fn picture(request: &Value) -> Option<&str> {
    let last = request["messages"].as_array()?.last()?;
    last["content"][1]["image_url"]["url"].as_str()
}

/// A model that looks at a file. The first time that it is shown it, it never ends.
fn looking() -> ModelServer {
    let shown = AtomicUsize::new(0);
    ModelServer::start(move |request| match picture(request) {
        None => Say::Call(vec![("files_read".into(), json!({"path": "plan.png"}))]),
        Some(_) if shown.fetch_add(1, Ordering::SeqCst) == 0 => Say::Fail(Wire::Stall("I see")),
        Some(_) => Say::Text("a red pixel".into()),
    })
}

#[test]
fn a_model_is_shown_a_picture_and_again_by_the_process_that_goes_on() {
    let server = looking();
    let sees = "  profiles: {local/test: {images: true}}\n";
    let daemon = Daemon::start(&(server.config() + sees));
    fs::write(daemon.path().join("workspace/plan.png"), PIXEL).expect("a file");
    let turn = daemon.submit("main", "what is in plan.png?");
    until("the model is shown it", || (server.requests().len() == 2).then_some(())).expect("in time");
    daemon.kill_kernel();
    let result = daemon.wait(&turn);
    assert_eq!(result["content"], "a red pixel", "{result:#}");
    let requests = server.requests();
    let seen: Vec<_> = requests.iter().map(picture).collect();
    assert_eq!(seen, [None, Some(URL), Some(URL)]);
    // What is told of it is which picture it was, and none of its bytes.
    let told = result["transcript"].as_array().into_iter().flatten();
    let images: Vec<_> = told.filter_map(|entry| entry["images"].get(0)).collect();
    assert_eq!(
        (images.len(), &images[0]["media_type"], &images[0]["width"]),
        (1, &json!("image/png"), &json!(1))
    );
    let exported = daemon.says(&["session", "export", "main"]);
    assert!(
        exported.contains("image/png, 1x1 pixels, 69 bytes") && !exported.contains("iVBOR"),
        "{exported}"
    );
}
