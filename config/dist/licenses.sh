#!/usr/bin/env bash
# Writes what goes along with a program that is handed on: which crates are linked into it and into the libraries that ship, under which
# licence each is and where its source is, and the texts of these licences, each once. All of it follows from `Cargo.lock` and the sources
# that cargo has fetched.
#
#   config/dist/licenses.sh            the whole, to standard output
#   config/dist/licenses.sh --list     the crates alone, a line each: NAME VERSION|LICENCE
#
# Needs cargo, and what a build has fetched. A crate that ships no text has that of `config/dist/licenses/ID.txt`, with its authors.
set -euo pipefail
cd "$(dirname "$0")/../.."
export LC_ALL=C

packages=(--package drupe)
for manifest in extensions/*/manifest.yaml; do
    grep -q '^entrypoint:' "$manifest" || continue
    packages+=(--package "drupe-ext-$(basename "$(dirname "$manifest")")")
done
# What builds them, such as macros, is not linked. A package of ours has a path behind its version.
linked() {
    cargo tree --quiet --locked --offline "${packages[@]}" --edges normal,no-proc-macro --prefix none --format '{p}|{l}' |
        sed -e 's/ (\*)$//' -e '/^$/d' -e '/ (\//d' -e 's/ v/ /' | sort -u
}
if [ "${1:-}" = --list ]; then
    linked
    exit
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
declare -A numbers users
count=0
# Gives a text its number. Texts that differ in nothing but their breaks of lines are one.
take() {
    local file="$1" crate="$2" hash
    hash="$(tr -s '[:space:]' ' ' <"$file" | sha256sum)"
    if [ -z "${numbers[$hash]:-}" ]; then
        count=$((count + 1))
        numbers[$hash]=$count
        tr -d '\r' <"$file" | sed 's/[[:space:]]*$//' >"$work/$count"
    fi
    number="${numbers[$hash]}"
    case "${users[$number]:-}," in
        *" $crate,"*) ;;
        *) users[$number]="${users[$number]:+${users[$number]},} $crate" ;;
    esac
}
# Takes a standard text of a licence; fails where there is none.
standard() {
    local id="$1" crate="$2" holders="$3"
    [ -f "config/dist/licenses/$id.txt" ] || return 1
    { [ -z "$holders" ] || printf 'Copyright (c) %s\n\n' "$holders"; cat "config/dist/licenses/$id.txt"; } >"$work/standard"
    take "$work/standard" "$crate"
}
# Takes all texts that a crate ships, or those of its licence.
texts_of() {
    local crate="$1" licence="$2" folder file holders id missing=() found=()
    folder="$(grep -m1 -F -x -f <(printf '%s\n' "${registries[@]/%//${crate/ /-}}") "$work/folders" || true)"
    [ -n "$folder" ] || { echo "licenses: the source of \`$crate\` is not there: build first" >&2; return 1; }
    while read -r file; do
        take "$file" "$crate"
        found+=("$number")
    done < <(find "$folder" -type f \( -iname '*licen[sc]e*' -o -iname 'copying*' -o -iname 'notice*' -o -iname 'copyright*' \) \
        ! -name '*.rs' ! -name '*.yml' ! -name '*.toml' ! -name '*.sh' | sort)
    if [ ${#found[@]} = 0 ]; then
        holders="$(sed -n '/^authors = \[/,/\]/p' "$folder/Cargo.toml" | { grep -o '"[^"]*"' || true; } | tr -d '"' | paste -sd, | sed 's/,/, /g')"
        for id in $(tr -c 'A-Za-z0-9.-' '\n' <<<"$licence" | grep -vxE 'OR|AND|WITH'); do
            # Only the first two are given by people; the others say by themselves whose they are.
            case "$id" in
                MIT | Zlib) standard "$id" "$crate" "${holders:-the authors of ${crate% *}}" || missing+=("$id") ;;
                *) standard "$id" "$crate" '' || missing+=("$id") ;;
            esac
            [ ${#missing[@]} = 0 ] && found+=("$number")
        done
        # One of several that may be chosen is enough.
        if [ ${#found[@]} = 0 ] || { [ ${#missing[@]} != 0 ] && [[ $licence = *AND* || $licence = *WITH* ]]; }; then
            echo "licenses: \`$crate\` ships no text of \`$licence\`: add \`config/dist/licenses/${missing[0]:-ID}.txt\`" >&2
            return 1
        fi
    fi
    numbers_of="$(printf '%s\n' "${found[@]}" | sort -nu | paste -sd, | sed 's/,/, /g')"
}

ours="$(sed -n '/^\[workspace.package\]/,/^$/s/^license = "\(.*\)"/\1/p' Cargo.toml)"
standard MIT drupe 'the drupe project'
standard Apache-2.0 drupe ''
registries=("${CARGO_HOME:-$HOME/.cargo}"/registry/src/*)
find "${registries[@]}" -mindepth 1 -maxdepth 1 -type d | sort >"$work/folders"
linked >"$work/linked"
[ -s "$work/linked" ] || { echo 'licenses: cargo names no crate that is linked' >&2; exit 1; }
while IFS='|' read -r crate licence; do
    texts_of "$crate" "$licence"
    printf '%s | %s | https://crates.io/crates/%s | %s\n' "$crate" "$licence" "${crate/ //}" "$numbers_of" >>"$work/table"
done <"$work/linked"

cat <<HEAD
drupe is licensed $ours: texts 1 and 2.

The program and the libraries of its extensions hold code of these crates, whose sources are where the third column says:
name and version | licence | source | texts

$(cat "$work/table")

They also hold the standard library of Rust, whose licences are in \`rust-library.html\` beside this file, and SQLite, which is in the public
domain (https://www.sqlite.org/copyright.html).
HEAD
for number in $(seq "$count"); do
    printf '\n%s\nText %s, of%s\n\n' "$(printf -- '-%.0s' {1..120})" "$number" "${users[$number]}"
    cat "$work/$number"
done
