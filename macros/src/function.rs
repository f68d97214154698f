//! The function under `#[tool]`: which parameters a tool may have, and its documentation.

use proc_macro2::{Group, Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{
    Attribute, Expr, ExprLit, FnArg, GenericArgument, Lit, Meta, Pat, PatType, PathArguments, ReturnType,
    Signature, Type, Visibility,
};

use crate::Errors;

/// A function whose body is left alone: it need not even be valid, for an editor to be of help in it.
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    body: Group,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        Ok(Self {
            attributes: input.call(Attribute::parse_outer)?,
            visibility: input.parse()?,
            signature: input.parse()?,
            body: input.parse()?,
        })
    }
}

impl ToTokens for Function {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Self { attributes, visibility, signature, body } = self;
        tokens.extend(quote!(#(#attributes)* #visibility #signature #body));
    }
}

/// What the function takes.
#[derive(Default)]
pub(crate) struct Parameters {
    /// Whether the first one is the context.
    pub(crate) context: bool,
    /// What the model fills in.
    pub(crate) arguments: Vec<Argument>,
}

/// A parameter that the model fills in.
pub(crate) struct Argument {
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    /// Documentation and the attributes for `serde` and `schemars`.
    pub(crate) attributes: Vec<Attribute>,
    /// The conditions under which the parameter exists at all.
    pub(crate) conditions: Vec<Attribute>,
}

impl Function {
    /// The documentation, as text.
    ///
    /// # Errors
    /// A part of it is not written out but included by a macro.
    pub(crate) fn documentation(&self) -> syn::Result<String> {
        let mut lines = Vec::new();
        for attribute in self.attributes.iter().filter(|a| a.path().is_ident("doc")) {
            let Meta::NameValue(pair) = &attribute.meta else {
                continue;
            };
            let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &pair.value else {
                let message = "a macro's text cannot be read here; write it out, or `description = ..`";
                return Err(syn::Error::new_spanned(&pair.value, message));
            };
            for line in text.value().split('\n') {
                lines.push(line.strip_prefix(' ').unwrap_or(line).to_owned());
            }
        }
        Ok(lines.join("\n").trim().to_owned())
    }

    /// Where an error about the return type points.
    pub(crate) fn output_span(&self) -> Span {
        match &self.signature.output {
            ReturnType::Default => self.signature.ident.span(),
            ReturnType::Type(_, ty) => ty.span(),
        }
    }

    /// Checks that the function can be a tool, and takes out of its parameters what belongs to the schema:
    /// the compiler would refuse it there.
    pub(crate) fn take_parameters(&mut self, errors: &mut Errors) -> Parameters {
        check_kind(&self.signature, errors);
        let mut parameters = Parameters::default();
        for (index, input) in self.signature.inputs.iter_mut().enumerate() {
            let input = match input {
                FnArg::Receiver(receiver) => {
                    errors.add(receiver, "a tool is a free function: it has no `self`");
                    continue;
                }
                FnArg::Typed(input) => input,
            };
            let attributes = take_attributes(input);
            if is_context(&input.ty) {
                check_context(index, &input.ty, errors);
                parameters.context = true;
                continue;
            }
            if let Err(error) = check_type(&input.ty) {
                errors.push(error);
            }
            match argument_name(&input.pat) {
                Ok(name) => parameters.arguments.push(Argument {
                    name,
                    ty: (*input.ty).clone(),
                    attributes,
                    conditions: input.attrs.iter().filter(|a| a.path().is_ident("cfg")).cloned().collect(),
                }),
                Err(error) => errors.push(error),
            }
        }
        parameters
    }
}

fn check_kind(signature: &Signature, errors: &mut Errors) {
    if let Some(token) = &signature.unsafety {
        errors.add(token, "a tool cannot be unsafe: a model chooses its arguments");
    }
    if let Some(abi) = &signature.abi {
        errors.add(abi, "a tool is a Rust function: it has no other ABI");
    }
    if let Some(dots) = &signature.variadic {
        errors.add(dots, "a tool has a fixed number of arguments");
    }
    let generics = &signature.generics;
    if !generics.params.is_empty() {
        errors
            .add(&generics.params, "a tool has no generic parameters: the model calls exactly one function");
    } else if let Some(bounds) = &generics.where_clause {
        errors.add(bounds, "a tool has no `where`: it has no generic parameters either");
    }
    if matches!(signature.output, ReturnType::Default) {
        let message = "a tool says how its call went: write `-> Result<T, ToolError>`";
        errors.add(&signature.ident, message);
    }
}

/// Takes what goes to the schema. Lint levels and `cfg` stay, the compiler knows those on parameters.
fn take_attributes(input: &mut PatType) -> Vec<Attribute> {
    let belongs =
        |a: &Attribute| ["doc", "serde", "schemars", "cfg_attr"].iter().any(|name| a.path().is_ident(name));
    let (taken, left) = input.attrs.drain(..).partition(belongs);
    input.attrs = left;
    taken
}

/// Whether the type is `ToolContext` under any path, whether or not behind a reference.
fn is_context(ty: &Type) -> bool {
    match ty {
        Type::Reference(reference) => is_context(&reference.elem),
        Type::Paren(inner) => is_context(&inner.elem),
        Type::Group(inner) => is_context(&inner.elem),
        Type::Path(path) => path.path.segments.last().is_some_and(|s| s.ident == "ToolContext"),
        _ => false,
    }
}

fn check_context(index: usize, ty: &Type, errors: &mut Errors) {
    let plain = match ty {
        Type::Reference(r) => {
            r.mutability.is_none()
                && r.lifetime.as_ref().is_none_or(|l| l.ident == "_")
                && !matches!(*r.elem, Type::Reference(_))
        }
        _ => false,
    };
    if !plain {
        errors.add(ty, "take the context as `&ToolContext`");
    }
    if index > 0 {
        errors.add(ty, "the context is the first parameter, or left out");
    }
}

/// The arguments are made from JSON that is gone by the time the function runs.
fn check_type(ty: &Type) -> syn::Result<()> {
    let error = |place: &dyn ToTokens, what: &str| Err(syn::Error::new_spanned(place, what));
    match ty {
        Type::Reference(_) => {
            error(ty, "take an owned type, like `String` for `&str`; only `&ToolContext` is a reference")
        }
        Type::ImplTrait(_) => error(ty, "take one type: a tool has no generic parameters"),
        Type::Paren(inner) => check_type(&inner.elem),
        Type::Group(inner) => check_type(&inner.elem),
        Type::Array(array) => check_type(&array.elem),
        Type::Slice(slice) => check_type(&slice.elem),
        Type::Tuple(tuple) => tuple.elems.iter().try_for_each(check_type),
        Type::Path(path) => (path.path.segments.iter())
            .filter_map(|segment| match &segment.arguments {
                PathArguments::AngleBracketed(arguments) => Some(&arguments.args),
                _ => None,
            })
            .flatten()
            .try_for_each(|argument| match argument {
                GenericArgument::Type(ty) => check_type(ty),
                GenericArgument::Lifetime(lifetime) if lifetime.ident != "static" => {
                    error(lifetime, "take an owned type: an argument borrows from nothing")
                }
                _ => Ok(()),
            }),
        _ => Ok(()),
    }
}

fn argument_name(pattern: &Pat) -> syn::Result<Ident> {
    match pattern {
        Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => Ok(ident.ident.clone()),
        _ => {
            let message =
                "name this parameter, and take it apart inside the function: the model is told its name";
            Err(syn::Error::new_spanned(pattern, message))
        }
    }
}

impl Argument {
    /// Whether the model may leave it out.
    pub(crate) fn is_optional(&self) -> bool {
        let mut ty = &self.ty;
        while let Type::Group(inner) = ty {
            ty = &inner.elem;
        }
        match ty {
            Type::Path(path) => path.path.segments.last().is_some_and(|s| s.ident == "Option"),
            _ => false,
        }
    }

    /// Whether the author chose the default; `serde` refuses a second one.
    pub(crate) fn has_default(&self) -> bool {
        (self.attributes.iter()).filter(|a| a.path().is_ident("serde")).any(|attribute| {
            let mut found = false;
            // What this cannot read, the derive complains about.
            let _ = attribute.parse_nested_meta(|meta| {
                found |= meta.path.is_ident("default");
                if let Ok(value) = meta.value() {
                    value.parse::<Expr>()?;
                } else if meta.input.peek(syn::token::Paren) {
                    meta.input.parse::<Group>()?;
                }
                Ok(())
            });
            found
        })
    }
}
