//! The laboratory: layers beside those that ship, and comparisons and studies of them.

#![warn(missing_docs)]

#[cfg(test)]
#[path = "../../../tests/support/check.rs"]
mod check;

pub mod compare;
