//! `manifest.yaml`: never a crash, every refusal with its place, and whatever is accepted can be merged and shown.

#![no_main]

use std::sync::LazyLock;

use drupe_config::{Config, Sources, load_config, load_manifest};
use libfuzzer_sys::fuzz_target;

mod home;

static CONFIG: LazyLock<Config> = LazyLock::new(|| {
    load_config(&Sources { home: home::path(), ..Sources::default() }).expect("no file").value
});

fuzz_target!(|bytes: &[u8]| {
    home::write("extensions/demo/manifest.yaml", bytes);
    match load_manifest(&home::path().join("extensions/demo"), &home::path()) {
        Ok(loaded) => {
            loaded.warnings.render(false);
            if let Err(faults) = loaded.value.effective_config(&CONFIG) {
                home::check(&faults);
            }
        }
        Err(faults) => home::check(&faults),
    }
});
