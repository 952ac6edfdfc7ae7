//! Tests that cross components.
