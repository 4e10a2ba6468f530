//! The system calls that a running sidecar makes. Every other one fails with EPERM.
//!
//! No `execve`, `fork`, `ptrace`, `mount`, `bpf` or `io_uring`; TCP and UDP sockets, and unix sockets only where an
//! upstream is one; no signal to another process; no new executable memory.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter_all_threads,
};

use super::{HardenError, Measure};

/// System calls that depend on the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyscallNeeds {
    /// True if calls go to a unix socket.
    pub unix: bool,
    /// True if names are resolved: the resolver binds UDP sockets.
    pub resolve: bool,
}

/// Returns the system calls that are always allowed, in groups with a reason each.
fn allowed() -> Vec<i64> {
    let mut calls = vec![
        // bytes in and out
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_readv,
        libc::SYS_writev,
        libc::SYS_recvfrom,
        libc::SYS_sendto,
        libc::SYS_recvmsg,
        libc::SYS_sendmsg,
        libc::SYS_close,
        libc::SYS_shutdown,
        // connections: in by the socket, out to the upstream and the name servers
        libc::SYS_accept4,
        libc::SYS_connect,
        libc::SYS_getsockopt,
        libc::SYS_setsockopt,
        libc::SYS_getsockname,
        libc::SYS_getpeername,
        // the event loop and its clock
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_ctl,
        libc::SYS_epoll_create1,
        libc::SYS_eventfd2,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep,
        libc::SYS_ppoll,
        libc::SYS_fcntl,
        libc::SYS_ioctl,
        // the audit file, the log, and the end of both
        libc::SYS_fdatasync,
        libc::SYS_fsync,
        libc::SYS_ftruncate,
        libc::SYS_fallocate,
        libc::SYS_lseek,
        libc::SYS_fstat,
        libc::SYS_statx,
        libc::SYS_newfstatat,
        libc::SYS_unlinkat,
        libc::SYS_openat,
        libc::SYS_flock,
        // threads and memory, as the allocator and the runtime use them
        libc::SYS_futex,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_brk,
        libc::SYS_sched_yield,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_set_robust_list,
        libc::SYS_rseq,
        libc::SYS_gettid,
        libc::SYS_getpid,
        libc::SYS_sched_getaffinity,
        libc::SYS_restart_syscall,
        libc::SYS_membarrier,
        // signals: handlers, and the abort after a bug
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sigaltstack,
        // call ids, TLS
        libc::SYS_getrandom,
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        libc::SYS_epoll_wait,
        libc::SYS_unlink,
        libc::SYS_poll,
        libc::SYS_open,
        libc::SYS_stat,
        libc::SYS_lstat,
    ]);
    calls
}

pub(super) fn apply(calls: SyscallNeeds) -> Result<Measure, HardenError> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => TargetArch::x86_64,
        "aarch64" => TargetArch::aarch64,
        _ => return Ok(Measure::NotSupported),
    };
    match apply_filter_all_threads(&program(calls, std::process::id(), arch)?) {
        Ok(()) => Ok(Measure::Applied),
        Err(seccompiler::Error::Seccomp(error))
            if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) =>
        {
            Ok(Measure::NotSupported)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the filter for the process with this id.
fn program(calls: SyscallNeeds, pid: u32, arch: TargetArch) -> Result<BpfProgram, seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = allowed().into_iter().map(|call| (call, Vec::new())).collect();
    let unix = calls.unix.then_some(libc::AF_UNIX);
    let families = [libc::AF_INET, libc::AF_INET6].into_iter().chain(unix);
    let family = |family: i32| rule(0, SeccompCmpOp::Eq, u64::from(family.unsigned_abs()));
    rules.insert(libc::SYS_socket, families.map(family).collect::<Result<_, _>>()?);
    let not_executable = || rule(2, SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64), 0);
    rules.insert(libc::SYS_mmap, vec![not_executable()?]);
    rules.insert(libc::SYS_mprotect, vec![not_executable()?]);
    if calls.resolve {
        rules.insert(libc::SYS_bind, Vec::new());
    }
    // The abort after a bug signals the process itself.
    rules.insert(libc::SYS_tgkill, vec![rule(0, SeccompCmpOp::Eq, u64::from(pid))?]);
    // A new thread names itself, perhaps after the filter was installed.
    rules.insert(libc::SYS_prctl, vec![rule(0, SeccompCmpOp::Eq, libc::PR_SET_NAME as u64)?]);
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, denied, SeccompAction::Allow, arch).map_err(seccompiler::Error::from)?;
    filter.try_into().map_err(|error: seccompiler::BackendError| seccompiler::Error::from(error))
}

fn rule(argument: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::Error> {
    let condition =
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value).map_err(seccompiler::Error::from)?;
    SeccompRule::new(vec![condition]).map_err(seccompiler::Error::from)
}

#[cfg(test)]
mod tests;
