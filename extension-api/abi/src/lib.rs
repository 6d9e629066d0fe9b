//! The waist between a kernel and a native extension: two tables, frozen.
//!
//! This crate stays at version 1.0.0 for ever. `abi_stable` compares the version of the crate that defines a
//! type, so that tables in a crate that moves would make every release refuse every plugin. Nothing but the two
//! tables, what they pass and the root module lives here; what crosses in `payload` is the business of
//! `drupe-extension-api`, and evolves there.
//!
//! Everything that crosses is owned: no borrow and no closure outlives a call. So the same table can stand for
//! an extension in another process.

#![expect(non_local_definitions, reason = "abi_stable's `sabi_trait` expands to such impls, one a trait")]
#![allow(missing_docs, reason = "`sabi_trait` and `StableAbi` expand to public items that cannot bear docs")]

pub use abi_stable;
pub use async_ffi;

use abi_stable::{
    StableAbi, declare_root_module_statics,
    library::RootModule,
    package_version_strings, sabi_trait,
    sabi_types::VersionStrings,
    std_types::{RBox, RString, RVec},
};
use async_ffi::FfiFuture;

/// What accompanies every call, in either direction.
#[repr(C)]
#[derive(StableAbi, Debug, Clone)]
pub struct CallHeader {
    /// Number of the call, unique for its caller; 0 where it does not matter.
    pub call_id: u64,
    /// When the caller stops waiting, in milliseconds since 1970 (UTC); 0 for never.
    pub deadline_ms: u64,
    /// From the kernel: the token under which the extension may call back on behalf of this call. From an
    /// extension: that token, handed back. Empty outside a call.
    pub parent_token: RString,
    /// Identifies the trace that the call belongs to; may be empty.
    pub trace: RString,
}

/// Answer to a call.
#[repr(C)]
#[derive(StableAbi, Debug, Clone)]
pub struct Reply {
    /// [`Reply::OK`] or [`Reply::FAULT`]; any other value is a fault.
    pub status: u32,
    /// JSON: the result, or the fault.
    pub body: RVec<u8>,
}

impl Reply {
    /// `body` is the operation's result.
    pub const OK: u32 = 0;
    /// `body` is a fault.
    pub const FAULT: u32 = 1;
}

/// The table of an extension. Its methods never block for long; waiting is the future's business.
#[sabi_trait]
pub trait Extension: Send + Sync + 'static {
    /// What it is and can do, as JSON; may be asked at any time, before `initialize` too.
    fn describe(&self) -> RVec<u8>;
    /// Performs one operation. Dropping the future cancels it.
    fn call(&self, header: CallHeader, operation: RString, payload: RVec<u8>) -> FfiFuture<Reply>;
    /// Ends the instance: drops its state and closes its handles. Called once, before the table is dropped.
    #[sabi(last_prefix_field)]
    fn close(&self);
}

/// The table that the kernel gives to an extension.
#[sabi_trait]
pub trait Host: Send + Sync + Clone + 'static {
    /// What the kernel is, as JSON.
    fn describe(&self) -> RVec<u8>;
    /// Performs one operation. Dropping the future cancels it.
    fn call(&self, header: CallHeader, operation: RString, payload: RVec<u8>) -> FfiFuture<Reply>;
    /// The extension needs the kernel no more.
    #[sabi(last_prefix_field)]
    fn close(&self);
}

/// An extension, owned by the kernel.
pub type ExtensionBox = Extension_TO<RBox<()>>;
/// The kernel, as an extension holds it.
pub type HostBox = Host_TO<RBox<()>>;

/// What a plugin's library exports.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = PluginRef)))]
pub struct Plugin {
    /// Makes an instance; must not do any of the extension's work.
    #[sabi(last_prefix_field)]
    pub open: extern "C" fn(HostBox) -> ExtensionBox,
}

impl RootModule for PluginRef {
    declare_root_module_statics! {PluginRef}
    const BASE_NAME: &'static str = "drupe_extension";
    const NAME: &'static str = "drupe-extension";
    const VERSION_STRINGS: VersionStrings = package_version_strings!();
}
