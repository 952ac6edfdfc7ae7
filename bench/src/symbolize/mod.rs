//! `bench symbolize`: names of addresses, beside blazesym and llvm-symbolizer.
//!
//! | group | what |
//! |---|---|
//! | `lookups` | lookups in the table of one file, and building that; or name a file |
//! | `gigabyte` | the table of a file with a gigabyte of DWARF, made here |
//! | `names` | from the end of an upload to names in the answer |
//! | `truth` | differences to LLVM's frames, 10,000 addresses a binary; minutes |

mod gigabyte;
mod lookups;
mod names;
mod truth;

use crate::child::{CargoBuild, Outcome};
use std::path::PathBuf;

/// Prints the figures of the groups that are named, or all.
pub fn run(words: &[&str]) -> Outcome<()> {
    let all = ["lookups", "gigabyte", "names", "truth"];
    let words = if words.is_empty() { &all[..] } else { words };
    for word in words {
        match *word {
            "lookups" => lookups::run(None)?,
            "gigabyte" => gigabyte::run()?,
            "names" => names::run()?,
            "truth" => truth::run()?,
            object => lookups::run(Some(object))?,
        }
    }
    Ok(())
}

/// The measuring program, built.
fn program() -> Outcome<PathBuf> {
    let built = CargoBuild {
        folder: "bench/peers/symbolize",
        variant: "symbolize",
        args: &[],
        frame_pointers: false,
    };
    Ok(built.run()?.join("pilotlight-bench-symbolize"))
}
