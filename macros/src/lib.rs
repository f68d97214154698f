//! The `#[tool]` attribute of Turnmill. Use it through the crate `turnmill`, which re-exports it.
//!
//! | file | holds |
//! | --- | --- |
//! | `options` | what stands between the brackets of the attribute |
//! | `function` | the function: which parameters a tool may have, and its documentation |
//! | `expand` | the code that is written |

#![warn(missing_docs)]

mod expand;
mod function;
mod options;

use proc_macro::TokenStream;
use quote::ToTokens;
use std::fmt::Display;

/// Makes a tool of a function.
///
/// The function stays as it is. Beside it stands a new unit struct with its visibility and its name in
/// `UpperCamelCase`, which implements `turnmill::tool::Tool`.
///
/// ```text
/// /// Find an order by its id.
/// #[turnmill::tool(retry = 3, timeout = "10s", read_only)]
/// async fn lookup_order(
///     ctx: &ToolContext,
///     /// The number on the invoice, like `A-7`.
///     order_id: String,
/// ) -> Result<Order, ToolError> { .. }
///
/// turnmill::App::new().tool(LookupOrder).main()
/// ```
///
/// | part of the function | becomes |
/// | --- | --- |
/// | its name | the tool's name |
/// | its doc comment | the description, for the model |
/// | a first parameter `&ToolContext` | nothing: the worker gives it. It may be left out |
/// | every other parameter | a property of the arguments' schema; its type needs `serde::Deserialize` and `schemars::JsonSchema`. An `Option` may be left out by the model |
/// | the doc comment of a parameter | the property's description |
/// | `#[serde(..)]`, `#[schemars(..)]` on a parameter | the same on the property |
/// | the return type | `Result<T, E>`: `T` needs `serde::Serialize`, `E` is `ToolError` or any error |
/// | no `async` | a blocking thread for each call |
///
/// Options:
///
/// | option | means | default |
/// | --- | --- | --- |
/// | `name = "lookup_order"` | the name, `[a-zA-Z0-9_-]+` | the function's |
/// | `description = "Find an order."` | the description | the doc comment |
/// | `retry = 3` | how often a call is tried again after a retryable error, without a wait | 0 |
/// | `retry(max = 3, initial = "200ms", max_delay = "5s")` | the same, with waits that double from `initial` (by default 200 ms) to `max_delay` (10 s), spread at random | |
/// | `timeout = "10s"` | the limit for one attempt, more than zero | 30 s |
/// | `read_only` | it does nothing to the world; a branch may run it live | unmarked |
/// | `writes` | it has side effects; excludes `read_only` | unmarked |
/// | `requires_approval` | a person has to approve every call | no |
/// | `on_unknown_outcome = ".."` | what becomes of a call whose worker died under it: `"rerun"` under the same key, or `"report"` to the model that nobody knows | `"rerun"` |
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::tool(options.into(), item.into()).into()
}

/// Every mistake that was found, so that one compilation shows them all.
#[derive(Default)]
struct Errors(Option<syn::Error>);

impl Errors {
    fn add(&mut self, place: impl ToTokens, message: impl Display) {
        self.push(syn::Error::new_spanned(place, message));
    }

    fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    fn into_compile_errors(self) -> Option<proc_macro2::TokenStream> {
        self.0.map(syn::Error::into_compile_error)
    }
}
