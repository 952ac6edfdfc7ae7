//! The library's own code calls the hooks that it exports, also when it is loaded by `dlopen`.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
