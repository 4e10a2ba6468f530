//! TLS in front of a plain upstream, with a certificate authority of its own.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::{TempDir, Upstream};

/// The terminator's program. It ends with its stdin, so with the test.
const TERMINATOR: &str = r#"
import os, select, socket, ssl, sys, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
def carry(client):
    try:
        with context.wrap_socket(client, server_side=True) as tls, socket.create_connection(("127.0.0.1", int(sys.argv[3]))) as plain:
            while True:
                ready = [tls] if tls.pending() else select.select([tls, plain], [], [])[0]
                for one, other in ((tls, plain), (plain, tls)):
                    if one in ready:
                        data = one.recv(65536)
                        if not data:
                            return
                        other.sendall(data)
    except OSError:
        pass
def accept(server):
    while True:
        threading.Thread(target=carry, args=(server.accept()[0],), daemon=True).start()
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
threading.Thread(target=accept, args=(server,), daemon=True).start()
sys.stdin.read()
os._exit(0)
"#;

/// A TLS terminator, with a certificate that its own authority has signed.
#[derive(Debug)]
pub struct TlsTerminator {
    child: Child,
    port: u16,
    dir: TempDir,
}

impl TlsTerminator {
    /// Starts one in front of `upstream`. Its certificate has these names, such as `DNS:localhost`, and is valid for
    /// `days`; a negative number makes an expired one.
    ///
    /// # Panics
    /// When the machine has no `python3` or `openssl`.
    pub fn start(upstream: &Upstream, names: &str, days: &str) -> Self {
        let dir = TempDir::new();
        certify(dir.path(), names, days);
        let target = upstream.url().rsplit(':').next().expect("a URL with a port").to_owned();
        let mut child = Command::new("python3")
            .args(["-c", TERMINATOR])
            .args([dir.join("leaf.pem"), dir.join("leaf.rsa"), target.into()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is there");
        let mut line = String::new();
        let mut stdout = child.stdout.take().expect("stdout is piped");
        let mut byte = [0];
        while stdout.read(&mut byte).is_ok_and(|count| count == 1) && byte != *b"\n" {
            line.push(char::from(byte[0]));
        }
        let port = line.parse();
        Self { child, port: port.expect("the terminator prints its port"), dir }
    }

    /// The base URL under the name `host`.
    pub fn url(&self, host: &str) -> String {
        format!("https://{host}:{}", self.port)
    }

    /// Path of the authority's certificate.
    pub fn ca(&self) -> String {
        self.dir.join("ca.pem").display().to_string()
    }
}

impl Drop for TlsTerminator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn openssl(dir: &Path, args: &str) {
    let output = Command::new("openssl").args(args.split(' ')).current_dir(dir).output().expect("openssl is there");
    assert!(output.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes `ca.pem` and, signed by it, `leaf.pem` with its key `leaf.rsa`.
fn certify(dir: &Path, names: &str, days: &str) {
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(dir, &format!("req -x509 {curve} -keyout ca.rsa -out ca.pem -days 2 -subj /CN=test-ca"));
    openssl(dir, &format!("req {curve} -keyout leaf.rsa -out leaf.csr -subj /CN=leaf"));
    let extensions = format!("subjectAltName={names}\nbasicConstraints=CA:FALSE\n");
    fs::write(dir.join("ext"), extensions).expect("a test's directory takes files");
    let sign = "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.rsa -CAcreateserial -extfile ext -out leaf.pem";
    openssl(dir, &format!("{sign} -days {days}"));
}
