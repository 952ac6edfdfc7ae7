//! The profile model: decode, encode, validate, merge and query pprof profiles.
