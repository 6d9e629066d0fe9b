//! The events of a session over a connection that stays.

use serde_json::json;

use super::{daemon, door, token};

#[test]
fn a_reader_sees_each_kept_event_once_and_goes_on_where_it_was_after_a_restart() {
    let (_server, daemon) = daemon("");
    let (mut door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let bearer = format!("Bearer {ci}");
    let turn = |door: &super::Door| {
        let said = json!({"task": "hello", "session": "token.ci:1"});
        assert_eq!(door.post(&ci, "/v1/agents/haiku/run", &said).status, 200);
    };
    let mut seen = Vec::new();
    for kernel in 0..2 {
        let (host, last) = (door.host(), seen.last().copied().unwrap_or(0_u64).to_string());
        let headers =
            [("host", host.as_str()), ("authorization", bearer.as_str()), ("last-event-id", last.as_str())];
        let mut open = door.open("GET", "/v1/sessions/token.ci:1/events", &headers, "");
        assert_eq!(open.status, 200);
        turn(&door);
        let (mut rest, mut completed) = (String::new(), false);
        while !completed {
            let (id, event) = open.frame(&mut rest).expect("the stream goes on");
            completed = event["kind"] == "interaction.turn.completed";
            assert_eq!(id.unwrap_or(0), event["seq"].as_u64().expect("a number"), "{event}");
            seen.extend(id);
        }
        if kernel == 0 {
            daemon.says(&["restart"]);
            assert!(open.frame(&mut rest).is_none(), "a stream ends in order");
            door = super::door(&daemon);
        }
    }
    let whole: Vec<u64> = (1..=seen.len() as u64).collect();
    assert_eq!(seen, whole, "nothing is missed and nothing comes twice");
}
