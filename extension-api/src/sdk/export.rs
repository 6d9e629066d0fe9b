//! How a library says that it is an extension. Used through [`export!`](macro@crate::export) alone.

use drupe_extension_abi::{Extension_TO, ExtensionBox, abi_stable::sabi_trait::TD_Opaque};
pub use drupe_extension_abi::{
    HostBox, Plugin, PluginRef,
    abi_stable::{
        library::{__call_root_module_loader as load, CheckTypeLayout, LibHeader, RootModuleResult},
        prefix_type::PrefixTypeTrait,
    },
};

use super::{Exported, adapter::Adapter, guard, shared::Shared};

/// Makes an instance. None of the author's code runs here.
pub extern "C" fn open<E: Exported>(host: HostBox) -> ExtensionBox {
    guard::install_hook();
    Extension_TO::from_value(Adapter::<E>::new(Shared::new(host)), TD_Opaque)
}

/// Makes the root module of a library that holds an extension of type `E`.
pub fn module<E: Exported>() -> PluginRef {
    Plugin { open: open::<E> }.leak_into_prefix()
}

/// Makes this library an extension: `export!(Words: Tool, Channel);`.
///
/// It names the type that implements [`Extension`](crate::sdk::Extension) and what it can do:
///
/// | name | trait |
/// |---|---|
/// | `Tool` | [`ToolProvider`](crate::sdk::ToolProvider) |
/// | `Channel` | [`Channel`](crate::sdk::Channel) |
/// | `Service` | [`Service`](crate::sdk::Service) |
/// | `Scheduler` | [`Scheduler`](crate::sdk::Scheduler) |
/// | `Agent` | [`AgentProvider`](crate::sdk::AgentProvider) |
/// | `Context` | [`ContextProvider`](crate::sdk::ContextProvider) |
/// | `Hook` | [`Hook`](crate::sdk::Hook) |
///
/// Naming one whose trait is missing does not compile:
///
/// ```compile_fail,E0277,standalone_crate
/// use drupe_extension_api::prelude::*;
/// struct Empty;
/// impl Extension for Empty {
///     async fn initialize(_: Host) -> Result<Self, Fault> { Ok(Empty) }
/// }
/// export!(Empty: Tool);
/// # fn main() {}
/// ```
///
/// Nor does a name that is not in the table:
///
/// ```compile_fail,standalone_crate
/// # use drupe_extension_api::prelude::*;
/// # struct Empty;
/// # impl Extension for Empty {
/// #     async fn initialize(_: Host) -> Result<Self, Fault> { Ok(Empty) }
/// # }
/// export!(Empty: Telepathy);
/// # fn main() {}
/// ```
///
/// A library exports one extension. The crate's type is `cdylib`, and `rlib` beside it for its tests; two such
/// crates cannot be linked into one program, except where each is only loaded.
#[macro_export]
macro_rules! export {
    ($extension:ty : $($ability:ident),+ $(,)?) => {
        $crate::abilities!($extension: $($ability),+);

        const _: () = {
            extern "C" fn load() -> $crate::sdk::export::RootModuleResult {
                $crate::sdk::export::load($crate::sdk::export::module::<$extension>)
            }

            // SAFETY: the name is that of the loader's symbol, and nothing else of a library bears it.
            #[unsafe(export_name = "_1as_0lib_1header_0root_bmodule_bloader")]
            static HEADER: $crate::sdk::export::LibHeader =
                // SAFETY: `load` gives the module of the type named here.
                unsafe {
                    $crate::sdk::export::LibHeader::from_constructor::<$crate::sdk::export::PluginRef>(
                        load,
                        $crate::sdk::export::CheckTypeLayout::Yes,
                    )
                };
        };
    };
}

/// Lists what an extension can do without making the library one: for several extensions in one program, as
/// in tests. [`export!`](macro@crate::export) includes it.
#[macro_export]
macro_rules! abilities {
    ($extension:ty : $($ability:ident),+ $(,)?) => {
        impl $crate::sdk::Exported for $extension {
            fn abilities() -> $crate::sdk::Abilities<Self> {
                let abilities = $crate::sdk::Abilities::none();
                $(let abilities = $crate::abilities!(@ $ability abilities);)+
                abilities
            }
        }
    };
    (@ Tool $abilities:ident) => { $abilities.tool() };
    (@ Channel $abilities:ident) => { $abilities.channel() };
    (@ Service $abilities:ident) => { $abilities.service() };
    (@ Scheduler $abilities:ident) => { $abilities.scheduler() };
    (@ Agent $abilities:ident) => { $abilities.agent() };
    (@ Context $abilities:ident) => { $abilities.context() };
    (@ Hook $abilities:ident) => { $abilities.hook() };
    (@ $unknown:ident $abilities:ident) => {
        compile_error!(concat!(
            "`", stringify!($unknown), "` is nothing that an extension can be: it can be \
             Tool, Channel, Service, Scheduler, Agent, Context and Hook"
        ))
    };
}

#[cfg(test)]
mod tests {
    use drupe_extension_abi::abi_stable::library::ROOT_MODULE_LOADER_NAME;

    #[test]
    fn the_exported_symbol_has_the_name_that_the_loader_looks_for() {
        assert_eq!(ROOT_MODULE_LOADER_NAME, "_1as_0lib_1header_0root_bmodule_bloader");
    }
}
