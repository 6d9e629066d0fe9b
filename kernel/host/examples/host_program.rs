//! The program that the tests of this crate start: it re-executes itself for the verbs, as drupe does; it plays a kernel
//! that is killed, and a process that does not keep to the frames.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::ExitCode,
};

use drupe_host::{Code, HostProcess, Place, child, open, probe};
use drupe_redact::Redactor;

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1);
    let verb = args.next().and_then(|verb| verb.into_string().ok()).unwrap_or_default();
    #[expect(clippy::disallowed_methods, reason = "a test says so how this process shall misbehave")]
    let misbehaviour = env::var("MISBEHAVE").ok();
    match (verb.as_str(), misbehaviour) {
        (drupe_confine::VERB, _) => drupe_confine::main(args),
        (probe::VERB, _) => ExitCode::from(probe::main(&PathBuf::from(args.next().unwrap_or_default()))),
        (child::VERB, Some(how)) => misbehave(&how, args),
        (child::VERB, None) => ExitCode::from(child::main(args)),
        ("kernel", _) => kernel(PathBuf::from(args.next().unwrap_or_default())),
        _ => ExitCode::from(2),
    }
}

/// A kernel that runs an extension, says under which number, and waits to be killed.
fn kernel(library: PathBuf) -> ExitCode {
    let exe = env::current_exe().unwrap_or_default();
    let profile = drupe_confine::Profile::read_only();
    let place = HostProcess { exe, profile, env: BTreeMap::new(), directory: "/".into() };
    let Ok(id) = "faulty".parse() else { return ExitCode::FAILURE };
    let code =
        Code { id, file: library, hash: String::new(), listening: Vec::new(), redactor: Redactor::default() };
    let Ok(runtime) = tokio::runtime::Runtime::new() else { return ExitCode::FAILURE };
    let host = drupe_extension_api::testing::FakeHost::default();
    runtime.block_on(async {
        let Ok((instance, _)) = open(code, Place::Process(place), host.table()).await else {
            return ExitCode::FAILURE;
        };
        let _ = writeln!(std::io::stdout(), "{}", instance.process().unwrap_or_default());
        std::future::pending().await
    })
}

/// Stands in for a process whose extension has taken the socket for itself.
fn misbehave(how: &str, mut args: impl Iterator<Item = OsString>) -> ExitCode {
    args.next();
    let number = args.next().and_then(|number| number.to_str()?.parse().ok()).unwrap_or(-1);
    // SAFETY: this process has just begun and owns nothing yet.
    let Ok(mut socket) = (unsafe { drupe_confine::inherited(number) }).map(UnixStream::from) else {
        return ExitCode::from(3);
    };
    let frame = |kind: u8, id: u64, body: &[u8]| {
        let mut bytes = u32::try_from(9 + body.len()).unwrap_or_default().to_le_bytes().to_vec();
        bytes.push(kind);
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    };
    // A call with no token, trace or payload.
    let call_named = |name: u8| [[0; 8].as_slice(), &[0, 0, 0, 0, 1, 0, name]].concat();
    let call = call_named(b'x');
    let sent = match how {
        "length" => vec![0xff; 64],
        "body" => frame(8, 1, &[1, 2, 3]),
        "kernels_own" => frame(4, 1, &[]),
        "twice" => [frame(8, 1, &call), frame(8, 1, &call)].concat(),
        // Half of the longest frame that may be, and no more.
        "half" => [0x0100_0000_u32.to_le_bytes().as_slice(), &[6; 1024]].concat(),
        // Four at which the kernel panics, and one that it answers with nothing to say.
        "panics" => {
            let calls = [(0, b'y'), (1, b'y'), (0, b'w'), (2, b'w'), (3, b'z')];
            calls.map(|(id, name)| frame(8, id, &call_named(name))).concat()
        }
        "unknown" => frame(99, 0, &[]),
        "answers" => frame(6, 4711, &[0; 4]),
        "calls" | "deaf" | "closed" => Vec::new(),
        _ => return ExitCode::from(4),
    };
    let _ = socket.write_all(&sent);
    match how {
        "unknown" | "answers" => while socket.write_all(&sent).is_ok() {},
        "calls" | "deaf" => {
            let hearing = (how == "calls").then(|| socket.try_clone());
            if let Some(Ok(mut hearing)) = hearing {
                std::thread::spawn(move || std::io::copy(&mut hearing, &mut std::io::sink()));
            }
            (1..).take_while(|id| socket.write_all(&frame(8, *id, &call)).is_ok()).for_each(drop);
        }
        "closed" => drop(socket),
        _ => drop(socket.read_to_end(&mut Vec::new())),
    }
    loop {
        std::thread::park();
    }
}
