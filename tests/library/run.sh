#!/usr/bin/env bash
# Installs the library of a build, builds a project outside with find_package and
# runs it. The headers may name nothing but the standard library, Abseil and ours.
#
#   tests/library/run.sh BUILD PIPEWRIGHT
set -euo pipefail
here=$(dirname "$(realpath "$0")")
build=$(realpath "$1")
program=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  printf 'run.sh: %s\n' "$*" >&2
  exit 1
}

# foreign FILE: headers of others that a file reads, without those of Debian's
# compiler and C library.
foreign() {
  "${CXX:-c++}" -std=c++20 -I "$work/usr/include/pipewright" -M "$1" |
    grep -oE '/(nlohmann|google/protobuf|yaml-cpp|CLI|toml\+\+|simgrid)/|/(sqlite3|zlib)\.h' |
    sort -u || true
}

cmake --install "$build" --prefix "$work/usr" --component library > /dev/null
cp -r "$here" "$work/outside"
cmake -S "$work/outside" -B "$work/made" -DCMAKE_PREFIX_PATH="$work/usr" \
  > "$work/log" || fail "$(cat "$work/log")"
cmake --build "$work/made" > "$work/log" || fail "$(cat "$work/log")"
said=$("$work/made/outside") || fail "the project ends with $?"
[[ $said == "33 s, "* ]] || fail "not 33 s: $said"
# The same layout as the program's.
best() { sed -n '/^best/{n;p}'; }
wanted=$("$program" plan gpt2 --system dgx-h100 --nodes 1 --global-batch 64 \
  --no-confirm --fix schedule=1f1b --fix cp=1 --fix tp=1 2> /dev/null | best)
[[ -n $wanted && $(best <<< "$said") == "$wanted" ]] ||
  fail "another plan: $said, not $wanted"
found=$(foreign "$work/outside/main.cc")
[[ -z $found ]] || fail "its headers name $found"
# Planted: one that is not allowed is found.
printf '#include <nlohmann/json.hpp>\n' > "$work/planted.cc"
[[ -n $(foreign "$work/planted.cc") ]] || fail "a planted header is not found"
printf '%s\n' "$said" | sed -n 1p
