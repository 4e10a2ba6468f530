use super::*;

const PID: u32 = 4321;
const TCP: SyscallNeeds = SyscallNeeds { unix: false, resolve: false };
const UNIX: SyscallNeeds = SyscallNeeds { unix: true, resolve: false };
const NAMES: SyscallNeeds = SyscallNeeds { unix: false, resolve: true };

/// Runs the filter as the kernel does. Returns true if it allows this call with these arguments.
fn allows(calls: SyscallNeeds, number: i64, args: &[u64]) -> bool {
    let (load, jump, and, ret) = (0x20, 0x05, 0x54, 0x06);
    let mut data = [0; 64];
    data[..4].copy_from_slice(&(number as u32).to_ne_bytes());
    // AUDIT_ARCH_X86_64
    data[4..8].copy_from_slice(&0xc000_003e_u32.to_ne_bytes());
    for (at, arg) in args.iter().enumerate() {
        data[16 + 8 * at..24 + 8 * at].copy_from_slice(&arg.to_ne_bytes());
    }
    let program = program(calls, PID, TargetArch::x86_64).expect("it compiles");
    let (mut at, mut value) = (0, 0_u32);
    loop {
        let step = &program[at];
        at += 1;
        let condition = match step.code {
            code if code == load => {
                let offset = step.k as usize;
                value = u32::from_ne_bytes(data[offset..offset + 4].try_into().expect("four bytes"));
                continue;
            }
            code if code == and => {
                value &= step.k;
                continue;
            }
            code if code == ret => return step.k == u32::from(SeccompAction::Allow),
            code if code == jump => {
                at += step.k as usize;
                continue;
            }
            0x15 => value == step.k,
            0x25 => value > step.k,
            0x35 => value >= step.k,
            code => panic!("an instruction that no filter of ours has: {code:#x}"),
        };
        at += usize::from(if condition { step.jt } else { step.jf });
    }
}

#[test]
fn calls_are_allowed_by_number_and_arguments() {
    let family = |family: i32| [u64::from(family.unsigned_abs())];
    let (own, other, thread) = (u64::from(PID), u64::from(PID) + 1, u64::from(PID) + 2);
    let (read_write, execute) = ((libc::PROT_READ | libc::PROT_WRITE) as u64, libc::PROT_EXEC as u64);
    for (number, args, by_tcp, by_unix, by_name) in [
        (libc::SYS_socket, &family(libc::AF_INET)[..], true, true, true),
        (libc::SYS_socket, &family(libc::AF_INET6), true, true, true),
        (libc::SYS_socket, &family(libc::AF_UNIX), false, true, false),
        (libc::SYS_socket, &family(libc::AF_NETLINK), false, false, false),
        (libc::SYS_socket, &family(libc::AF_PACKET), false, false, false),
        (libc::SYS_socketpair, &family(libc::AF_UNIX), false, false, false),
        (libc::SYS_accept4, &[], true, true, true),
        (libc::SYS_connect, &[], true, true, true),
        (libc::SYS_bind, &[], false, false, true),
        (libc::SYS_listen, &[], false, false, false),
        (libc::SYS_tgkill, &[own, own, 6], true, true, true),
        (libc::SYS_tgkill, &[own, thread, 6], true, true, true),
        (libc::SYS_tgkill, &[other, other, 6], false, false, false),
        (libc::SYS_tgkill, &[1, 1, 0], false, false, false),
        (libc::SYS_kill, &[own, 9], false, false, false),
        (libc::SYS_tkill, &[own, 9], false, false, false),
        (libc::SYS_rt_tgsigqueueinfo, &[own, own, 6], false, false, false),
        (libc::SYS_pidfd_send_signal, &[], false, false, false),
        (libc::SYS_mmap, &[0, 4096, read_write], true, true, true),
        (libc::SYS_mmap, &[0, 4096, execute], false, false, false),
        (libc::SYS_mprotect, &[0, 4096, execute], false, false, false),
        (libc::SYS_execve, &[], false, false, false),
        (libc::SYS_clone, &[], false, false, false),
        (libc::SYS_clone3, &[], false, false, false),
        (libc::SYS_setuid, &[], false, false, false),
        (libc::SYS_setresuid, &[], false, false, false),
        (libc::SYS_capset, &[], false, false, false),
        (libc::SYS_ptrace, &[], false, false, false),
        (libc::SYS_io_uring_setup, &[], false, false, false),
        (libc::SYS_prctl, &[libc::PR_SET_NAME as u64], true, true, true),
        (libc::SYS_prctl, &[libc::PR_SET_DUMPABLE as u64, 1], false, false, false),
    ] {
        let found = [TCP, UNIX, NAMES].map(|calls| allows(calls, number, args));
        assert_eq!(found, [by_tcp, by_unix, by_name], "call {number} with {args:?}");
    }
}
