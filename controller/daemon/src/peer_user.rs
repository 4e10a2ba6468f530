//! The user of the process at the other end of a loopback connection.
//!
//! TCP has no peer credentials. The kernel's table of sockets has a row for the client's end of the connection, with the
//! user that made it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Tables of the daemon's network.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// State of a connection that both ends have open. The table lists a socket under root after its process has closed it.
const ESTABLISHED: &str = "01";

/// Returns the user of the process that has connected from `peer` to `local`; `None` if the tables have no such process.
/// Reads files of the kernel, and so blocks.
pub(crate) fn peer_user(peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let wanted = (canonical(peer), canonical(local));
    TABLES.iter().filter_map(|path| fs::read_to_string(path).ok()).find_map(|table| user_in(&table, wanted))
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Returns the user of the connected socket with these addresses: its own, and the peer's.
fn user_in(table: &str, wanted: (SocketAddr, SocketAddr)) -> Option<u32> {
    table.lines().skip(1).find_map(|row| {
        let mut words = row.split_ascii_whitespace().skip(1);
        let (own, other, state) = (address(words.next()?)?, address(words.next()?)?, words.next()?);
        if state != ESTABLISHED || (own, other) != wanted {
            return None;
        }
        // Three words come before the uid: queues, timer and retransmissions. Another timer comes before the inode.
        let uid = words.nth(3)?.parse().ok()?;
        let inode: u64 = words.nth(1)?.parse().ok()?;
        (inode != 0).then_some(uid)
    })
}

/// Returns an address of the table: words of 32 bits in the byte order of the machine, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(8 * at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(canonical(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?)))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    fn found(rows: &str, own: &str, other: &str) -> Option<u32> {
        let address = |text: &str| text.parse().expect("an address");
        user_in(&format!("{HEAD}{rows}"), (address(own), address(other)))
    }

    #[test]
    fn only_an_open_socket_with_both_addresses_counts() {
        let row = |state: &str, inode: u32| {
            format!(
                "   3: 0100007F:9C40 0100007F:2253 {state} 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1 \
                 0000000000000000 20 4 30 10 -1\n"
            )
        };
        let (own, other) = ("127.0.0.1:40000", "127.0.0.1:8787");
        assert_eq!(found(&row("01", 77), own, other), Some(1000));
        assert_eq!(found(&row("01", 77), other, own), None, "the daemon's own end is not the client");
        assert_eq!(found(&row("01", 77), "127.0.0.1:40001", other), None);
        for state in ["04", "05", "06", "08", "0A"] {
            assert_eq!(found(&row(state, 77), own, other), None, "{state}");
        }
        assert_eq!(found(&row("01", 0), own, other), None, "no process has it");
        for broken in ["", "x", "1: 0100007F:9C40", "1: 0100007F9C40 0100007F:2253 01 0:0 0:0 0 1000 0 7\n"] {
            assert_eq!(found(broken, own, other), None, "{broken}");
        }
    }

    #[test]
    fn a_connection_of_ours_has_our_user() {
        let uid = fs::metadata("/proc/self").expect("it is mounted").uid();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                assert!(address.starts_with('['), "a machine may have no IPv6");
                continue;
            };
            let local = listener.local_addr().expect("it is bound");
            let client = TcpStream::connect(local).expect("it listens");
            let (_accepted, peer) = listener.accept().expect("it connects");
            assert_eq!(peer_user(peer, local), Some(uid));
            drop(client);
            assert_eq!(peer_user(peer, local), None, "a closed socket is nobody's");
        }
    }
}
