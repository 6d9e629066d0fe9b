//! An agent in a single file: the same as for a manifest, and it never names another file.

#![no_main]

use drupe_config::{ContextSource, Instructions, load_agent_file};
use libfuzzer_sys::fuzz_target;

mod home;

fuzz_target!(|bytes: &[u8]| {
    home::write("extensions/demo.md", bytes);
    match load_agent_file(&home::path().join("extensions/demo.md"), &home::path()) {
        Ok(loaded) => {
            loaded.warnings.render(false);
            assert_eq!(loaded.value.id.as_str(), "demo");
            assert!(loaded.value.entrypoint.is_none());
            let agent = loaded.value.agent.expect("a file is an agent");
            assert!(matches!(agent.instructions, Some(Instructions::Inline(_))));
            assert!(agent.context.iter().all(|context| matches!(context, ContextSource::Inline(_))));
        }
        Err(faults) => home::check(&faults),
    }
});
