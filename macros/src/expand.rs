//! The code that `#[tool]` writes.
//!
//! Every path in it is absolute and every local has a name that no code of the author can see, so a tool
//! may be called `context`, take a type `Arguments` and stand in a module with its own `Result`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Attribute, LitStr, ReturnType};

use crate::Errors;
use crate::function::{Argument, Function, Parameters};
use crate::options::{self, Approval, Cost, Effect, Options, Retry, Schema};

/// The function, and beside it the tool or what is wrong with it.
pub(crate) fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut function: Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            let message = format!("#[tool] goes on a function with a body: {error}");
            let error = syn::Error::new(error.span(), message).into_compile_error();
            return quote!(#item #error);
        }
    };
    let mut errors = Errors::default();
    let options = Options::parse(options, &mut errors);
    let parameters = function.take_parameters(&mut errors);
    let names = Names::of(&function, &options, &mut errors);
    let description = description(&function, &options, &mut errors);
    let added = match (errors.into_compile_errors(), names) {
        (None, Some(names)) => expand(&function, &options, &parameters, &names, &description),
        (errors, _) => errors.unwrap_or_default(),
    };
    quote!(#function #added)
}

struct Names {
    /// What the model calls the tool.
    tool: LitStr,
    /// The struct that implements `Tool`.
    ty: Ident,
}

impl Names {
    fn of(function: &Function, options: &Options, errors: &mut Errors) -> Option<Self> {
        let ident = &function.signature.ident;
        let name = ident.unraw().to_string();
        let ty = upper_camel_case(&name);
        // Also false where nothing is left (`__1`), and for `Self`.
        if syn::parse_str::<Ident>(&ty).is_err() || *ident == ty {
            let message = format!(
                "the tool of `{name}` would be a struct `{ty}`, which cannot stand beside it; \
                 write the function's name in snake_case, with a letter first"
            );
            errors.add(ident, message);
            return None;
        }
        if options.name.is_none() && !options::is_name(&name) {
            let message = "a tool's name is one or more of A-Z a-z 0-9 _ -; write `name = ..`";
            errors.add(ident, message);
        }
        Some(Self {
            tool: (options.name.clone()).unwrap_or_else(|| LitStr::new(&name, ident.span())),
            ty: Ident::new(&ty, ident.span()),
        })
    }
}

fn upper_camel_case(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        first.chain(letters).collect::<String>()
    };
    name.split('_').map(word).collect()
}

fn description(function: &Function, options: &Options, errors: &mut Errors) -> String {
    if let Some(description) = &options.description {
        return description.value();
    }
    match function.documentation() {
        Ok(text) => {
            if text.is_empty() && !options.unreadable {
                let message =
                    "a tool needs a description for the model: write a doc comment or `description = ..`";
                errors.add(&function.signature.ident, message);
            }
            text
        }
        Err(error) => {
            errors.push(error);
            String::new()
        }
    }
}

fn expand(
    function: &Function,
    options: &Options,
    parameters: &Parameters,
    names: &Names,
    description: &str,
) -> TokenStream {
    let visibility = &function.visibility;
    let Names { tool, ty } = names;
    // A `cfg` below the attribute has not been looked at yet.
    let conditions: Vec<&Attribute> =
        (function.attributes.iter()).filter(|a| a.path().is_ident("cfg")).collect();
    let documentation = format!("The tool [`{0}`](fn@{0}).", function.signature.ident.unraw());
    let arguments_type = format_ident!("__TurnmillArguments");
    let arguments_struct = arguments_struct(&arguments_type, &parameters.arguments, options.schema.is_none());
    let schema = match &options.schema {
        None => quote!(::turnmill::tool::macro_support::parameters::<#arguments_type>()),
        Some(Schema::Text(text)) => quote!(::turnmill::tool::macro_support::json(#text)),
        Some(Schema::Value(value)) => quote!(#value),
    };
    let spec = spec(function, options);
    let context = Ident::new("context", Span::mixed_site());
    let arguments = Ident::new("arguments", Span::mixed_site());
    let context_pattern = if parameters.context { quote!(#context) } else { quote!(_) };
    let call = call(function, parameters, &arguments_type, &context, &arguments);
    quote! {
        #(#conditions)*
        #[doc = #documentation]
        #[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::marker::Copy)]
        #visibility struct #ty;

        #(#conditions)*
        const _: () = {
            #arguments_struct

            // A deprecated tool is still a tool, and an argument may be called `_reason`.
            #[allow(deprecated, clippy::used_underscore_binding)]
            #[::turnmill::tool::macro_support::async_trait]
            impl ::turnmill::tool::Tool for #ty {
                fn spec(&self) -> ::turnmill::tool::Spec {
                    ::turnmill::tool::Spec {
                        #spec
                        ..::turnmill::tool::Spec::new(
                            #tool,
                            #description,
                            #schema,
                        )
                    }
                }

                fn name(&self) -> ::std::string::String {
                    ::core::convert::From::from(#tool)
                }

                async fn call(
                    &self,
                    #context_pattern: &::turnmill::tool::ToolContext,
                    #arguments: ::turnmill::tool::macro_support::serde_json::Value,
                ) -> ::core::result::Result<::turnmill::tool::Output, ::turnmill::tool::ToolError> {
                    #call
                }
            }
        };
    }
}

/// The struct that a call's arguments are read into and, with `derived`, that their schema is made of.
fn arguments_struct(name: &Ident, arguments: &[Argument], derived: bool) -> TokenStream {
    let schema = |attribute: &&Attribute| attribute.path().is_ident("schemars");
    let fields = arguments.iter().map(|argument| {
        let Argument { name, ty, attributes, conditions } = argument;
        let attributes = attributes.iter().filter(|attribute| derived || !schema(attribute));
        let default = (argument.is_optional() && !argument.has_default()).then(|| quote!(#[serde(default)]));
        quote!(#(#conditions)* #(#attributes)* #default #name: #ty)
    });
    let derived = derived.then(|| {
        quote! {
            #[derive(::turnmill::tool::macro_support::schemars::JsonSchema)]
            #[schemars(crate = "::turnmill::tool::macro_support::schemars")]
        }
    });
    quote! {
        #[derive(::turnmill::tool::macro_support::serde::Deserialize)]
        #[serde(crate = "::turnmill::tool::macro_support::serde", deny_unknown_fields)]
        #derived
        struct #name { #(#fields,)* }
    }
}

/// The fields of the `Spec` that differ from its defaults.
fn spec(function: &Function, options: &Options) -> TokenStream {
    let retry = options.retry.map(|Retry { max, wait }| match wait {
        None => quote!(retry: ::core::convert::From::from(#max),),
        Some((initial, max_delay)) => {
            let (initial, max_delay) = (duration(initial), duration(max_delay));
            quote!(retry: ::turnmill::tool::Retry {
                max: #max,
                wait: ::core::option::Option::Some(::turnmill::tool::RetryWait {
                    initial: #initial,
                    max_delay: #max_delay,
                }),
            },)
        }
    });
    let timeout = options.timeout.map(|timeout| {
        let timeout = duration(timeout);
        quote!(timeout: #timeout,)
    });
    let effect = options.effect.map(|effect| match effect {
        Effect::ReadOnly => quote!(effect: ::turnmill::tool::Effect::ReadOnly,),
        Effect::Writes => quote!(effect: ::turnmill::tool::Effect::Writes,),
    });
    let output = match &function.signature.output {
        ReturnType::Default => None,
        ReturnType::Type(_, ty) => {
            let span = function.output_span();
            Some(
                quote_spanned!(span=> output: <#ty as ::turnmill::tool::macro_support::ToolResult>::schema(),),
            )
        }
    };
    let cache_ttl = options.cache_ttl.map(|ttl| {
        let ttl = duration(ttl);
        quote!(cache_ttl: ::core::option::Option::Some(#ttl),)
    });
    let approval = options.approval.as_ref().map(|approval| match approval {
        Approval::Always => quote!(requires_approval: ::turnmill::tool::Approval::Always,),
        Approval::When(predicate) => {
            quote!(requires_approval: ::turnmill::tool::Approval::when(#predicate),)
        }
    });
    let approval_timeout = options.approval_timeout.map(|limit| {
        let limit = duration(limit);
        quote!(approval_timeout: ::core::option::Option::Some(#limit),)
    });
    let cost = options.cost_per_call.map(|Cost { digits, scale }| {
        quote!(cost_per_call: ::turnmill::tool::Decimal::from_i128_with_scale(#digits, #scale),)
    });
    let deterministic = options.deterministic;
    let unknown =
        (options.report).then(|| quote!(on_unknown_outcome: ::turnmill::tool::UnknownOutcome::Report,));
    let blocking = function.signature.asyncness.is_none();
    quote! {
        #retry
        #timeout
        #effect
        #unknown
        #output
        #cache_ttl
        #approval
        #approval_timeout
        #cost
        deterministic: #deterministic,
        blocking: #blocking,
    }
}

fn duration(duration: std::time::Duration) -> TokenStream {
    let (seconds, nanoseconds) = (duration.as_secs(), duration.subsec_nanos());
    quote!(::core::time::Duration::new(#seconds, #nanoseconds))
}

/// The body of `Tool::call`.
fn call(
    function: &Function,
    parameters: &Parameters,
    arguments_type: &Ident,
    context: &Ident,
    arguments: &Ident,
) -> TokenStream {
    // An error about what the call returns belongs to the return type.
    let span = function.output_span();
    let mut name = function.signature.ident.clone();
    name.set_span(span.resolved_at(name.span()));
    let is_async = function.signature.asyncness.is_some();
    let read = quote!(::turnmill::tool::macro_support::arguments::<#arguments_type>(#arguments)?);
    let read = if parameters.arguments.is_empty() { quote!(#read;) } else { quote!(let #arguments = #read;) };
    let passed_context =
        parameters.context.then(|| if is_async { quote!(#context,) } else { quote!(&#context,) });
    let passed = parameters.arguments.iter().map(|argument| {
        let Argument { name, conditions, .. } = argument;
        quote!(#(#conditions)* #arguments.#name)
    });
    let awaited = is_async.then(|| quote_spanned!(span=> .await));
    let result = quote_spanned! {span=>
        ::turnmill::tool::macro_support::ToolResult::into_output(
            #name(#passed_context #(#passed,)*) #awaited
        )
    };
    if is_async {
        return quote!(#read #result);
    }
    let cloned = parameters.context.then(|| quote!(let #context = ::core::clone::Clone::clone(#context);));
    quote! {
        #read
        #cloned
        ::turnmill::tool::macro_support::blocking(move || #result).await
    }
}
