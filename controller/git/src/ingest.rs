//! Takes a pack of a sandbox into the repository of its run.
//!
//! git writes it into a separate directory (the quarantine). Its files move into the repository only after every check;
//! a refused pack leaves nothing.

use std::io;

use rustix::fs::renameat;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Semaphore;

use crate::beneath::open_directory;
use crate::credentials::SECRETS;
use crate::directory::{Scratch, file_bytes};
use crate::error::GitError;
use crate::ingest_refusal::IngestRefusal;
use crate::leftovers;
use crate::limits::{HOSTILE, PACK_BYTES, PACK_OBJECTS, RUN_BYTES, STRUCTURE_BYTES, TREE_DEPTH, TREE_PATHS};
use crate::object_check::ObjectSizes;
use crate::object_graph::{TreeFault, measure_trees};
use crate::program::{GitCommand, Input};
use crate::run_repository::RunRepository;

/// Beginning of the names of quarantine directories.
const INCOMING: &str = "incoming";

/// Maximum number of packs that are parsed at a time, with their objects in memory.
static PARSERS: Semaphore = Semaphore::const_new(2);

/// Runs a command that prints objects of a sandbox, and parses them in a separate thread, because the runtime also serves
/// other runs. The output stays in memory until it is parsed, so the command itself waits until a parser is free.
pub(crate) async fn parse_output<T: Send + 'static>(
    command: GitCommand<'_>,
    input: &[u8],
    parse: impl FnOnce(&[u8]) -> T + Send + 'static,
) -> Result<T, GitError> {
    let permit = PARSERS.acquire().await.expect("the semaphore is never closed");
    let output = command.check(Input::Bytes(input)).await?;
    // The thread continues when this future is dropped.
    let parsed = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        parse(&output.stdout)
    })
    .await;
    parsed.map_err(|error| GitError::File { what: "parse objects of a sandbox", source: io::Error::other(error) })
}

/// A pack that was checked, and is not yet in the repository.
#[derive(Debug)]
pub(crate) struct Quarantine<'a> {
    repository: &'a RunRepository,
    scratch: Option<Scratch>,
}

impl<'a> Quarantine<'a> {
    /// Receives a pack, and checks the size of each object and the shape of each tree.
    pub(crate) async fn receive(
        repository: &'a RunRepository,
        mut pack: impl AsyncRead + Unpin + Send,
    ) -> Result<Self, GitError> {
        let mut header = [0; 12];
        if pack.read_exact(&mut header).await.is_err() {
            return Err(IngestRefusal::NotAPack.into());
        }
        let objects = pack_objects(&header).ok_or(IngestRefusal::NotAPack)?;
        if objects > PACK_OBJECTS {
            return Err(IngestRefusal::Objects(objects).into());
        }
        // The caller has the lock of the repository.
        for kind in [INCOMING, SECRETS] {
            Scratch::sweep(repository.path(), kind)?;
        }
        leftovers::sweep(repository.path())?;
        if objects == 0 {
            return Ok(Self { repository, scratch: None });
        }
        let scratch = Scratch::new(repository.path(), INCOMING, repository.program().user())?;
        let quarantine = Self { repository, scratch: Some(scratch) };
        let most = format!("--max-input-size={PACK_BYTES}");
        let words = ["index-pack", "--stdin", "--fix-thin", "--strict", &most];
        let mut whole = header.chain(pack.take(PACK_BYTES + 1));
        let indexed = quarantine.command().args(words).run(Input::Reader(&mut whole)).await?;
        if !indexed.is_success() {
            return Err(IngestRefusal::Pack(indexed.message()).into());
        }
        quarantine.check_total()?;
        quarantine.check_objects().await?;
        Ok(quarantine)
    }

    /// Begins a command that sees the pack and the repository.
    pub(crate) fn command(&self) -> GitCommand<'_> {
        let command = self.repository.command(HOSTILE);
        match &self.scratch {
            Some(scratch) => command.quarantine(scratch.name()),
            None => command,
        }
    }

    /// Checks the total size of all packs of the run.
    fn check_total(&self) -> Result<(), GitError> {
        let Some(scratch) = &self.scratch else { return Ok(()) };
        let total = self.repository.received_bytes()?.saturating_add(file_bytes(&scratch.path().join("pack"))?);
        if total > RUN_BYTES { Err(IngestRefusal::Total.into()) } else { Ok(()) }
    }

    /// Checks the sizes of all objects, and the shape of all trees.
    async fn check_objects(&self) -> Result<(), GitError> {
        let form = "--batch-check=%(objectname) %(objecttype) %(objectsize)";
        let listed = self.command_of_pack().args(["cat-file", form, "--batch-all-objects", "--unordered"]);
        let sizes = ObjectSizes::parse(&listed.check(Input::Nothing).await?.stdout)?;
        let trees = sizes.trees()?;
        let mut limits = HOSTILE;
        limits.output = usize::try_from(STRUCTURE_BYTES).unwrap_or(usize::MAX) + trees.len() * 2;
        let read = self.command_of_pack().limits(limits).args(["cat-file", "--batch"]);
        let measured = parse_output(read, trees.as_bytes(), measure_trees).await?;
        let largest = measured.map_err(|fault| match fault {
            TreeFault::Broken => IngestRefusal::Pack("a tree cannot be read".to_owned()),
            TreeFault::TooMany => IngestRefusal::Entries,
        })?;
        if largest.depth > TREE_DEPTH {
            return Err(IngestRefusal::Depth(largest.depth).into());
        }
        if largest.paths > TREE_PATHS {
            return Err(IngestRefusal::Paths.into());
        }
        Ok(())
    }

    /// Begins a command that sees only the pack.
    fn command_of_pack(&self) -> GitCommand<'_> {
        let command = self.repository.command(HOSTILE);
        match &self.scratch {
            Some(scratch) => command.only_objects(scratch.name()),
            None => command,
        }
    }

    /// Moves the pack into the repository. Until a ref names its commits, the pack changes nothing.
    pub(crate) fn keep(self) -> Result<(), GitError> {
        let Some(scratch) = &self.scratch else { return Ok(()) };
        let failed = || GitError::file("move a pack into the repository of its run");
        let repository = self.repository.path();
        let from = open_directory(repository, &format!("{}/pack", scratch.name())).map_err(failed())?;
        let to = open_directory(repository, "objects/pack").map_err(failed())?;
        let listed = std::fs::read_dir(scratch.path().join("pack")).map_err(failed())?;
        let mut names: Vec<String> =
            listed.filter_map(Result::ok).filter_map(|entry| entry.file_name().into_string().ok()).collect();
        // git finds a pack by its index, so the index comes last.
        names.sort_by_key(|name| name.ends_with(".idx"));
        for name in names.iter().filter(|name| is_pack_file(name)) {
            renameat(&from, name.as_str(), &to, name.as_str()).map_err(|error| failed()(error.into()))?;
        }
        to.sync_all().map_err(failed())
    }
}

fn is_pack_file(name: &str) -> bool {
    name.starts_with("pack-") && [".pack", ".idx", ".rev"].iter().any(|end| name.ends_with(end))
}

/// Returns the number of objects that the header of a pack states.
fn pack_objects(header: &[u8; 12]) -> Option<u32> {
    let count = header.strip_prefix(b"PACK\0\0\0\x02")?;
    Some(u32::from_be_bytes(count.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;
    use crate::program::GitProgram;

    /// Bug: each push had up to 64 MiB of objects in memory while it waited for a parser.
    #[tokio::test]
    async fn no_object_is_read_before_a_parser_is_free() {
        let busy = PARSERS.acquire_many(2).await.expect("it is never closed");
        // A git that does not exist fails at its start, which would end the first poll.
        let program = GitProgram::unconfined("/nonexistent/git".into());
        let directory = tempfile::tempdir().expect("a directory");
        let mut reading = pin!(parse_output(program.command(directory.path(), HOSTILE), b"", |_: &[u8]| ()));
        let is_done = poll_fn(|context| Poll::Ready(reading.as_mut().poll(context).is_ready())).await;
        assert!(!is_done, "git was started while all parsers were busy");
        drop(busy);
        assert!(matches!(reading.await, Err(GitError::Start { .. })));
    }
}
