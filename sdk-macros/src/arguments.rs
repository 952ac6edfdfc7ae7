use proc_macro::{Literal, TokenStream, TokenTree};

use crate::error::Error;

/// What stands in the attribute's parentheses: nothing, or one text.
pub(crate) struct Arguments {
    /// The text as a literal of the program.
    pub(crate) text: Option<Literal>,
}

impl Arguments {
    /// `("text")` or `(key = "text")`; `attribute` is for messages.
    pub(crate) fn read(tokens: TokenStream, attribute: &str, key: &str) -> Result<Self, Error> {
        let mut tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let keyed = matches!(
            &tokens[..],
            [TokenTree::Ident(name), TokenTree::Punct(equals), _]
                if name.to_string() == key && equals.as_char() == '='
        );
        if keyed {
            tokens.drain(..2);
        }
        match &tokens[..] {
            [] => Ok(Arguments { text: None }),
            [TokenTree::Literal(text)] if text.to_string().starts_with('"') => Ok(Arguments {
                text: Some(text.clone()),
            }),
            [first, ..] => Err(Error::new(
                format!(
                    "`#[pilotlight::{attribute}]` takes nothing or one text: \
                     `#[pilotlight::{attribute}(\"…\")]` or `#[pilotlight::{attribute}({key} = \"…\")]`"
                ),
                first.span(),
            )),
        }
    }
}
