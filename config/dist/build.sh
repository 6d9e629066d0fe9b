#!/usr/bin/env bash
# Makes what is handed out: a tarball that runs from wherever it is unpacked, and a package for Debian and what is made of it.
# The same sources, toolchain and folder give the same bytes.
#
#   config/dist/build.sh [--profile dist] [--out target/dist] [--no-build]
#
# Needs cargo and rustc, GNU tar, gzip, xz, and readelf, strip and ar of binutils. `--no-build` takes what was built before.
set -euo pipefail
cd "$(dirname "$0")/../.."
umask 022
export LC_ALL=C

profile=dist out=target/dist build=yes
while [ $# -gt 0 ]; do
    case "$1" in
        --profile) profile="${2:?a profile is missing}"; shift 2 ;;
        --out) out="${2:?a folder is missing}"; shift 2 ;;
        --no-build) build=no; shift ;;
        *) echo "dist: there is no option \`$1\`" >&2; exit 2 ;;
    esac
done
for tool in readelf strip ar tar gzip xz; do
    command -v "$tool" >/dev/null || { echo "dist: \`$tool\` is not there; install binutils, tar, gzip and xz-utils" >&2; exit 1; }
done
# Times in archives are that of the last commit.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH="$(git log -1 --format=%ct 2>/dev/null)" \
        || { echo 'dist: set SOURCE_DATE_EPOCH, since there is no repository to take a time from' >&2; exit 1; }
fi
export SOURCE_DATE_EPOCH

if [ "$build" = yes ]; then
    cargo build --profile "$profile" --locked --bin drupe
    # Cargo optimizes a library for other languages across its crates only where it is no library for Rust at the same time.
    for manifest in extensions/*/manifest.yaml; do
        grep -q '^entrypoint:' "$manifest" || continue
        cargo rustc --profile "$profile" --locked --package "drupe-ext-$(basename "$(dirname "$manifest")")" --lib --crate-type cdylib
    done
fi
# Cargo calls the folder of the profile `dev` otherwise.
built="${CARGO_TARGET_DIR:-target}/${profile/#dev/debug}"
[ -x "$built/drupe" ] || { echo "dist: there is no \`$built/drupe\`; build it first" >&2; exit 1; }
version="$("$built/drupe" --version)"
version="${version#drupe }"
machine="$(uname -m)"
case "$machine" in
    x86_64) debian=amd64 ;;
    aarch64) debian=arm64 ;;
    *) debian="$machine" ;;
esac
name="drupe-$version-$machine-linux"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
root="$work/$name"

# What lies in a folder of a shipped extension and is read at run time: all but sources and further packages.
copy_extension() {
    local from="$1" to="$2" file
    (cd "$from" && find . -mindepth 1 \( -name src -o -name tests -o -name examples -o -name benches -o -name target -o -name '.*' \) -prune -o \
        -type d -exec test -e '{}/Cargo.toml' \; -prune -o -type f ! -name Cargo.toml -print) | sort |
        while read -r file; do install -D -m 644 "$from/$file" "$to/$file"; done
}

install -D -m 755 "$built/drupe" "$root/bin/drupe"
for manifest in extensions/*/manifest.yaml; do
    folder="$(dirname "$manifest")"
    copy_extension "$folder" "$root/lib/drupe/$folder"
    library="$(sed -n 's/^entrypoint: *//p' "$manifest")"
    [ -z "$library" ] || install -D -m 644 "$built/${library%.so}.so" "$root/lib/drupe/${library%.so}.so"
done
# Here and not by the profile: cargo leaves symbols in a package whose level of optimization the profile says apart (seen with 1.95).
strip --strip-all "$root/bin/drupe" "$root"/lib/drupe/*.so

drupe() { HOME="$work/nobody" XDG_CONFIG_HOME="$work/nobody" "$root/bin/drupe" "$@"; }
share="$root/share"
install -d "$share/bash-completion/completions" "$share/zsh/site-functions" "$share/fish/vendor_completions.d" "$share/man/man1"
drupe completions bash >"$share/bash-completion/completions/drupe"
drupe completions zsh >"$share/zsh/site-functions/_drupe"
drupe completions fish >"$share/fish/vendor_completions.d/drupe.fish"
drupe man | gzip -9n >"$share/man/man1/drupe.1.gz"
drupe --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z]*\)  .*/\1/p' | while read -r verb; do
    drupe man "$verb" | gzip -9n >"$share/man/man1/drupe-$verb.1.gz"
done
for file in README.md CHANGELOG.md LICENSE*; do
    [ ! -e "$file" ] || install -D -m 644 "$file" "$share/doc/drupe/$file"
done
# The licences of all that is in it want their texts along; the name is that of Debian.
config/dist/licenses.sh >"$share/doc/drupe/copyright"
library="$(rustc --print sysroot)/share/doc/rust/COPYRIGHT-library.html"
[ -f "$library" ] || { echo "dist: \`$library\` is not there, which says what is in the standard library: take a toolchain of rustup" >&2; exit 1; }
install -m 644 "$library" "$share/doc/drupe/rust-library.html"
# The unit that `drupe service install` writes, for the place of a package and the usual home of whoever starts it.
unit() {
    drupe service install --dry-run 2>/dev/null | sed -e '/^# Written by/d' -e 's|^ExecStart=.*|ExecStart=/usr/bin/drupe run|'
}
# Not in `share/drupe`: beside `~/.local/bin` that folder is a person's home.
unit >"$root/lib/drupe/drupe.service"
grep -q '^ExecStart=/usr/bin/drupe run$' "$root/lib/drupe/drupe.service"

# The libraries have much in common, which is found within a dictionary that holds all of them. Nobody keeps an archive of a build for tests.
level=-9e
[ "$profile" != dev ] || level=-0
# Names sorted, of nobody's account, with one time. By one thread: with several the bytes depend on how many there are.
pack() {
    tar --create --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" --clamp-mtime --owner=0 --group=0 --numeric-owner \
        --mode='u+rwX,go+rX,go-w' --directory="$1" "${@:2}" | xz "$level" --threads=1
}
mkdir -p "$out"
find "$work" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
pack "$work" "$name" >"$out/$name.tar.xz"

# What must be there at run time, from what the program and the libraries ask for.
depends() {
    local needed least
    needed="$(readelf -d "$root/bin/drupe" "$root"/lib/drupe/*.so | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u)"
    least() { readelf -V "$root/bin/drupe" "$root"/lib/drupe/*.so | grep -o "$1_[0-9.]*[0-9]" | sort -u -V | tail -1 | sed "s/$1_//"; }
    for library in $needed; do
        case "$library" in
            libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1 | ld-linux*) echo "libc6 (>= $(least GLIBC))" ;;
            libgcc_s.so.1) echo "libgcc-s1 (>= $(least GCC))" ;;
            *) echo "dist: no package is known for \`$library\`" >&2; return 1 ;;
        esac
    done | sort -u | paste -sd, | sed 's/,/, /g'
}
package="$work/package" control="$work/control"
mkdir -p "$package/usr" "$control"
cp -a "$root/bin" "$root/lib" "$root/share" "$package/usr/"
install -d "$package/usr/lib/systemd/user"
mv "$package/usr/lib/drupe/drupe.service" "$package/usr/lib/systemd/user/drupe.service"
mv "$package/usr/share/zsh/site-functions" "$package/usr/share/zsh/vendor-completions"
depends="$(depends)"
cat >"$control/control" <<CONTROL
Package: drupe
Version: $version
Architecture: $debian
Maintainer: ${DRUPE_MAINTAINER:-the drupe project <drupe@localhost>}
Installed-Size: $(du -sk --apparent-size "$package" | cut -f1)
Depends: $depends
Suggests: poppler-utils
Section: utils
Priority: optional
Description: assistant that stays up
 A daemon for one person or a small team: a supervisor, a small kernel, and
 extensions that hold everything the assistant can do. What was accepted is
 answered, also across crashes and restarts.
CONTROL
for script in postinst postrm; do
    cat >"$control/$script" <<'SCRIPT'
#!/bin/sh
set -e
# Managers of users' services read the unit; those that run now are told of it.
# Not by `deb-systemd-invoke`, which in Debian 12 knows no reload of users' managers.
if [ -d /run/systemd/system ] && command -v systemctl >/dev/null; then
    for user in $(systemctl --no-legend --quiet list-units 'user@*.service' | sed -n 's/.*user@\([0-9]*\)\.service.*/\1/p'); do
        systemctl --quiet --user --machine "$user@" daemon-reload || true
    done
fi
SCRIPT
    chmod 755 "$control/$script"
done
(cd "$package" && find usr -type f | sort | xargs -d '\n' md5sum) >"$control/md5sums"
chmod 644 "$control/control" "$control/md5sums"
find "$package" "$control" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
# By hand and not by `dpkg-deb`: so it comes out the same where that is not there.
printf '2.0\n' >"$work/debian-binary"
pack "$control" . >"$work/control.tar.xz"
pack "$package" . >"$work/data.tar.xz"
rm -f "$out/drupe_${version}_$debian.deb"
(cd "$work" && ar rcD package.deb debian-binary control.tar.xz data.tar.xz)
cp "$work/package.deb" "$out/drupe_${version}_$debian.deb"
chmod 644 "$out/$name.tar.xz" "$out/drupe_${version}_$debian.deb"

bytes() { stat -c %s "$@" | awk '{ all += $1 } END { print all }'; }
# Megabytes that each may have, and what it has. A build for tests is some three times as large; it is bounded so that growth is seen where no
# release is built. `docs/decisions/0058-installation.md` says what stands behind them.
case "$profile" in
    dev) bounds=(92 180 68 68) ;;
    *) bounds=(28 54 18 18) ;;
esac
sizes=("$(bytes "$root/bin/drupe")" "$(bytes "$root"/lib/drupe/*.so)" "$(bytes "$out/$name.tar.xz")" \
    "$(bytes "$out/drupe_${version}_$debian.deb")")
names=(program libraries "$out/$name.tar.xz" "$out/drupe_${version}_$debian.deb")
large=0
for at in 0 1 2 3; do
    printf '%s  %s.%s MB of %s\n' "${names[at]}" $((sizes[at] / 1000000)) $((sizes[at] / 100000 % 10)) "${bounds[at]}"
    [ "${sizes[at]}" -le $((bounds[at] * 1000000)) ] || large=1
done
[ "$large" = 0 ] || { echo 'dist: something is larger than it may be' >&2; exit 1; }
