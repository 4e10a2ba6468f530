//! `sluice-proxy`: harden, settings, secret, start, ready, serve, drain, exit code.

use std::io::{self, Write};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches};
use sluice_proxy::audit::LogTotals;
use sluice_proxy::bridge;
use sluice_proxy::harden::{self, ParentWatch};
use sluice_proxy::server::{self, Stage};
use sluice_proxy::settings::{ProxyFlags, ProxySettings};
use sluice_proxy::socket::ListeningSocket;
use sluice_proxy::start::{self, Started};
use sluice_proxy::start_error::{SidecarExit, StartError};
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

mod log;

fn main() -> ExitCode {
    // In a sandbox, the program is the bridge: it has no settings, no key and no audit log.
    if std::env::args_os().nth(1).is_some_and(|arg| arg == "bridge") {
        return bridge::main(std::env::args_os().skip(1));
    }
    // A failed start is reported in one line.
    match run() {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(error) => {
            let _ = writeln!(io::stderr(), "sluice-proxy: {error}");
            ExitCode::from(error.exit as u8)
        }
    }
}

fn run() -> Result<SidecarExit, StartError> {
    harden::process().map_err(|error| StartError::caused("hardening", SidecarExit::Software, &error))?;
    let Some((flags, only_check)) = flags()? else {
        return Ok(SidecarExit::Ok);
    };
    let settings = ProxySettings::from_flags(flags)
        .map_err(|error| if only_check { StartError { exit: SidecarExit::Config, ..error } } else { error })?;
    if only_check {
        let checked = start::check(&settings)?;
        return print(&checked.to_string()).map(|()| SidecarExit::Ok);
    }
    let orphaned = |error| StartError::caused("--die-with-parent", SidecarExit::Config, &error);
    let parent = settings.die_with_parent.then(ParentWatch::begin).transpose().map_err(orphaned)?;
    let log = log::open(settings.log.as_deref())?;
    let key = start::key(&settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| StartError::caused("runtime", SidecarExit::Software, &error))?;
    let exit = runtime.block_on(async {
        // Before the ready line: a signal that comes right after it must find its handler.
        let signals = Signals::new().map_err(|error| StartError::caused("signals", SidecarExit::Software, &error))?;
        let opened = start::open(&settings, key)?;
        parent.as_ref().map_or(Ok(()), ParentWatch::renew).map_err(orphaned)?;
        let _log = log::begin(log, settings.log_level);
        let started = start::begin(&settings, opened)?;
        // Serving is a task of its own: tokio wakes the future of `block_on` by a write to itself, and a task by a
        // push.
        tokio::spawn(serve(settings, started, signals))
            .await
            .map_err(|error| StartError::caused("serve", SidecarExit::Software, &error))?
    });
    drop(runtime);
    exit
}

/// Reads the flags, with true if they are only to be checked; `None` if help or version was asked for.
fn flags() -> Result<Option<(ProxyFlags, bool)>, StartError> {
    let mut args: Vec<_> = std::env::args_os().collect();
    let only_check = args.get(1).is_some_and(|arg| arg == "check");
    if only_check {
        args.remove(1);
    }
    // The variables are named after the flags; a column of them would hide the help.
    let command = ProxyFlags::command().mut_args(|arg| arg.hide_env(true));
    match command.try_get_matches_from(args).and_then(|matches| ProxyFlags::from_arg_matches(&matches)) {
        Ok(flags) => Ok(Some((flags, only_check))),
        Err(error) if !error.use_stderr() => print(error.render().to_string().trim_end()).map(|()| None),
        Err(error) => {
            let text = error.render().to_string();
            let said: Vec<_> = text
                .lines()
                .map(str::trim)
                .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
                .filter(|line| !line.is_empty())
                .collect();
            let said = said.join(" ");
            Err(StartError::new(
                "usage",
                SidecarExit::Usage,
                format!("{}; see sluice-proxy --help", said.trim_start_matches("error: ")),
            ))
        }
    }
}

/// Serves calls until a signal or the deadline, then ends in order.
async fn serve(settings: ProxySettings, started: Started, mut signals: Signals) -> Result<SidecarExit, StartError> {
    let ready = start::ready_line(&settings, &started);
    let Started { socket, control, run, connections, warnings, .. } = started;
    let software = |error: &dyn std::error::Error| StartError::caused("serve", SidecarExit::Software, error);
    let listen = |socket: &ListeningSocket| socket.listener.try_clone().and_then(UnixListener::from_std);
    let listener = listen(&socket).map_err(|e| software(&e))?;
    let control = match control {
        Some(control) => Some((listen(&control.socket).map_err(|e| software(&e))?, control)),
        None => None,
    };
    for warning in settings.warnings().into_iter().map(str::to_owned).chain(warnings) {
        tracing::warn!("{warning}");
    }
    if let Err(error) = print(&ready) {
        // The launcher is gone, but the audit log still gets its end.
        let _ = run.journal.close("not_awaited").await;
        return Err(error);
    }
    tracing::info!(run = %run.run_id, upstream = %settings.upstream, "ready");

    let (stage, watched) = watch::channel(Stage::Open);
    // Every connection watches the stage, so a stage that is sent again wakes every call.
    let waking = stage.clone();
    run.interrupts.wake_by(Box::new(move || waking.send_modify(|_| {})));
    let mut controlling = pin!(async {
        if let Some((listener, control)) = &control {
            server::serve_control(listener, control.uid, &run, watched.clone()).await;
        }
        std::future::pending().await
    });
    let mut serving = pin!(async {
        tokio::select! {
            // Cancel-safe: control ends with the last call.
            () = server::serve(&listener, &run, connections, watched.clone()) => {}
            () = &mut controlling => {}
        }
    });
    let reason = tokio::select! {
        // Cancel-safe: serving goes on below; a signal that is not taken here is taken there.
        () = &mut serving => "stopped",
        reason = signals.stop_or(run.deadline.reached()) => reason,
    };
    tracing::info!(reason, "stopping: new calls are refused, open ones may end");
    stage.send_replace(Stage::Drain);
    tokio::select! {
        () = &mut serving => {}
        () = signals.cut_or(reason, settings.drain) => {
            stage.send_replace(Stage::Cut);
            serving.await;
        }
    }
    if let Some(relay) = &run.relay {
        run.journal.set_relayed(relay.counts());
    }
    let closed = run.journal.close(reason).await;
    // A launcher that waits until the socket is removed then finds the audit log complete.
    drop(socket);
    let LogTotals { records, syncs } = closed.map_err(|_| {
        StartError::new(
            "--audit",
            SidecarExit::Audit,
            "the audit log is incomplete, since it could not be written; free its disk",
        )
    })?;
    tracing::info!(reason, cut = run.journal.calls_cut(), records, syncs, "ended");
    Ok(if run.journal.calls_cut() > 0 { SidecarExit::Cut } else { SidecarExit::Ok })
}

fn print(line: &str) -> Result<(), StartError> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")
        .and_then(|()| stdout.flush())
        .map_err(|error| StartError::caused("stdout", SidecarExit::Software, &error))
}

/// Reason of a stop after the end of the parent.
const PARENT_ENDED: &str = "parent_ended";

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    orphaned: Signal,
    /// Handled, so that a file limit makes a write fail, and does not end the process.
    _file_limit: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            orphaned: signal(SignalKind::from_raw(harden::ORPHANED as i32))?,
            _file_limit: signal(SignalKind::from_raw(nix::libc::SIGXFSZ))?,
        })
    }

    /// Waits for the second signal that asks to stop, or for the end of this time.
    async fn cut_or(&mut self, reason: &str, time: Duration) {
        let mut time_is_up = pin!(tokio::time::sleep(time));
        let mut asked = reason != PARENT_ENDED;
        loop {
            match self.stop_or(time_is_up.as_mut()).await {
                PARENT_ENDED => {}
                "deadline" => return,
                _ if asked => return,
                _ => asked = true,
            }
        }
    }

    /// Waits for the first signal, or for the deadline.
    async fn stop_or(&mut self, deadline: impl Future<Output = ()>) -> &'static str {
        tokio::select! {
            // Cancel-safe: a signal that is not taken here is taken the next time.
            _ = self.terminate.recv() => "sigterm",
            _ = self.interrupt.recv() => "sigint",
            _ = self.hangup.recv() => "sighup",
            _ = self.orphaned.recv() => PARENT_ENDED,
            () = deadline => "deadline",
        }
    }
}
