//! Addresses to functions, files and lines from ELF and DWARF.
