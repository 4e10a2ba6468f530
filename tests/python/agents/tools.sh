#!/bin/bash
# What agents use every day, behind the seccomp profile and without a network. One line for each that works.
# shellcheck disable=SC2016 # their variables, not ours
set -euo pipefail
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@localhost GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@localhost

works() { # NAME EXPECTED COMMAND…
    local name=$1 expected=$2 said
    shift 2
    said=$("$@" 2>&1) || said="exit $?: $said"
    if [[ $said == "$expected" ]]; then echo "$name"; else echo "$name: $said"; fi
}

cd /workspace
works node 'worker 42' node -e '
    const { Worker } = require("worker_threads");
    const { execFileSync } = require("child_process");
    execFileSync("true");
    new Worker("require(`worker_threads`).parentPort.postMessage(42)", { eval: true }).on("message", (m) => console.log("worker", m));'
works 'node fetch' ok node -e 'fetch(process.env.OPENAI_API_BASE + "/health").then((a) => a.json()).then((a) => console.log(a.status))'
works python '[0, 1, 4]' python3 -c '
import asyncio, concurrent.futures, multiprocessing, sqlite3, ssl, subprocess, tempfile, threading
def square(x): return x * x
with multiprocessing.get_context("fork").Pool(2) as pool: print(pool.map(square, range(3)))
with concurrent.futures.ThreadPoolExecutor() as threads: assert list(threads.map(square, range(3))) == [0, 1, 4]
async def run(): return await (await asyncio.create_subprocess_exec("true")).wait()
assert asyncio.run(run()) == 0
sqlite3.connect("/tmp/database").execute("create table t (x)")
ssl.create_default_context()'
works getaddrinfo '127.0.0.1 8080' python3 -c '
import socket
print(*socket.getaddrinfo("localhost", 8080, socket.AF_INET, socket.SOCK_STREAM)[0][4])'
works git 1 bash -c 'git init -q code && cd code && echo x >f && git add f && git commit -qm one && git clone -q . ../copy &&
    git -C ../copy gc -q && git rev-list --count HEAD'
works curl ok bash -c 'curl -sS "$OPENAI_API_BASE/health" | jq -r .status'
works 'curl by socket' ok bash -c 'curl -sS --unix-socket "$LLM_PROXY_SOCKET" http://localhost/health | jq -r .status'
works socat hello bash -c 'socat -u EXEC:"echo hello" STDOUT'
works bash '3 ok' bash -c 'exec 2>/dev/null; wc -w < <(echo a b c) | tr -d "\n"; cat <<<" ok"; kill -0 $$; sleep 0.01 & wait'
works perl 6 perl -e 'use List::Util "sum"; print sum(1..3)'
works tar f bash -c 'tar -C code -cz f | tar -tz'
works flock got bash -c 'flock /tmp/lock echo got'
works mkfifo through bash -c 'mkfifo /tmp/pipe && { echo through >/tmp/pipe & cat /tmp/pipe; }'
works limits 256 bash -c 'ulimit -u 256 2>/dev/null; ulimit -n 256; ulimit -n'
works nice 5 bash -c 'nice -n 5 nice'
works timeout 'exit 124: ' timeout 0.05 sleep 5
works setpriv 1001 setpriv --no-new-privs id -u
