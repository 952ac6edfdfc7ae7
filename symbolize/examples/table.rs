//! Builds the lookup table of a file and answers addresses: `table FILE [ADDRESS…]`.

use pilotlight_symbolize::tables::{Limits, Sources, Table, build, inspect};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: table FILE [ADDRESS…]")?;
    let object = std::fs::read(path)?;
    println!("{:?}", inspect(&object)?);
    let (started, mut bytes) = (Instant::now(), Vec::new());
    let report = build(&Sources::of(&object), &Limits::default(), &mut bytes)?;
    println!("{report:?} in {:?}", started.elapsed());
    let table = Table::open(&bytes)?;
    for address in arguments {
        let svma = u64::from_str_radix(address.trim_start_matches("0x"), 16)?;
        match table.extent(svma)? {
            Some(start) => println!("{address}: in a function without a name at {start:#x}"),
            None => println!("{address}"),
        }
        for frame in table.frames(svma)? {
            println!(
                "  {} [{}] {}:{}",
                frame.function,
                frame.system_name,
                frame.file.as_deref().unwrap_or("?"),
                frame.line.unwrap_or(0)
            );
        }
    }
    Ok(())
}
