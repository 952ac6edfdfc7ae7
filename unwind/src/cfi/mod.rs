//! `.eh_frame` to rows: [`entries`] finds CIEs and FDEs, [`machine`] runs their instructions,
//! [`expression`] names the few DWARF expressions that occur in practice.

mod arch;
mod cursor;
mod entries;
mod expression;
mod machine;

pub(crate) use entries::{EhFrame, Fde};
pub(crate) use machine::Machine;
