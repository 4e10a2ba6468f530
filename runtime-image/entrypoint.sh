#!/bin/bash
# Bridges 127.0.0.1:LLM_PROXY_PORT to the sidecar's socket, then becomes the command.
#
#   OPENAI_API_BASE set     the socket must come within 30 s, else exit 1
#   the socket is there     bridge
#   neither                 no bridge
#   no command              a login shell
set -euo pipefail

# As process 1 the command could not be killed from inside; with --init there is an init already.
[[ $$ != 1 ]] || exec tini -- "$0" "$@"

socket=${LLM_PROXY_SOCKET:-/llm-sock/llm.sock}
port=${LLM_PROXY_PORT:-8080}
patience=30 # seconds, for the socket and for the bridge

fail() {
    echo "sluice: $*" >&2
    exit 1
}

# Waits a millisecond without starting a process, which the command would get as a child: nobody sends to this UDP socket.
nap() {
    [[ -n ${idle:-} ]] || exec {idle}<>/dev/udp/127.0.0.1/9
    read -r -t 0.001 -u "$idle" || true
}

accepts() { { : <>"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null; }

# Runs apart: its own session, so that no signal meant for the command's group reaches it, and a child of the init, so
# that the command has only children that it has started. If socat ends, so does the command, by a signal that it cannot
# answer with exit 0. Only builtins are used, because the process limit may prevent a fork.
# -lm: faults of one connection are reported by its client. forever: a failed fork only affects that connection.
# shellcheck disable=SC2016 # its own variables, not ours
bridge='
    listen=TCP-LISTEN:$2,bind=127.0.0.1,reuseaddr,fork,backlog=128,max-children=128,nodelay,forever,interval=0.05
    socat -lm -t 600 -b 65536 "$listen" "UNIX-CONNECT:$1"
    ended=$?
    trap "" PIPE
    echo "sluice: the bridge to the model ended (socat exit $ended); this run is over" >&2
    kill -KILL "$3"
'

if [[ -n ${OPENAI_API_BASE:-} || -S $socket ]]; then
    [[ $port =~ ^[1-9][0-9]{0,4}$ && $port -le 65535 ]] || fail "LLM_PROXY_PORT is not a port: $port"
    # Refuses characters that socat would read as syntax.
    [[ $socket =~ ^/[A-Za-z0-9._/+@=-]+$ ]] || fail "LLM_PROXY_SOCKET is not a plain absolute path: $socket"

    deadline=$((${EPOCHREALTIME/[.,]/} + patience * 1000000)) # microseconds
    until [[ -S $socket ]]; do
        ((${EPOCHREALTIME/[.,]/} < deadline)) || fail "OPENAI_API_BASE is set, but there is no socket at $socket after $patience s"
        nap
    done
    setsid --fork sh -c "$bridge" sh "$socket" "$port" "$$" </dev/null >/dev/null
    deadline=$((${EPOCHREALTIME/[.,]/} + patience * 1000000))
    until accepts; do
        ((${EPOCHREALTIME/[.,]/} < deadline)) || fail "the bridge does not accept on 127.0.0.1:$port after $patience s"
        nap
    done
    [[ -z ${idle:-} ]] || exec {idle}>&-
fi

(($# > 0)) || set -- bash -l
exec -- "$@"
