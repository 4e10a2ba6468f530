//! Audit files against their promises: golden files of every kind, cut, altered and rewritten.

mod build;
mod cuts;
mod golden;
mod mutations;
mod page;
