//! A library with a root module of the right name and version whose layout is another.
//!
//! It stands for a plugin of a fork: every version check passes, and calling it would be undefined.

use abi_stable::{
    StableAbi, declare_root_module_statics, export_root_module,
    library::RootModule,
    prefix_type::PrefixTypeTrait as _,
    sabi_extern_fn,
    sabi_types::VersionStrings,
    std_types::{RStr, RString},
};

/// The same name as the true one, but `open` takes and gives text.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = PluginRef)))]
pub struct Plugin {
    #[sabi(last_prefix_field)]
    pub open: extern "C" fn(RString) -> RString,
}

impl RootModule for PluginRef {
    declare_root_module_statics! {PluginRef}
    const BASE_NAME: &'static str = "drupe_extension";
    const NAME: &'static str = "drupe-extension";
    const VERSION_STRINGS: VersionStrings = VersionStrings { version: RStr::from_str("1.0.0") };
}

#[sabi_extern_fn]
fn open(text: RString) -> RString {
    text
}

/// The root module.
#[export_root_module]
pub fn root_module() -> PluginRef {
    Plugin { open }.leak_into_prefix()
}
