#!/usr/bin/env bash
# Makes sure that a Docker Engine answers: deploy/docker.sh [start|stop|status]
#
#   start    a running engine is left alone; else one is installed (Debian, root) and started, and waited for
#   stop     ends the engine that `start` started, and no other
#   status   says what answers, and who started it; exit 1 if nothing answers
#
# The engine is the one that DOCKER_HOST names, else /var/run/docker.sock.
set -euo pipefail
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

local_socket=/var/run/docker.sock
host=${DOCKER_HOST:-unix://$local_socket}
lock=/run/sluice-docker.lock
state=/run/sluice-docker.state # "pid start-time boot-id", or "systemd"
log=/var/log/sluice-dockerd.log
install_log=/var/log/sluice-docker-install.log
policy=/usr/sbin/policy-rc.d
policy_mark='# deploy/docker.sh: no service starts while packages are installed'
start_seconds=60
stop_seconds=30

say() { echo "docker.sh: $*" >&2; }
fail() {
    say "$1"
    shift
    (($# == 0)) || printf '  %s\n' "$@" >&2
    exit 1
}

answers() { # prints the engine's version
    command -v docker >/dev/null && DOCKER_HOST=$host timeout 10 docker version --format '{{.Server.Version}}' 2>/dev/null
}

# A pid alone may belong to another process by now; a pid, its start time and the boot id name exactly one process.
identity() { # PID -> "pid start-time boot-id"; fails if there is no such process, or only its zombie
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # The second field is the name in parentheses, which may have blanks: the fields after it are counted.
    # shellcheck disable=SC2086 # words on purpose
    set -- "$1" ${stat##*) }
    [[ $2 != Z ]] && echo "$1 ${21} $(cat /proc/sys/kernel/random/boot_id)"
}

started_by_us() { # prints the pid of the engine that we started, if it lives
    local pid rest
    read -r pid rest 2>/dev/null <"$state" || return 1
    [[ $pid =~ ^[0-9]+$ && $(identity "$pid") == "$pid $rest" ]] && echo "$pid"
}

is_named() { # PID NAME
    [[ $1 =~ ^[0-9]+$ && $(cat "/proc/$1/comm" 2>/dev/null) == "$2" ]] && identity "$1" >/dev/null
}

listens() { # SOCKET: does a process accept on it? The kernel's table tells without a connection.
    local path=$1
    awk -v a="$path" -v b="/var$path" '$4 == "00010000" && ($8 == a || $8 == b) { found = 1 } END { exit !found }' /proc/net/unix
}

systemd_runs() { [[ -d /run/systemd/system ]]; }

# ---------------------------------------------------------------------------------------------------------------------

install_engine() {
    local packages=(docker.io iptables)
    if ! command -v apt-get >/dev/null || ! grep -qsE '^ID(_LIKE)?=.*\bdebian\b' /etc/os-release; then
        fail "no dockerd here, and this is not Debian" \
            "install Docker Engine 20.10 or newer for this system, start it, and run this again"
    fi

    export DEBIAN_FRONTEND=noninteractive
    local apt=(apt-get -y -q -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3)
    if [[ ! -e $policy ]]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" >"$policy"
        chmod 755 "$policy"
    fi
    say "installing ${packages[*]} with apt-get, once (log: $install_log) …"
    {
        dpkg --configure -a && # what an interrupted installation left
            "${apt[@]}" update
    } >"$install_log" 2>&1 || install_failed "apt-get update failed; is there a network?"
    # Debian 13 and later ship the client apart.
    if ! command -v docker >/dev/null && apt-cache show docker-cli >/dev/null 2>&1; then packages+=(docker-cli); fi
    "${apt[@]}" install --no-install-recommends "${packages[@]}" >>"$install_log" 2>&1 ||
        install_failed "apt-get install ${packages[*]} failed"
    remove_policy
    hash -r
    command -v dockerd >/dev/null || fail "dockerd is still missing after its installation" "try: apt-get install --reinstall docker.io"
}

install_failed() {
    tail -n 15 "$install_log" >&2
    fail "$1" "the lines above are the end of $install_log"
}

remove_policy() { # ours only, also one that a killed run left
    if grep -qsxF "$policy_mark" "$policy"; then rm -f "$policy"; fi
}

# A killed dockerd leaves files that stop the next one: it trusts a pid file whose pid belongs to another process (or a
# zombie) by now, and a containerd socket on which no process listens.
clear_leftovers() {
    local file pid
    for file in /run/docker.pid:dockerd /run/docker/containerd/containerd.pid:containerd; do
        pid=$(cat "${file%:*}" 2>/dev/null) || continue
        is_named "$pid" "${file#*:}" && continue
        say "removing the stale ${file%:*} (pid ${pid:-none})"
        rm -f "${file%:*}"
    done
    for file in /run/docker.sock /run/docker/containerd/containerd.sock /run/containerd/containerd.sock; do
        [[ -e $file ]] || continue
        if [[ -d $file ]]; then
            # A bind mount of a socket that was not there makes a directory.
            rmdir "$file" || fail "$file is a directory and not empty" "look into it, remove it, and run this again"
        elif ! listens "$file"; then
            say "removing the stale $file"
            rm -f "$file"
        fi
    done
}

spawn() {
    local args=() keep=() name
    [[ -e /etc/docker/daemon.json ]] || args+=(--storage-driver=overlay2)
    for name in HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy; do
        [[ -z ${!name:-} ]] || keep+=("$name=${!name}")
    done
    if [[ -e $log ]]; then mv -f "$log" "$log.1"; fi
    say "starting dockerd ${args[*]} (log: $log) …"
    # dockerd gets a session of its own, so that neither Ctrl-C nor a closing terminal reaches it; it holds no lock, and
    # gets nothing of our environment. It writes its identity down before it becomes dockerd, so that no interruption
    # can lose it.
    # shellcheck disable=SC2016 # its own variables, not ours
    setsid --fork env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "${keep[@]}" bash -c '
        cd /
        umask 022
        ulimit -n "$(ulimit -Hn)"
        stat=$(</proc/$$/stat)
        state=$1
        fields=(${stat##*) })
        echo "$$ ${fields[19]} $(</proc/sys/kernel/random/boot_id)" >"$state.new"
        mv -f "$state.new" "$state"
        exec "${@:2}"
    ' dockerd "$state" "$(command -v dockerd)" "${args[@]}" </dev/null >"$log" 2>&1 9>&-
}

wait_for_engine() { # until it answers, it ends, or the time is over
    local deadline=$((SECONDS + start_seconds)) seen=
    while ! answers >/dev/null; do
        if [[ -n $(started_by_us) ]]; then
            seen=yes
        elif [[ -n $seen ]] || ((SECONDS + start_seconds > deadline + 3)); then
            give_up "dockerd ended before it answered"
        fi
        ((SECONDS < deadline)) || give_up "dockerd did not answer within $start_seconds s"
        sleep 0.1
    done
}

give_up() {
    [[ ! -e $log ]] || tail -n 25 "$log" >&2
    local advice=("the lines above are the end of $log" "try again: deploy/docker.sh stop; deploy/docker.sh start")
    [[ -e /sys/fs/cgroup/cgroup.controllers || -d /sys/fs/cgroup/memory ]] ||
        advice+=("no control groups are mounted: apt-get install cgroupfs-mount && cgroupfs-mount")
    fail "$1" "${advice[@]}"
}

check_client() {
    local why
    why=$(DOCKER_HOST=$host timeout 10 docker version 2>&1 >/dev/null) || true
    case $why in
        *"permission denied"*)
            fail "an engine listens at $host, but you may not use it" "run as root, or: usermod -aG docker $(id -un), and log in again" ;;
        *"is too new"* | *"is too old"*)
            fail "the client $(command -v docker) cannot talk to this engine: $why" "set DOCKER_API_VERSION to the version that it names" ;;
    esac
}

start() {
    if answers >/dev/null; then return; fi
    check_client
    case $host in
        unix:///var/run/docker.sock | unix:///run/docker.sock) ;;
        *) fail "DOCKER_HOST=$host does not answer" "start that engine, or unset DOCKER_HOST to use one on this machine" ;;
    esac
    [[ $(id -u) == 0 ]] || fail "no Docker Engine answers at $host, and only root can start one" \
        "run as root: deploy/docker.sh start"

    take_lock
    if answers >/dev/null; then return; fi
    if ! command -v dockerd >/dev/null || ! command -v docker >/dev/null; then install_engine; fi
    remove_policy

    if systemd_runs; then
        say "systemctl start docker …"
        timeout "$start_seconds" systemctl start docker ||
            fail "systemctl start docker failed" "look at: journalctl -u docker -n 50"
        echo systemd >"$state"
    elif [[ -n $(started_by_us) ]]; then
        say "dockerd (pid $(started_by_us)) was started before and does not answer yet; waiting …"
    else
        local pid
        pid=$(cat /run/docker.pid 2>/dev/null) || pid=
        if is_named "$pid" dockerd; then
            fail "a dockerd runs (pid $pid) that this script did not start, and it does not answer at $host" \
                "look at its log; end it and run this again, or set DOCKER_HOST to where it listens"
        fi
        clear_leftovers
        spawn
    fi
    wait_for_engine
    say "Docker Engine $(answers) answers at $host"
}

stop() {
    [[ -e $state ]] || { say "no engine was started by this script; nothing to stop"; return; }
    [[ $(id -u) == 0 ]] || fail "only root can stop the engine" "run as root: deploy/docker.sh stop"
    take_lock
    if [[ $(cat "$state") == systemd ]]; then
        say "systemctl stop docker …"
        timeout "$stop_seconds" systemctl stop docker.socket docker || fail "systemctl stop docker failed" "look at: systemctl status docker"
    else
        local pid
        pid=$(started_by_us) || pid=
        if [[ -z $pid ]]; then
            say "the engine that this script started has ended already"
        else
            say "stopping dockerd (pid $pid) …"
            kill -TERM "$pid" 2>/dev/null || true
            local deadline=$((SECONDS + stop_seconds))
            while [[ -n $(started_by_us) ]]; do
                if ((SECONDS >= deadline)); then
                    say "it is still there after $stop_seconds s: killing it"
                    kill -KILL "$pid" 2>/dev/null || true
                    deadline=$((SECONDS + stop_seconds))
                fi
                sleep 0.1
            done
            say "stopped"
        fi
    fi
    rm -f "$state"
}

status() {
    local version
    if version=$(answers); then
        if [[ -n $(started_by_us) ]]; then
            echo "Docker Engine $version answers at $host; started by this script, pid $(started_by_us), log $log"
        else
            echo "Docker Engine $version answers at $host; not started by this script"
        fi
    else
        check_client
        echo "no Docker Engine answers at $host"
        return 1
    fi
}

take_lock() {
    exec 9>"$lock"
    if ! flock -n 9; then
        say "another deploy/docker.sh is at work; waiting for it …"
        flock -w 600 9 || fail "it holds $lock for 10 minutes now" "find it with: fuser $lock"
    fi
}

trap 'exit 130' INT
trap 'exit 143' TERM
case $#:${1:-start} in
    0:start | 1:start) start ;;
    1:stop) stop ;;
    1:status) status ;;
    1:-h | 1:--help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" ;;
    *)
        say "not understood: $*"
        echo 'usage: deploy/docker.sh [start|stop|status]' >&2
        exit 2
        ;;
esac
