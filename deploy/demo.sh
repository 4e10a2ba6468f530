#!/usr/bin/env bash
# From a checkout to an agent's answer: deploy/demo.sh [up|clean]
#
#   up      installs what is missing, builds, starts a LiteLLM whose model needs no account, runs an agent, starts the
#           daemon, and runs the agent once more over its API
#   clean   undoes it: daemon and LiteLLM, the image, the engine if deploy/docker.sh started it, the files
#
# Each step first checks whether its work is done: a second run takes seconds, and an interrupted one continues.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

say() { echo "demo: $*" >&2; }
fail() {
    say "$1"
    shift
    (($# == 0)) || printf '  %s\n' "$@" >&2
    exit 1
}

case $(uname -sm) in
    'Linux x86_64' | 'Linux aarch64') ;;
    *) fail "sandboxes need Linux on x86_64 or aarch64, and this is $(uname -sm)" "run it on such a machine, or in a virtual one" ;;
esac

PATH=$PATH:${HOME:-/root}/.cargo/bin:/usr/local/sbin:/usr/sbin:/sbin
export DOCKER_HOST=${DOCKER_HOST:-unix:///var/run/docker.sock}
# Removes variables of a make that runs this script, which cargo would read, and settings that would override the demo's own.
unset MAKEFLAGS MFLAGS
for name in ${!SLUICE_@}; do [[ $name == SLUICE_DEBIAN_MIRROR ]] || unset "$name"; done

cache=.cache/demo
lock=.cache/demo.lock # beside it: `clean` removes the directory
config=$cache/sluice.toml
sluice=dist/sluice
key_file=$cache/key
litellm=$cache/litellm.state # "pid start-time boot-id digest" of the one that we started
litellm_log=$cache/litellm.log
daemon=$cache/serve.state # of the same form
daemon_log=$cache/serve.log
python=.cache/venv/bin/python
image="sluice-runtime:latest"
registry_base="node:24-bookworm-slim"
made_base="sluice-base:bookworm-node24"
export CARGO_TERM_PROGRESS_WHEN=never

# -- Steps: each one line, with the time it took; what they print goes to a log ----------------------------------------

declare -A pid began
live=
if [[ -t 1 && ${TERM:-dumb} != dumb ]]; then live=yes; fi

now() { echo "${EPOCHREALTIME/[.,]/}"; } # microseconds
seconds() { # since when
    local tenths=$((($(now) - $1) / 100000))
    echo "$((tenths / 10)).$((tenths % 10)) s"
}

# Starts a command in a process group of its own, which ends with this script. If this script is killed, the command
# goes on, and holds the lock unless it has one of its own: the next demo waits for it.
start() { # NAME COMMAND…
    local name=$1 log=$cache/$1.log
    shift
    : >"$log"
    began[$name]=$(now)
    set -m
    "$@" >>"$log" 2>&1 </dev/null &
    pid[$name]=$!
    set +m
}

# Runs a command without the lock, because it has a lock of its own, or leaves a process running.
unlocked() {
    exec 8>&-
    "$@"
}

show() { # NAME WHAT: where it stands, on a terminal
    local width line
    width=$(stty size 2>/dev/null </dev/tty | cut -d' ' -f2) || width=0
    ((width > 0)) || width=80
    line=$(tail -c 500 "$cache/$1.log" 2>/dev/null | tr '\r' '\n' | tr -cd '[:print:]\n' | sed '/^ *$/d' | tail -n 1) || line=
    line="  $2 … $(seconds "${began[$1]}")  $line"
    printf '\r\e[K%s' "${line:0:width-1}"
}

finish() { # NAME WHAT ADVICE: waits for it
    local code=0 naps=0
    [[ -n $live ]] || printf '  %s … ' "$2"
    while kill -0 "${pid[$1]}" 2>/dev/null; do
        [[ -z $live ]] || ((naps++ % 5)) || show "$1" "$2"
        sleep 0.1
    done
    wait "${pid[$1]}" || code=$?
    unset "pid[$1]"
    [[ -z $live ]] || printf '\r\e[K  %s … ' "$2"
    if ((code == 0)); then
        seconds "${began[$1]}"
        return
    fi
    echo "failed after $(seconds "${began[$1]}")"
    tail -n 25 "$cache/$1.log" | sed 's/^/    /' >&2
    fail "that was the end of $cache/$1.log" "$3" "then run this again: it goes on here"
}

step() { # NAME WHAT ADVICE COMMAND…
    start "$1" "${@:4}"
    finish "${@:1:3}"
}

end_steps() {
    local group
    for group in "${pid[@]}"; do kill -TERM -- "-$group" 2>/dev/null || true; done
}
trap end_steps EXIT
trap 'echo; exit 129' HUP
trap 'echo; exit 130' INT
trap 'echo; exit 143' TERM

take_lock() {
    mkdir -p .cache
    exec 8>"$lock"
    flock -n 8 && return
    say "another demo is at work here, or a step of one that was killed; waiting for it …"
    flock -w 1800 8 || fail "$lock is held for 30 minutes now" "find out by whom: fuser -v $lock"
}

# -- Services: processes that go on after this script ------------------------------------------------------------------

# A pid alone may belong to another process by now; a pid, its start time and the boot id name exactly one process.
identity() { # PID -> "pid start-time boot-id"; fails if there is no such process, or only its zombie
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # The second field is the name in parentheses, which may have blanks: the fields after it are counted.
    # shellcheck disable=SC2086 # words on purpose
    set -- "$1" ${stat##*) }
    [[ $2 != Z ]] && echo "$1 ${21} $(cat /proc/sys/kernel/random/boot_id)"
}

service_pid() { # STATE: of the one that we started, if it lives
    local id start boot
    read -r id start boot _ 2>/dev/null <"$1" || return 1
    [[ $id =~ ^[0-9]+$ && $(identity "$id") == "$id $start $boot" ]] && echo "$id"
}

service_is_current() { # STATE DIGEST: another configuration or another program needs a new start
    service_pid "$1" >/dev/null && [[ $(cut -d' ' -f4 "$1") == "$2" ]]
}

# Starts a service. It writes its identity down before it becomes the program, so that no interruption can lose it;
# until then it holds the lock. It has a session of its own, so that neither Ctrl-C nor a closing terminal reaches it.
start_service() { # STATE DIGEST LOG COMMAND…
    local state=$1 digest=$2 log=$3 deadline=$((SECONDS + 10))
    shift 3
    : >"$log"
    # shellcheck disable=SC2016 # its own variables, not ours
    setsid --fork bash -c '
        stat=$(</proc/$$/stat)
        fields=(${stat##*) })
        echo "$$ ${fields[19]} $(</proc/sys/kernel/random/boot_id) $2" >"$1.new"
        mv -f "$1.new" "$1"
        exec 8>&-
        exec "${@:3}"
    ' service "$state" "$digest" "$@" </dev/null >>"$log" 2>&1
    until service_pid "$state" >/dev/null || ((SECONDS >= deadline)); do sleep 0.05; done
}

await_service() { # STATE LOG NAME SECONDS ANSWERS
    local deadline=$((SECONDS + $4))
    until "$5"; do
        service_pid "$1" >/dev/null || service_failed "$2" "$3 ended before it answered"
        ((SECONDS < deadline)) || service_failed "$2" "$3 did not answer within $4 s"
        sleep 0.1
    done
}

service_failed() { # LOG WHAT
    tail -n 20 "$1"
    echo "$2; above is the end of $1"
    exit 1
}

stop_service() { # STATE
    local id deadline signal=TERM
    while id=$(service_pid "$1"); do
        kill "-$signal" -- "-$id" 2>/dev/null || true
        deadline=$((SECONDS + 12))
        while service_pid "$1" >/dev/null && ((SECONDS < deadline)); do sleep 0.1; done
        signal=KILL
    done
    rm -f "$1"
}

is_taken() { (: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; } # PORT

# -- LiteLLM ----------------------------------------------------------------------------------------------------------

litellm_port() { grep -om1 'Uvicorn running on http://127.0.0.1:[0-9]*' "$litellm_log" 2>/dev/null | grep -o '[0-9]*$'; }

litellm_digest() { cat deploy/litellm.yaml .cache/venv/.stamp "$key_file" | sha256sum | cut -d' ' -f1; }

litellm_answers() { # to our key, with our model
    local port
    port=$(litellm_port) && [[ -n $port ]] &&
        curl --silent --noproxy '*' --max-time 10 --header @- "http://127.0.0.1:$port/v1/models" \
            <<<"Authorization: Bearer $(<"$key_file")" | grep -q '"demo"'
}

start_litellm() {
    if [[ ! -s $key_file ]]; then
        (umask 077 && printf 'sk-demo-%s\n' "$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')" >"$key_file.new")
        mv "$key_file.new" "$key_file"
    fi
    if service_is_current "$litellm" "$(litellm_digest)" && litellm_answers; then return; fi
    stop_service "$litellm"

    local port=4000
    # Any other port will do.
    if is_taken "$port"; then port=0; fi
    # The key comes from its file: an argument could be read by every user.
    # shellcheck disable=SC2016 # its own variables, not ours
    start_service "$litellm" "$(litellm_digest)" "$litellm_log" \
        env -i PATH="$PATH" HOME="$root/$cache/home" LITELLM_LOCAL_MODEL_COST_MAP=True DO_NOT_TRACK=1 DISABLE_ADMIN_UI=True \
        bash -c 'export LITELLM_MASTER_KEY=$(<"$1"); exec "${@:2}"' litellm "$key_file" \
        "$python" -c 'import sys; from litellm import run_server; sys.exit(run_server())' \
        --config deploy/litellm.yaml --host 127.0.0.1 --port "$port" --telemetry False
    await_service "$litellm" "$litellm_log" LiteLLM 120 litellm_answers
}

# -- The daemon -------------------------------------------------------------------------------------------------------

admin_socket() { echo "$(run_dir)/admin.sock"; }

# Calls the API as root, over the socket that takes no token.
api() { # PATH CURL-OPTIONS…
    curl --silent --show-error --fail-with-body --noproxy '*' --unix-socket "$(admin_socket)" "${@:2}" "http://localhost/api/v1$1"
}

daemon_answers() { api /sandboxes --max-time 5 --output /dev/null 2>/dev/null; }

daemon_digest() { cat "$sluice" "$config" | sha256sum | cut -d' ' -f1; }

start_daemon() {
    if service_is_current "$daemon" "$(daemon_digest)" && daemon_answers; then return; fi
    stop_service "$daemon"
    start_service "$daemon" "$(daemon_digest)" "$daemon_log" "$root/$sluice" serve --config "$root/$config" --listen "$(listen_address)"
    await_service "$daemon" "$daemon_log" "sluice serve" 20 daemon_answers
}

listen_address() {
    if is_taken 8787; then echo 127.0.0.1:0; else echo 127.0.0.1:8787; fi
}

daemon_url() { grep -om1 'http://127.0.0.1:[0-9]*' "$daemon_log"; }

# Prints one line for each event, until the run ends.
show_stream() { # RUN
    api "/sandboxes/$1/stream?after=0" --no-buffer --max-time 120 | "$python" -c '
import json, sys

def dollars(cost):
    return "$" + cost["known"]["usd"] if "known" in cost else "cost unknown"

def tokens(usage):
    return "{input} tokens in, {output} out".format(**usage) if usage else "tokens unknown"

def story(kind, event):
    data = event.get("event_data", event)
    match kind:
        case "snapshot":
            return data["sandbox"]["state"]
        case "run.state_changed":
            return "{from} -> {to}".format(**data)
        case "llm.call_started":
            return "{method} {path}, model {model}".format(**data)
        case "llm.call":
            return "{}, {}, {}".format(data["result"], tokens(data["usage"]), dollars(data["cost"]))
        case "end":
            return "{state}, exit code {exit_code}".format(**data)
        case _:
            return ""

for line in sys.stdin:
    name, _, value = line.rstrip("\n").partition(": ")
    if name == "data":
        event = json.loads(value)
        kind = event.get("event_type", frame)
        print(f"  {kind:<18}  {story(kind, event)}", flush=True)
    elif name == "event":
        frame = value
'
}

# -- up ---------------------------------------------------------------------------------------------------------------

# Builds the programs of `make dist`, and not the quicker dev build, so that the times shown are those of an installation.
# Most of the build runs while other steps wait for the network.
build() { env -u CARGO_TARGET_DIR -u CARGO_BUILD_TARGET make --no-print-directory dist; }

build_image() {
    # A base that is pulled for the demo is removed with the rest.
    docker image inspect "$registry_base" >/dev/null 2>&1 || touch "$cache/base-was-not-here"
    runtime-image/build.sh
}

# The state directory is below /var/lib if the checkout's path is too long for a socket's path (107 bytes, of which a
# run takes 47).
state_dir() {
    local LC_ALL=C state=$root/$cache/state
    if ((${#state} > 60)); then state=/var/lib/sluice-demo-$(cksum <<<"$root" | cut -d' ' -f1); fi
    echo "$state"
}

# This path is short for the same reason. The directory is gone after the host's next start.
run_dir() { echo "/run/sluice-demo-$(cksum <<<"$root" | cut -d' ' -f1)"; }

quoted() { # as TOML has it
    local text=${1//\\/\\\\}
    echo "\"${text//\"/\\\"}\""
}

write_config() {
    cat >"$config.new" <<END
# Made by deploy/demo.sh.
upstream = "http://127.0.0.1:$(litellm_port)"
key_file = $(quoted "$root/$key_file")
state_dir = $(quoted "$(state_dir)")
docker_host = $(quoted "$DOCKER_HOST")

# For the daemon alone.
sandbox_enabled = true
run_dir = $(quoted "$(run_dir)")
END
    mv "$config.new" "$config"
}

write_agent() { # to try next: what an agent of one's own looks like
    mkdir -p "$cache/agent"
    cat >"$cache/agent/stream.py" <<'END'
"""Asks the model for a stream, with nothing but Python's own library, and prints it as it comes."""

import json
import os
import sys
import urllib.request

question = {
    "model": os.environ["SLUICE_MODEL"],
    "messages": [{"role": "user", "content": " ".join(sys.argv[1:]) or "Say hello."}],
    "stream": True,
}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps(question).encode(),
    {"content-type": "application/json"},
)
with urllib.request.urlopen(request) as answer:
    for line in answer:
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:])["choices"]:
                print(choice["delta"].get("content") or "", end="", flush=True)
print()
END
    # The sandbox's user reads it through a mount.
    chmod 755 "$cache/agent"
    chmod 644 "$cache/agent/stream.py"
}

show_audit() { # FILE
    "$python" - "$1" <<'END'
import json, sys

def tokens(usage):
    return "tokens unknown" if not usage else f"{usage['input']} tokens in, {usage['output']} out"

def dollars(line):
    return "cost unknown" if line["cost_usd"] is None else f"${line['cost_usd']}"

def story(line):
    match line["kind"]:
        case "open":
            return f"account {line['billing_account_id']} pays, calls go to {line['upstream']}"
        case "intent":
            stripped = ", ".join(line["stripped"]) or "nothing"
            return f"call {line['call']}: {line['method']} {line['path']}, model {line['model']}; held back: {stripped}"
        case "outcome":
            took = f"{line['timing_us']['total'] / 1000:.0f} ms"
            return f"call {line['call']}: {line['result']}, {tokens(line['usage'])}, {dollars(line)}, {took}"
        case "refused":
            return f"{line['method']} {line['path']}: {line['reason']}"
        case "close":
            return f"{line['calls']} call(s), {line['refused']} refused, {dollars(line)}"
        case _:
            return ""

for text in open(sys.argv[1], encoding="utf-8"):
    line = json.loads(text)
    print(f"  {line['seq']}  {line['ts'][11:23]}  {line['kind']:<8} {story(line)}")
END
}

newest() { # FILES
    local file newest=$1
    for file in "$@"; do if [[ $file -nt $newest ]]; then newest=$file; fi; done
    echo "$newest"
}

containers() { docker ps --all --quiet --filter "label=sluice.instance=$(cat "$(state_dir)/instance" 2>/dev/null)"; }

sidecars() { # pids of those whose socket is ours
    local process
    for process in /proc/[0-9]*; do
        if [[ $(readlink "$process/exe") == */sluice-proxy* ]] && grep -qsF "$(state_dir)/" "$process/cmdline"; then
            echo "${process#/proc/}"
        fi
    done
}

show_left() {
    local found
    found=$(containers | xargs)
    echo "  containers    ${found:-none}"
    found=$(sidecars | xargs)
    echo "  sidecars      ${found:-none}"
    found=$(find "$(state_dir)/runs" -mindepth 1 -maxdepth 1 -printf '%f ')
    echo "  directories   ${found:-none}"
    found=$(basename "$(newest "$(state_dir)"/audit/*.jsonl)" .jsonl)
    echo "  record        kept for two weeks: $sluice inspect ${found%.*} --config $config"
}

show_api() {
    local body='{"task": "Say hello.", "model": "demo"}' created run
    echo
    echo "\$ curl --unix-socket $(admin_socket) --json '$body' http://localhost/api/v1/sandboxes"
    created=$(api /sandboxes --json "$body") || fail "the daemon did not take the run: $created" "the end of $daemon_log says more"
    echo "$created"
    run=$("$python" -c 'import json, sys; print(json.load(sys.stdin)["sandbox_id"])' <<<"$created")
    echo
    echo "\$ curl --unix-socket $(admin_socket) --no-buffer 'http://localhost/api/v1/sandboxes/$run/stream?after=0'     # in short"
    show_stream "$run" || fail "the stream of $run ended early" "the end of $daemon_log says more"
    echo
    echo "\$ curl --unix-socket $(admin_socket) 'http://localhost/api/v1/sandboxes/$run/logs?stream=stdout'"
    api "/sandboxes/$run/logs?stream=stdout"
}

# Starts a run that goes on for ten minutes, and prints the address of its page.
show_console() {
    local run
    # shellcheck disable=SC2016 # variables of the sandbox
    local script='i=0; while [ $i -lt 60 ]; do i=$((i + 1)); echo "turn $i"
        curl -sS --json "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"turn $i\"}]}" "$OPENAI_BASE_URL/chat/completions" >answer.json
        sleep 10; done'
    run=$("$python" -c 'import json, sys; print(json.dumps({"argv": ["sh", "-c", sys.argv[1]], "model": "demo", "limits": {"timeout": "15m"}}))' "$script")
    run=$(api /sandboxes --json "$run" | "$python" -c 'import json, sys; print(json.load(sys.stdin)["sandbox_id"])') ||
        fail "the daemon did not take the run" "the end of $daemon_log says more"
    echo
    echo "The console, with a run that is at work for ten minutes:"
    echo "  $(daemon_url)/sandboxes/$run"
    echo "It asks for a login, which is valid for 60 seconds; \`$sluice open --print --config $config\` makes the next one:"
    "$sluice" open --print --config "$config"
}

up() {
    [[ $(id -u) == 0 ]] || fail "it installs packages, starts an engine and makes sandboxes, which takes root" \
        "sudo env PATH=\"\$PATH\" HOME=\"\$HOME\" make demo"
    command -v cargo >/dev/null || fail "there is no cargo here" "install Rust: https://rustup.rs"
    local since audit
    since=$(now)
    take_lock
    mkdir -p "$cache/home"
    chmod 700 "$cache"

    echo "From a checkout to an agent's answer. Logs: $cache/*.log"
    step packages "packages that are missing" "apt-get has to work; is there a network?" tests/setup/packages.sh
    start build unlocked build
    step engine "Docker Engine" "the lines above say what to do" unlocked deploy/docker.sh start
    step venv "LiteLLM, in .cache/venv" "pip has to reach an index; is there a network?" unlocked tests/setup/venv.sh
    step image "runtime image" "the lines above say what to do" unlocked build_image
    finish build "sluice and sluice-proxy, built meanwhile" \
        "rustup brings the compiler that rust-toolchain.toml names: https://rustup.rs; Debian's own is too old"
    step litellm-start "LiteLLM, answering" "deploy/demo.sh clean starts all over" start_litellm
    write_config
    write_agent
    step sweep "what killed runs left" "deploy/demo.sh clean starts all over" "$sluice" sweep --config "$config"

    echo
    echo "\$ $sluice preflight --config $config"
    "$sluice" preflight --config "$config" || fail "this machine is not ready" "the lines with FAIL say what to do"

    echo
    echo "\$ $sluice run --config $config --model demo 'Say hello.'"
    "$sluice" run --config "$config" --model demo 'Say hello.' || fail "the run failed with exit code $?" "the lines above say why"

    audit=$(newest "$(state_dir)"/audit/*.jsonl)
    echo
    echo "What was written down, each line before it happened, out of the sandbox's reach:"
    show_audit "$audit"
    echo
    echo "\$ $sluice audit verify --config $config $(basename "$audit" .jsonl)"
    "$sluice" audit verify --config "$config" "$(basename "$audit" .jsonl)" || fail "the log does not verify" "the line above says why"
    echo
    echo "What is left of the run, beside that file:"
    show_left
    echo
    echo "The same over HTTP: a daemon that queues runs, and reports what happens in them."
    step daemon "sluice serve, answering" "deploy/demo.sh clean starts all over" start_daemon
    show_api
    echo
    echo "$(seconds "$since") in all. The daemon goes on: $(daemon_url) (with a token), $(admin_socket) (as root)."
    echo "To try next, from $root:"
    cat <<END

  # an agent of your own, streaming
  $sluice run --config $config --model demo --repo $cache/agent -- python3 /workspace/repo/stream.py 'Say hello.'

  # all that is known of a run, as JSON
  $sluice run --config $config --model demo --json 'Say hello.'

  # a patch of what a program changes in a copy of a directory
  $sluice run --config $config --repo $cache/agent --patch $cache/out.diff -- sh -c 'echo "# reviewed" >> repo/stream.py'

  # a run of the daemon: its events as they come, then its output
  $sluice run -d --config $config --name mine --model demo 'Say hello.'
  $sluice events -f --config $config mine; $sluice logs --config $config mine

  # what its calls cost, and what its account may spend from now on
  $sluice receipts --config $config
  $sluice budget set default 5 --config $config

  # no way out but the model
  $sluice run --config $config --model demo -- sh -c 'curl -sS -m 3 https://example.com; curl -sS localhost:8080/v1/models; echo'

\`make demo-clean\` undoes all this.
END
    show_console
}

# -- clean ------------------------------------------------------------------------------------------------------------

engine_answers() { command -v docker >/dev/null && timeout 10 docker version >/dev/null 2>&1; }

# An engine that we started and that was killed has our images: start it once more.
revive_engine() { engine_answers || [[ ! -e /run/sluice-docker.state ]] || deploy/docker.sh start; }

sweep() {
    [[ -e $(state_dir)/instance ]] || return 0
    if [[ -x $sluice && -e $config ]]; then
        "$sluice" sweep --config "$config"
        "$sluice" sweep --config "$config" --daemon-runs
        [[ -z $(containers) ]] || { echo "a run is going on: container $(containers | xargs)"; return 1; }
    else
        # The program was removed after it was built, so the engine removes the containers.
        containers | xargs --no-run-if-empty docker rm --force
    fi
}

remove_images() {
    local name names=("$image" "$made_base")
    [[ ! -e $cache/base-was-not-here ]] || names+=("$registry_base")
    for name in "${names[@]}"; do
        docker image inspect "$name" >/dev/null 2>&1 || continue
        docker image rm "$name"
    done
}

stop_engine() {
    if engine_answers && [[ -n $(docker ps --quiet) ]]; then
        echo "other containers run in it; it goes on"
    else
        deploy/docker.sh stop
    fi
}

remove_files() {
    local state
    state=$(state_dir)
    [[ $state == "$root"/* ]] || rm -rf --one-file-system "$state"
    flock .cache/runtime-image.lock rm -rf --one-file-system .cache/runtime-image
    rm -rf --one-file-system "$cache" "$(run_dir)"
}

clean() {
    [[ $(id -u) == 0 ]] || fail "what root made only root can remove" "sudo make demo-clean"
    take_lock
    mkdir -p "$cache"
    step clean-daemon "stopping the daemon" "look at $daemon" stop_service "$daemon"
    step clean-engine "Docker Engine" "the lines above say what to do" unlocked revive_engine
    if engine_answers; then
        step clean-runs "removing what runs left" "let the run end, or end it with Ctrl-C" unlocked sweep
        step clean-images "removing the images" "remove the containers that use them: docker ps --all" unlocked remove_images
    else
        say "no Docker Engine answers at $DOCKER_HOST: if there are images in it, they stay"
    fi
    step clean-litellm "stopping LiteLLM" "look at $litellm" stop_service "$litellm"
    step clean-stop "stopping the engine, if deploy/docker.sh started it" "the lines above say what to do" unlocked stop_engine
    remove_files
    echo "Kept: packages that were installed, .cache/venv, dist and target; make distclean removes the last three."
}

case $#:${1:-up} in
    0:up | 1:up) up ;;
    1:clean) clean ;;
    1:-h | 1:--help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" ;;
    *)
        say "not understood: $*"
        echo 'usage: deploy/demo.sh [up|clean]' >&2
        exit 2
        ;;
esac
