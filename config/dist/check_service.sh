#!/usr/bin/env bash
# Has the services that `drupe service install` writes work under a systemd of their own, in namespaces and a root folder that are gone
# afterwards: they answer, come back after a kill and when the journal does not write, are backed up, replaced, restored and taken away; as one of
# the machine and as one of a user. Says how long each step took.
#
#   config/dist/check_service.sh ARCHIVE.tar.xz
#
# Needs root, systemd, dbus and python3. Where one is missing, or the system lets nobody do so, that is said and nothing is checked.
set -euo pipefail
export LC_ALL=C

# As the first process of a namespace of processes: lays a root folder out and becomes systemd.
if [ "${1:-}" = --inside ]; then
    root="$2"
    mount --make-rprivate /
    mount -t tmpfs -o mode=755 tmpfs "$root"
    cd "$root"
    mkdir -p dev 'etc/systemd/system/user@.service.d' home/tester opt/drupe proc root run sys tmp usr var/lib var/log
    chmod 1777 tmp
    chown 1000:1000 home/tester
    mount --rbind /usr usr
    for folder in bin sbin lib lib32 lib64; do
        if [ -L "/$folder" ]; then cp -a "/$folder" "$folder"; elif [ -d "/$folder" ]; then mkdir "$folder" && mount --rbind "/$folder" "$folder"; fi
    done
    # The names that units of systemd and D-Bus ask for, and two of ours.
    printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' 'messagebus:x:100:100::/nonexistent:/bin/false' \
        'drupe:x:7878:7878::/var/lib/drupe:/bin/false' 'tester:x:1000:1000::/home/tester:/bin/sh' >etc/passwd
    printf '%s\n' 'root:x:0:' 'messagebus:x:100:' 'systemd-journal:x:101:' 'drupe:x:7878:' 'tester:x:1000:' >etc/group
    # Without PAM, which would want a configuration; it only tells where a user's sockets are.
    printf '%s\n' '[Service]' PAMName= Environment=XDG_RUNTIME_DIR=/run/user/%i >etc/systemd/system/user@.service.d/here.conf
    echo 00000000000000000000000000000001 >etc/machine-id
    ln -s /lib/systemd/system/multi-user.target etc/systemd/system/default.target
    # Nothing of this check waits for a network.
    ln -s /dev/null etc/systemd/system/systemd-networkd-wait-online.service
    mount -t proc proc proc
    mount --rbind /sys sys
    mount --rbind /dev dev
    mount -t tmpfs -o mode=755 tmpfs run
    cp "$3" opt/drupe.tar.xz
    exec chroot "$root" /usr/bin/env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system \
        --unit=multi-user.target --log-target=journal --show-status=0
fi

skip() { echo "check: the services are not checked: $1" >&2; exit 0; }
fail() {
    echo "check: $1" >&2
    inside journalctl --no-pager --lines 60 >&2 || true
    exit 1
}
archive="$(realpath "$1")"
[ "$(id -u)" = 0 ] || skip 'nobody but root can start a systemd'
for needed in /lib/systemd/systemd /usr/bin/dbus-daemon /usr/bin/unshare /usr/bin/nsenter /usr/bin/python3; do
    [ -x "$needed" ] || skip "there is no \`$needed\`"
done
root="$(mktemp -d)"
unshare --pid --mount --uts --ipc --cgroup --fork --kill-child "$0" --inside "$root" "$archive" </dev/null >"$root.log" 2>&1 &
outer=$!
trap 'kill -KILL "$outer" 2>/dev/null || true; wait "$outer" 2>/dev/null || true; rm -rf "$root" "$root.log"' EXIT

inside() { nsenter --target "$first" --mount --uts --ipc --pid --cgroup --root --wd "$@"; }
# Tries again until it succeeds, for a minute.
patiently() {
    for _ in $(seq 300); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.2
    done
    fail "this did not succeed within a minute: $*"
}
up() { case "$(inside systemctl is-system-running 2>/dev/null)" in running | degraded) ;; *) return 1 ;; esac }
first=''
for _ in $(seq 300); do
    first="$(pgrep -P "$outer" | head -1 || true)"
    [ -z "$first" ] || ! up || break
    first=''
    kill -0 "$outer" 2>/dev/null || break
    sleep 0.2
done
[ -n "$first" ] || skip "no systemd can begin here: $(tail -n 1 "$root.log")"

program=/opt/drupe/bin/drupe
machine() { inside "$program" --home /var/lib/drupe "$@"; }
user() {
    inside /usr/bin/env -i setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/home/tester XDG_RUNTIME_DIR=/run/user/1000 \
        PATH=/usr/bin:/bin "$@"
}
began="$(date +%s%3N)"
step() {
    local now
    now="$(date +%s%3N)"
    printf 'check: %6d ms  %s\n' "$((now - began))" "$1"
    began="$now"
}
unpack() { inside tar -xJf /opt/drupe.tar.xz --no-same-owner --strip-components 1 -C /opt/drupe; }
answers() { "$1" "${@:2}" ask --session main 'what can you do?' | grep -q builder_agent || fail 'there is no answer, or one without the builder'; }
answered() {
    machine session show main --json 2>/dev/null |
        python3 -c 'import json, sys; print(sum(turn["status"] == "success" for turn in json.load(sys.stdin)["turns"]))'
}
shown() { inside systemctl show drupe --value --property "$1"; }
comes_back() { [ "$(shown NRestarts)" = "$1" ] && machine wait ready --timeout 5; }

unpack
step 'the archive is unpacked'
machine service install --system --user-name drupe --now
patiently machine wait ready --timeout 5
step 'the service of the machine is installed and ready'
answers machine
step 'it answers'
[ "$(inside stat -c %U /var/lib/drupe)" = drupe ] || fail 'the home is not that of its user'

inside kill -KILL "$(shown MainPID)"
patiently comes_back 1
step 'it is back after a kill, five seconds of which systemd waits'
answers machine

backup="$(machine backup | head -n 1)"
step 'it is backed up'
inside rm -r /opt/drupe/lib /opt/drupe/bin
unpack
inside systemctl restart drupe
patiently machine wait ready --timeout 5
step 'the program is replaced and ready'
answers machine
[ "$(answered)" = 3 ] || fail "$(answered) of 3 answers are there"
inside systemctl stop drupe
machine restore "$backup"
inside systemctl start drupe
patiently machine wait ready --timeout 5
step 'the backup is restored and ready'
[ "$(answered)" = 2 ] || fail "$(answered) of the 2 answers of the backup are there"

# Sooner than a minute, so that nobody waits.
inside mkdir -p /etc/systemd/system/drupe.service.d
inside sh -c 'printf "[Service]\nWatchdogSec=6\n" >/etc/systemd/system/drupe.service.d/sooner.conf'
inside systemctl daemon-reload
inside systemctl restart drupe
patiently comes_back 0
before="$(shown MainPID)"
# Longer than the watchdog waits.
sleep 8
[ "$(shown MainPID)" = "$before" ] || fail 'a daemon whose journal writes was ended by the watchdog'
inside python3 -c '
import sqlite3, sys
held = sqlite3.connect("/var/lib/drupe/journal.db", isolation_level=None)
held.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()' < <(sleep 25) >/dev/null &
holder=$!
for _ in $(seq 200); do
    [ "$(shown MainPID)" = "$before" ] || break
    sleep 0.2
done
[ "$(shown MainPID)" != "$before" ] || fail 'a daemon whose journal does not write was not ended by the watchdog'
kill "$holder" 2>/dev/null || true
wait "$holder" 2>/dev/null || true
patiently machine wait ready --timeout 5
answers machine
[ "$(answered)" = 3 ] || fail "$(answered) of 3 answers are there"
step 'it was ended by the watchdog while its journal was held, for 25 seconds, and is back'

machine service remove --system
[ "$(inside systemctl is-active drupe || true)" = inactive ] || fail 'the service goes on after it was removed'
inside test -f /var/lib/drupe/journal.db || fail 'the home went with the service'
step 'it is removed'

inside systemctl start user@1000.service || fail 'no services of users can begin'
patiently user systemctl --user is-active default.target
user "$program" service install --now
patiently user "$program" wait ready --timeout 5
answers user "$program"
user "$program" service remove
user "$program" wait stopped --timeout 60
step 'as a service of a user it was installed, answered, and was removed'
