use proc_macro::{Delimiter, Group, Ident, Literal, Span, TokenStream, TokenTree};

use crate::arguments::Arguments;
use crate::error::Error;

/// A function in parts. Whatever stands before the body is kept token by token.
pub(crate) struct Function {
    head: Vec<TokenTree>,
    body: Group,
    pub(crate) name: Ident,
    is_async: bool,
    /// Where `const` stands.
    pub(crate) constant: Option<Span>,
    /// What stands after `->`; none for `()`, `!` and types that have no name (`impl Trait`).
    returns: Option<TokenStream>,
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == word)
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

impl Function {
    /// `attribute` is for messages.
    pub(crate) fn read(item: TokenStream, attribute: &str) -> Result<Function, Error> {
        let mut head: Vec<TokenTree> = item.into_iter().collect();
        let keyword = head.iter().position(|token| is_word(token, "fn"));
        let name = match keyword.and_then(|at| head.get(at + 1)) {
            Some(TokenTree::Ident(name)) => name.clone(),
            _ => {
                let place = head.first().map_or_else(Span::call_site, TokenTree::span);
                let text = format!("`#[pilotlight::{attribute}]` belongs on a function");
                return Err(Error::new(text, place));
            }
        };
        let body = match head.pop() {
            Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => body,
            _ => {
                let text = format!(
                    "`#[pilotlight::{attribute}]` needs a function with a body; in a trait, put it \
                     on the implementations"
                );
                return Err(Error::new(text, name.span()));
            }
        };
        let before = &head[..keyword.unwrap_or(0)];
        let constant = before.iter().find(|token| is_word(token, "const"));
        Ok(Function {
            is_async: before.iter().any(|token| is_word(token, "async")),
            constant: constant.map(TokenTree::span),
            returns: returns(&head[keyword.unwrap_or(0)..]),
            head,
            body,
            name,
        })
    }

    fn with_body(self, body: TokenStream) -> TokenStream {
        let mut group = Group::new(Delimiter::Brace, body);
        // Messages about a missing value point to the body's end, as without the attribute.
        group.set_span(self.body.span());
        let mut tokens = TokenStream::from_iter(self.head);
        tokens.extend([TokenTree::from(group)]);
        tokens
    }

    pub(crate) fn into_span(self, arguments: &Arguments) -> TokenStream {
        let name = match &arguments.text {
            Some(text) => text.clone(),
            None => Literal::string(self.name.to_string().trim_start_matches("r#")),
        };
        let mut body: TokenStream = parse(&format!(
            "static __PILOTLIGHT_SITE: ::pilotlight::spans::Site = \
             ::pilotlight::spans::Site::new({name}, ::core::file!(), ::core::line!());"
        ));
        if self.is_async {
            body.extend(self.future());
        } else {
            body.extend(parse(
                "let __pilotlight_span = ::pilotlight::spans::enter_site(&__PILOTLIGHT_SITE);",
            ));
            body.extend(self.body.stream());
        }
        self.with_body(body)
    }

    /// The body as a spanned future, awaited.
    fn future(&self) -> TokenStream {
        let mut inner = TokenStream::new();
        if let Some(returns) = &self.returns {
            // Never runs: says what the block returns, which is not inferred through the future.
            inner.extend(parse("#[allow(unreachable_code, clippy::all)] if false"));
            let mut says = parse("let __pilotlight_returns:");
            says.extend(returns.clone());
            says.extend(parse(
                "= ::core::unreachable!(); return __pilotlight_returns;",
            ));
            inner.extend([TokenTree::from(Group::new(Delimiter::Brace, says))]);
        }
        inner.extend(self.body.stream());
        let mut block = parse("async move");
        let mut inner = Group::new(Delimiter::Brace, inner);
        inner.set_span(self.body.span());
        block.extend([TokenTree::from(inner)]);
        block.extend(parse(", &__PILOTLIGHT_SITE"));
        let mut call = parse("::pilotlight::spans::Spanned::at");
        call.extend([TokenTree::from(Group::new(Delimiter::Parenthesis, block))]);
        call.extend(parse(".await"));
        call
    }

    pub(crate) fn into_main(self, arguments: &Arguments) -> TokenStream {
        let service = match &arguments.text {
            Some(text) => text.to_string(),
            None => "::core::env!(\"CARGO_PKG_NAME\")".into(),
        };
        let mut body = parse(&format!(
            "let __pilotlight = ::pilotlight::start_or_say_why_not({service});"
        ));
        body.extend(self.body.stream());
        self.with_body(body)
    }
}

/// The type after the arrow that follows the parameters.
fn returns(signature: &[TokenTree]) -> Option<TokenStream> {
    let parameters = signature.iter().position(
        |token| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis),
    )?;
    let rest = &signature[parameters + 1..];
    if !(is_punct(rest.first()?, '-') && is_punct(rest.get(1)?, '>')) {
        return None;
    }
    let named = rest[2..]
        .iter()
        .take_while(|token| !is_word(token, "where"));
    let named: Vec<TokenTree> = named.cloned().collect();
    // `!` is no type that a variable may have.
    let is_never = matches!(&named[..], [only] if is_punct(only, '!'));
    let named = TokenStream::from_iter(named);
    (!is_never && !has_word(named.clone(), "impl")).then_some(named)
}

fn has_word(tokens: TokenStream, word: &str) -> bool {
    tokens.into_iter().any(|token| match &token {
        TokenTree::Group(group) => has_word(group.stream(), word),
        token => is_word(token, word),
    })
}

/// Text of this crate's own as tokens, named as if written in it.
fn parse(text: &str) -> TokenStream {
    // Only fails where a literal of the program would be no token, which cannot be.
    text.parse().unwrap_or_default()
}
