use std::path::PathBuf;

use rusqlite::{Connection, TransactionBehavior};
use sluice_contract::{Hash, Witness};
use tempfile::TempDir;

use super::*;
use crate::process::Process;
use crate::run::{Run, RunPhase};

mod migrations;
mod outbox;
mod queries;
mod readers;
mod runs;

/// A database in a directory of its own.
struct Database(TempDir);

impl Database {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("there is room"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("sluice.db")
    }

    fn open(&self) -> Store {
        Store::open(&self.path()).expect("it can be opened")
    }

    /// Opens the file as another program does.
    fn connect(&self) -> Connection {
        Connection::open(self.path()).expect("it can be opened")
    }
}

fn run_row(name: &str) -> RunRow {
    RunRow {
        key: format!("{name}.0").parse().expect("a key"),
        account: "acct".into(),
        agent: "sandbox:agent".into(),
        model: None,
        image: "image".into(),
        owner: Process::current().expect("there is /proc"),
        driver: RunDriver::Once,
    }
}
