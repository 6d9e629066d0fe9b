#!/usr/bin/env bash
# Unpacks archives that `build.sh` made into an empty root that has the C library, a shell and nothing else, and has the program work there:
# it answers, all that ships is active, and it stops. A program is copied there alone, as `cargo install` does: it is to carry what ships.
#
#   config/dist/check.sh ARCHIVE… | PROGRAM…
#
# Where this system lets nobody have a root of their own, the program runs from the folder with an emptied environment, and that is said.
set -euo pipefail
export LC_ALL=C

# What the rest of this runs in: a namespace of mounts.
inside() {
    local root="$1" program="$2" expected="$3"
    if [ "$root" = / ]; then
        run=(env -i "HOME=$4" "$program")
    else
        mount --rbind /proc "$root/proc"
        mount --rbind /dev "$root/dev"
        run=(env -i HOME=/home/tester /usr/sbin/chroot "$root" "$program")
        [ -x /usr/sbin/chroot ] || run[3]=chroot
    fi
    # Whatever fails below: nothing is left running.
    trap '"${run[@]}" stop >/dev/null 2>&1 || true' EXIT
    "${run[@]}" --version
    "${run[@]}" ask 'what can you do?' --keep | grep -q builder_agent || { echo 'check: no answer, or one without the builder' >&2; return 1; }
    "${run[@]}" wait ready --timeout 60
    local list active
    list="$("${run[@]}" ext list --json)"
    active="$(grep -c '"state": "active"' <<<"$list" || true)"
    if [ "$active" != "$expected" ]; then
        echo "check: $active of $expected extensions that ship are active:" >&2
        "${run[@]}" ext list >&2
        return 1
    fi
    "${run[@]}" stop
    "${run[@]}" wait stopped --timeout 60
    trap - EXIT
    echo "check: it answered, and $active extensions were active"
}
if [ "${1:-}" = --inside ]; then
    shift
    inside "$@"
    exit
fi

here="$(cd "$(dirname "$0")" && pwd)"
# Some systems give a namespace and refuse the mounts in it: both are tried.
apart=()
probe="$(mktemp -d)"
for way in 'unshare --mount' 'unshare --map-root-user --mount'; do
    if $way mount --rbind /proc "$probe" 2>/dev/null; then
        read -ra apart <<<"$way"
        break
    fi
done
rmdir "$probe"

# Fails where a file of licences does not name a crate whose code is beside it: one that cargo links, or one whose sources a panic would tell of.
licensed() {
    local prefix="$1" file="$1/share/doc/drupe/copyright" linked crate missing=0 count=0
    [ -s "$file" ] && [ -s "$prefix/share/doc/drupe/rust-library.html" ] || { echo 'check: there are no texts of licences' >&2; return 1; }
    linked="$({
        grep -aoh 'registry/src/[^/]*/[^/]*/src/' "$prefix/bin/drupe" "$prefix"/lib/drupe/*.so | cut -d/ -f4 | sed 's/-\([0-9][^-]*\.[0-9].*\)$/ \1/'
        ! command -v cargo >/dev/null || "$here/licenses.sh" --list | cut -d'|' -f1
    } | sort -u)"
    while read -r crate; do
        count=$((count + 1))
        grep -q "^$crate | .* | .* | [0-9]" "$file" || { echo "check: the licence of \`$crate\` is missing in \`copyright\`" >&2; missing=1; }
    done <<<"$linked"
    [ "$missing" = 0 ] || return 1
    echo "check: it has the licences of $count crates"
}

for archive in "$@"; do
    root="$(mktemp -d)"
    trap 'rm -rf "$root"' EXIT
    case "$archive" in
        *.tar.xz)
            mkdir "$root/opt"
            tar -xJf "$archive" --no-same-owner -C "$root/opt"
            prefix="$(echo "$root"/opt/*)"
            ;;
        *.deb)
            if command -v dpkg-deb >/dev/null; then
                dpkg-deb -x "$archive" "$root"
            else
                ar p "$archive" data.tar.xz | tar -xJ --no-same-owner -C "$root"
            fi
            prefix="$root/usr"
            ;;
        */drupe)
            prefix="$root/home/tester/.cargo"
            install -D "$archive" "$prefix/bin/drupe"
            ;;
        *) echo "check: \`$archive\` is neither a tarball nor a package nor a program" >&2; exit 2 ;;
    esac
    case "$archive" in */drupe) ;; *) licensed "$prefix" ;; esac
    # Of a program alone those that the checkout has.
    manifests="$prefix/lib/drupe/extensions"
    [ -d "$manifests" ] || manifests="$here/../../extensions"
    expected="$(find "$manifests" -mindepth 2 -maxdepth 2 -name manifest.yaml | wc -l)"
    # What is off until somebody wants it is to work as well, and no port is anybody else's.
    home="$root/home/tester"
    mkdir -p "$home/.local/share/drupe" "$root/proc" "$root/dev" "$root/tmp"
    chmod 700 "$home/.local/share/drupe"
    {
        echo 'extensions:'
        for manifest in "$manifests"/*/manifest.yaml; do
            name="$(basename "$(dirname "$manifest")")"
            if [ "$name" = http ]; then
                printf '  http:\n    enabled: true\n    address: "127.0.0.1:0"\n'
            elif [ "$name" = telegram ]; then
                # Nobody listens there: it is active, and tries again.
                printf '  telegram:\n    enabled: true\n    api: "http://127.0.0.1:9"\n'
            elif [ "$name" = slack ]; then
                printf '  slack:\n    enabled: true\n    api: "http://127.0.0.1:9"\n'
            elif [ "$name" = email ]; then
                printf '  email:\n    enabled: true\n    address: plum@example.net\n    authserv_id: mx.example.net\n'
                printf '    imap: imap+plain://127.0.0.1:9\n    smtp: smtp+plain://127.0.0.1:9\n'
            elif grep -q '^enabled: false' "$manifest"; then
                printf '  %s:\n    enabled: true\n' "$name"
            fi
        done
    } >"$home/.local/share/drupe/drupe.yaml"
    (umask 077 && printf '%s=1:of-nobody\n' TELEGRAM_BOT_TOKEN SLACK_APP_TOKEN SLACK_BOT_TOKEN EMAIL_PASSWORD >"$home/.local/share/drupe/.env")
    echo NTFY_TOPIC=topic-of-nobody >>"$home/.local/share/drupe/.env"
    echo "check: $archive"
    if [ ${#apart[@]} -gt 0 ]; then
        # Commands of agents are given to a shell.
        install -D "$(readlink -f /bin/sh)" "$root/bin/sh"
        libraries="$(find "$prefix" -name '*.so')"
        # shellcheck disable=SC2086  # paths of a folder of ours
        ldd "$prefix/bin/drupe" $libraries "$root/bin/sh" | sed -n 's/^[^/]*\(\/[^ ]*\) (.*/\1/p' | sort -u |
            while read -r library; do install -D "$library" "$root$library"; done
        "${apart[@]}" bash "$here/check.sh" --inside "$root" "${prefix#"$root"}/bin/drupe" "$expected"
    else
        echo 'check: this system gives nobody a root of their own; it runs beside everything else'
        (cd "$root" && bash "$here/check.sh" --inside / "$prefix/bin/drupe" "$expected" "$home")
    fi
    rm -rf "$root"
done
