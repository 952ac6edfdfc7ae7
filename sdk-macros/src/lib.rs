//! The attributes of [`pilotlight`](https://docs.rs/pilotlight)'s feature `macros`. They rewrite the
//! body of a function and nothing else, so they need no parser of Rust and no dependency.
//!
//! | module | job |
//! |---|---|
//! | `function` | finds name, return type and body in a function's tokens |
//! | `arguments` | what stands in the attribute's parentheses |
//! | `error` | what the compiler says at which place |

mod arguments;
mod error;
mod function;

use proc_macro::TokenStream;

use arguments::Arguments;
use error::Error;
use function::Function;

/// Makes a function a span of logical stacks: profiles `await` and `tasks`, label `span` of others.
/// The name is the function's, or `#[pilotlight::span("other")]`.
///
/// On an `async fn` the body becomes a spanned future; on a plain `fn` the span ends when the function
/// returns. Put it above attributes that rewrite the function, such as `#[async_trait]` on a trait's
/// functions: inside of the trait.
#[proc_macro_attribute]
pub fn span(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let made = Arguments::read(arguments, "span", "name").and_then(|arguments| {
        let function = Function::read(item.clone(), "span")?;
        if let Some(place) = function.constant {
            return Err(Error::new(
                "a `const fn` runs in the compiler too and cannot be a span; remove `const`, or \
                 make a span of its caller",
                place,
            ));
        }
        Ok(function.into_span(&arguments))
    });
    finish(made, item)
}

/// Starts pilotlight before `main` does anything else. The service's name is the package's, or
/// `#[pilotlight::main("checkout")]`. Where it cannot start, it says why on standard error, and the
/// program goes on without profiles.
///
/// Works with a runtime's attribute, in either order:
/// `#[pilotlight::main] #[tokio::main] async fn main()`.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let made = Arguments::read(arguments, "main", "service").and_then(|arguments| {
        let function = Function::read(item.clone(), "main")?;
        if function.name.to_string() != "main" {
            return Err(Error::new(
                "`#[pilotlight::main]` starts the profiler for the whole program: it belongs on \
                 `fn main`; for other functions there is `#[pilotlight::span]`",
                function.name.span(),
            ));
        }
        Ok(function.into_main(&arguments))
    });
    finish(made, item)
}

/// After an error the function stays as it was, so that nothing else is reported about it.
fn finish(made: Result<TokenStream, Error>, item: TokenStream) -> TokenStream {
    made.unwrap_or_else(|error| {
        let mut tokens = error.into_tokens();
        tokens.extend(item);
        tokens
    })
}
