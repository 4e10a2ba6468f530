//! Repositories of runs with the real git: honest work succeeds, and attacks change nothing.

mod attacks;
mod bundles;
mod child;
mod clones;
mod credentials;
mod looks;
mod publishing;
mod pushes;
mod retries;
mod ssh;
mod support;
