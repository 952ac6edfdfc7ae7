use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// What is wrong, and where.
pub(crate) struct Error {
    text: String,
    place: Span,
}

impl Error {
    pub(crate) fn new(text: impl Into<String>, place: Span) -> Error {
        Error {
            text: text.into(),
            place,
        }
    }

    /// `::core::compile_error! { "…" }`, all of it at the place, so that the compiler points there.
    pub(crate) fn into_tokens(self) -> TokenStream {
        let text = TokenTree::from(Literal::string(&self.text));
        let punct = |character, spacing| TokenTree::from(Punct::new(character, spacing));
        let tokens = [
            punct(':', Spacing::Joint),
            punct(':', Spacing::Alone),
            Ident::new("core", self.place).into(),
            punct(':', Spacing::Joint),
            punct(':', Spacing::Alone),
            Ident::new("compile_error", self.place).into(),
            punct('!', Spacing::Alone),
            Group::new(Delimiter::Brace, text.into()).into(),
        ];
        let at_place = |mut token: TokenTree| {
            token.set_span(self.place);
            token
        };
        tokens.into_iter().map(at_place).collect()
    }
}
