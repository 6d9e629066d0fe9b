//! Clients that misbehave, under virtual time.

#![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

use std::os::fd::OwnedFd;

use drupe_extension_api::control::DaemonState;

use super::*;

struct World {
    _folder: tempfile::TempDir,
    home: Home,
    control: Control,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::create(folder.path()).unwrap();
        let control = Control::open(&home).unwrap();
        Self { _folder: folder, home, control, now: Instant::now() }
    }

    fn client(&self) -> UnixStream {
        let client = self.home.connect().unwrap();
        client.set_nonblocking(true).unwrap();
        client
    }

    fn hello(&self) -> String {
        format!(
            "{{\"id\":1,\"method\":\"hello\",\"params\":{{\"token\":\"{}\"}}}}\n",
            self.control.token().reveal()
        )
    }

    fn turn(&mut self) -> bool {
        self.control.turn(self.now, status)
    }
}

fn status() -> Status {
    Status {
        version: "0".into(),
        state: DaemonState::Restarting,
        supervisor_pid: 1,
        kernel_pid: None,
        generation: 1,
        uptime_ms: 0,
        restarts: 0,
        safe_mode: false,
        model: None,
        sessions: 0,
        running_turns: 0,
        summing_up: 0,
        queued_turns: 0,
        queued_deliveries: 0,
        queued_messages: 0,
        dead_messages: 0,
        budgets: Vec::new(),
        extensions: Vec::new(),
        exits: Vec::new(),
        notices: vec!["n".repeat(1_000)],
        config_refused: None,
        backup: None,
    }
}

/// What a client has got so far, and whether its connection is closed.
fn got(client: &mut UnixStream) -> (String, bool) {
    let mut text = Vec::new();
    let closed = match client.read_to_end(&mut text) {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    };
    (String::from_utf8(text).unwrap(), closed)
}

#[test]
fn a_client_that_asks_everything_at_once_gets_its_answers_in_order() {
    let mut world = World::new();
    let mut client = world.client();
    let more = "{\"id\":2,\"method\":\"status\"}\n{\"id\":3,\"method\":\"restart\"}\n{\"id\":4,\"method\":\"stop\"}\n";
    client.write_all((world.hello() + more).as_bytes()).unwrap();
    assert!(world.turn(), "it asked for a stop");
    let (text, closed) = got(&mut client);
    let ids: Vec<_> = text.lines().map(|line| serde_json::from_str::<Reply>(line).unwrap().id).collect();
    assert_eq!(ids, [1, 2, 3, 4]);
    assert!(!closed);
}

#[test]
fn a_silent_client_is_dropped_and_one_that_asks_stays() {
    let mut world = World::new();
    let (mut silent, mut busy) = (world.client(), world.client());
    busy.write_all(world.hello().as_bytes()).unwrap();
    silent.write_all(b"{\"id\":1,\"met").unwrap();
    world.turn();
    world.now += PATIENCE - Duration::from_millis(1);
    busy.write_all(b"{\"id\":2,\"method\":\"status\"}\n").unwrap();
    world.turn();
    assert!(!got(&mut silent).1);
    assert_eq!(world.control.deadline(), Some(world.now + Duration::from_millis(1)));
    world.now += Duration::from_millis(1);
    world.turn();
    assert!(got(&mut silent).1);
    assert!(!got(&mut busy).1);
}

#[test]
fn a_client_that_does_not_read_is_dropped() {
    let mut world = World::new();
    let mut client = world.client();
    client.write_all(world.hello().as_bytes()).unwrap();
    while client.write(b"{\"id\":2,\"method\":\"status\"}\n").is_ok() {
        world.turn();
    }
    assert!(world.control.connections[0].output.len() < 8 * 1024, "one answer at a time");
    world.now += PATIENCE;
    world.turn();
    assert!(world.control.connections.is_empty());
}

#[test]
fn an_endless_line_is_refused() {
    let mut world = World::new();
    let mut client = world.client();
    for _ in 0..40 {
        let _ = client.write(&[b'x'; 4096]);
        world.turn();
    }
    let (text, closed) = got(&mut client);
    assert!(text.contains("unavailable") && closed, "{text}");
}

#[test]
fn more_clients_than_places_wait_for_one() {
    let mut world = World::new();
    let crowd: Vec<_> = (0..MOST_CONNECTIONS).map(|_| world.client()).collect();
    world.turn();
    let mut late = world.client();
    late.write_all(world.hello().as_bytes()).unwrap();
    world.turn();
    assert_eq!(world.control.connections.len(), MOST_CONNECTIONS);
    assert!(got(&mut late).0.is_empty());
    drop(crowd);
    world.turn();
    world.turn();
    assert!(got(&mut late).0.contains("supervisor"));
}

#[test]
fn clients_are_handed_over_with_their_answers() {
    let mut world = World::new();
    let (mut asked, mut idle) = (world.client(), world.client());
    asked.write_all(world.hello().as_bytes()).unwrap();
    world.turn();
    asked.write_all(b"{\"id\":2,\"method\":\"status\"}\n").unwrap();
    world.control.serve(false);
    world.turn();
    let (text, closed) = got(&mut asked);
    assert!(text.contains("restarting") && closed);
    assert!(got(&mut idle).1);
    let mut next = world.client();
    world.turn();
    assert!(!got(&mut next).1, "it waits for the kernel");
    assert_eq!(world.control.fds().count(), 0);
}

#[test]
fn the_bearer_of_a_named_token_is_asked_to_come_back_when_a_kernel_can_tell_who_it_is() {
    let mut world = World::new();
    let tokens =
        [(drupe_link::named_token().unwrap(), FaultCode::Unavailable), ("drupe_x".into(), FaultCode::Denied)];
    for (token, code) in tokens {
        let mut client = world.client();
        let hello = format!("{{\"id\":1,\"method\":\"hello\",\"params\":{{\"token\":\"{token}\"}}}}\n");
        client.write_all(hello.as_bytes()).unwrap();
        world.turn();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        let reply: Reply = serde_json::from_str(&answer).unwrap();
        let ReplyBody::Error(fault) = reply.body else { panic!("{answer}") };
        assert_eq!(fault.code, code, "{answer}");
    }
}

#[test]
fn a_listener_that_cannot_take_anybody_in_rests_and_tries_again() {
    let mut world = World::new();
    // A socket that does not listen answers every attempt with an error, as a process without free descriptors gets one.
    let listening =
        std::mem::replace(&mut world.control.listener, OwnedFd::from(UnixStream::pair().unwrap().0).into());
    let polled = |control: &Control| control.fds().count();
    assert_eq!(polled(&world.control), 1);
    world.turn();
    assert_eq!(polled(&world.control), 0, "it would be ready again at once");
    assert_eq!(world.control.deadline(), Some(world.now + REST));
    world.control.listener = listening;
    let _client = world.client();
    world.turn();
    assert_eq!(polled(&world.control), 0, "it rests");
    world.now += REST;
    world.turn();
    assert_eq!(polled(&world.control), 2, "the listener and the client");
}
