//! One declaration for each key of a file.
//!
//! A declaration gives the key's name, its type, its default, its form and its meaning. The struct that the program
//! works with, what a file is checked against, the JSON Schema of editors and `drupe config show` all come from it, so
//! they cannot differ.

/// Declares a struct, and the table of keys that it is read from.
///
/// ```text
/// keys! {
///     /// What the map is.
///     pub struct ConcurrencyConfig in CONCURRENCY("`limits.concurrency`") {
///         /// Turns of all sessions; further ones wait.
///         turns: usize = 64 => PLACES;
///     }
/// }
/// ```
///
/// - `field as "key"` is for a key whose name is not that of the field; `(…)` behind it is for attributes of serde.
/// - `= DEFAULT` is what holds without the key, as it would stand in the file. A key without it is an `Option`.
/// - `, required` at the end makes the file say it. A default then only stands in for a value that was refused, so that
///   the rest of the file can be looked at.
/// - `later { … }` names keys that are refused until something enforces them.
/// - `rest (form, shape)` is for keys that nobody lists; a flattened field takes them.
/// - `beside { … }` has fields that no file sets.
macro_rules! keys {
    (
        $(#[$outer:meta])*
        pub struct $name:ident in $table:ident($said:literal) {
            $(
                $(#[doc = $doc:literal])+
                $field:ident $(as $key:literal)? $(($($serde:tt)+))? : $type:ty $(= $default:expr)? => $shape:expr $(, $flag:ident)?;
            )*
        }
        $(later { $($later:literal)+ })?
        $(rest ($form:expr, $other:expr))?
        $(beside { $($beside:tt)+ })?
    ) => {
        $crate::declare::keys! { @struct [$(#[$outer])*] $name
            { $( $(#[doc = $doc])+ $(#[serde(rename = $key)])? $(#[serde($($serde)+)])? pub $field: $type, )* }
            { $($($beside)+)? }
        }

        pub(crate) static $table: $crate::shape::Table = $crate::shape::Table {
            name: $said,
            keys: &[
                $(
                    $crate::shape::Key::new($crate::declare::keys!(@key $field $($key)?), concat!($($doc),+), $shape)
                        $(.default(|| serde_json::json!($default)))?
                        $(.$flag())?,
                )*
                $($($crate::shape::Key::later($later),)+)?
            ],
            rest: $crate::declare::keys!(@rest $($form, $other)?),
        };
    };
    (@struct [$($outer:tt)*] $name:ident { $($fields:tt)* } { $($beside:tt)* }) => {
        #[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
        $($outer)*
        pub struct $name { $($fields)* $($beside)* }
    };
    (@key $field:ident $key:literal) => { $key };
    (@key $field:ident) => { stringify!($field) };
    (@rest $form:expr, $other:expr) => { Some(($form, $other)) };
    (@rest) => { None };
}

pub(crate) use keys;
