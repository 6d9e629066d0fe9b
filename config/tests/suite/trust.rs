//! What extensions may do without the operator being asked.

use std::collections::BTreeSet;

use drupe_config::{NativeReload, Preauthorized, ReloadConfig, load_config};
use drupe_extension_api::ExtensionId;

use crate::home::{Home, places};

fn id(text: &str) -> ExtensionId {
    ExtensionId::new(text).unwrap()
}

#[test]
fn nothing_is_preauthorized_unconfined_or_on_the_network_by_default() {
    let config = Home::new().config("").unwrap().value;
    assert_eq!(config.approvals.preauthorized, Preauthorized::Listed(BTreeSet::new()));
    assert!(!config.approvals.preauthorized.contains(&id("kv")));
    assert_eq!(config.reload, ReloadConfig { declarative: true, native: NativeReload::Announce });
    assert!(!config.sandbox.allow_unconfined && config.sandbox.hosts.network.is_empty());
    assert_eq!(config.sandbox.hosts.memory_mb, 1024);
    assert!(!config.sandbox.allow_unconfined && config.sandbox.hosts.network.is_empty());
    assert_eq!(config.sandbox.hosts.memory_mb, 1024);
}

#[test]
fn a_list_preauthorizes_its_members_and_the_word_everybody() {
    let home = Home::new();
    let listed = home.config("approvals: {preauthorized: [haiku]}").unwrap().value.approvals.preauthorized;
    assert!(listed.contains(&id("haiku")) && !listed.contains(&id("weather")));
    let all = home.config("approvals: {preauthorized: all}").unwrap().value.approvals.preauthorized;
    assert!(all.contains(&id("weather")));
    let mut sources = home.sources("approvals: {preauthorized: [haiku]}");
    sources.environment.insert("DRUPE_APPROVALS__PREAUTHORIZED".into(), "all".into());
    assert!(load_config(&sources).unwrap().value.approvals.preauthorized.contains(&id("weather")));
}

#[test]
fn the_word_in_a_list_is_refused_rather_than_taken_for_an_id() {
    let faults = Home::new().config("approvals: {preauthorized: [haiku, all]}").unwrap_err();
    assert_eq!(places(&faults), ["1:36 reserved_id approvals.preauthorized[1]"]);
}

#[test]
fn what_is_written_about_reloading_and_processes_arrives() {
    let text = include_str!("../cases/config_complete.yaml");
    let home = Home::new();
    home.write("flow.yaml", "[]");
    home.write_env("FROM_ENV_FILE=x\n");
    let config = home.config(text).unwrap().value;
    assert_eq!(config.reload, ReloadConfig { declarative: false, native: NativeReload::Restart });
    assert!(config.sandbox.allow_unconfined);
    assert_eq!(config.sandbox.hosts.network, [id("weather")].into());
    assert_eq!(config.sandbox.hosts.memory_mb, 256);
}
