//! Commands of the pages that do not simply exit with 0 in a test.

use crate::commands::ShellCommand;

/// What a test does with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// It exits with this code.
    Exit(i32),
    /// It goes on until it is stopped, and prints a ready line.
    Listens,
    /// It is not run, for this reason.
    Skip(&'static str),
}

impl Treatment {
    /// Returns the exit code that the command should have.
    pub(crate) fn exit_code(self) -> i32 {
        if let Self::Exit(code) = self { code } else { 0 }
    }
}

/// A command of the table, with its treatment.
#[derive(Debug)]
pub(crate) struct SpecialRow {
    /// First words of the command.
    pub(crate) start: &'static str,
    treatment: Treatment,
}

const ITSELF: &str = "a target of the checkout, with a test of its own";
const AGENT: &str = "tests/conformance runs real coding agents";
const HOST: &str = "it changes the services of the host";
const ELSEWHERE: &str = "it names another host";
const PLACEHOLDER: &str = "it names a file or a value of the reader";
const REGISTRY: &str = "a test has no registry; tests/runs/any_image.rs runs such images";

/// Commands with a special treatment, by their first words.
pub(crate) const SPECIAL: &[SpecialRow] = &[
    SpecialRow { start: "make ", treatment: Treatment::Skip(ITSELF) },
    SpecialRow { start: "sluice run --agent ", treatment: Treatment::Skip(AGENT) },
    SpecialRow { start: "sluice run -it ", treatment: Treatment::Skip(AGENT) },
    SpecialRow { start: "runtime-image/agents/build.sh", treatment: Treatment::Skip(AGENT) },
    SpecialRow { start: "systemctl ", treatment: Treatment::Skip(HOST) },
    SpecialRow { start: "docker push ", treatment: Treatment::Skip(ELSEWHERE) },
    SpecialRow { start: "docker save sluice-runtime:latest | ssh ", treatment: Treatment::Skip(ELSEWHERE) },
    SpecialRow { start: "docker run --init --network=none ", treatment: Treatment::Skip(PLACEHOLDER) },
    SpecialRow { start: "sluice ledger import ", treatment: Treatment::Skip(PLACEHOLDER) },
    SpecialRow { start: "sluice ledger void RECEIPT ", treatment: Treatment::Skip(PLACEHOLDER) },
    SpecialRow { start: "sluice run --model gpt-4o-mini --image python:3.12 ", treatment: Treatment::Skip(REGISTRY) },
    SpecialRow { start: "docker build -t my-app . ", treatment: Treatment::Skip(REGISTRY) },
    // The run of the examples is over.
    SpecialRow { start: "sluice cancel RUN", treatment: Treatment::Exit(1) },
    // It was cancelled.
    SpecialRow { start: "sluice wait other", treatment: Treatment::Exit(143) },
    // The state directory is in use.
    SpecialRow { start: "sluice restore ", treatment: Treatment::Exit(1) },
    SpecialRow { start: "printf '%s' \"$LITELLM_KEY\" | dist/sluice-proxy ", treatment: Treatment::Listens },
];

impl SpecialRow {
    /// Returns whether this row applies to a command.
    pub(crate) fn fits(&self, command: &ShellCommand) -> bool {
        command.text.starts_with(self.start)
    }
}

/// Returns the treatment of a command.
pub(crate) fn treatment(command: &ShellCommand) -> Treatment {
    SPECIAL.iter().find(|row| row.fits(command)).map_or(Treatment::Exit(0), |row| row.treatment)
}
