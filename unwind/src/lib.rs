//! Stack unwinding from .eh_frame compiled to a flat table that a signal handler can read.
