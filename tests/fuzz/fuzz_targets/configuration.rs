//! `drupe.yaml`, and the same bytes as `HOME/.env` and as a variable: never a crash, every refusal with its place.

#![no_main]

use drupe_config::{Sources, load_config};
use libfuzzer_sys::fuzz_target;

mod home;

fuzz_target!(|bytes: &[u8]| {
    home::write("drupe.yaml", bytes);
    home::write(".env", bytes);
    let mut sources =
        Sources { file: Some(home::path().join("drupe.yaml")), home: home::path(), ..Sources::default() };
    for attempt in 0..2 {
        match load_config(&sources) {
            Ok(loaded) => {
                loaded.warnings.render(false);
                loaded.value.effective();
            }
            Err(faults) => home::check(&faults),
        }
        if attempt == 0 {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            sources.file = None;
            sources.environment.insert("DRUPE_MODELS".into(), text.into());
            sources.overrides.push(("extensions.kv".into(), text.into()));
        }
    }
});
