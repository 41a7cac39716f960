#!/usr/bin/env bash
# Tries what packaging/make.sh makes, as people get it: in roots that hold nothing
# but Debian.
set -euo pipefail

usage() {
  cat << 'END'
Usage: packaging/check.sh COMMAND BUILD

  moved  the archive's program runs from another folder with its own libraries
         (a few seconds, no root)
  roots  makes everything; installs the packages in a bare Debian 12 and removes
         them; runs the archive in a bare Debian 12 and 13 as a user (root,
         debootstrap, network)

ROOTS names a folder with roots bookworm and trixie that are copied, instead of
made by debootstrap. KEEP names a folder for what is made.
END
}

note() { printf '== [%d s] %s\n' "$SECONDS" "$*"; }
fail() {
  printf 'check.sh: %s\n' "$*" >&2
  exit 1
}

# What every installed program has to do. The times are given, so the answer is
# known: on one rank eight microbatches of 3 s without a hop.
smoke() { # COMMAND...
  local said
  said=$("$@" version) || fail "version: $said"
  [[ $said == "pipewright $version"$'\n'* ]] || fail "another version: $said"
  said=$("$@" simulate gpt-1.7b --system dgx-h100 --pp 2 --microbatches 4 \
    --engine simgrid 2>&1) || fail "the engine simgrid: $said"
  [[ $said == *'iteration time'* ]] || fail "no iteration time: $said"
  said=$("$@" simulate --schedule 1f1b --pp 1 --microbatches 8 --forward 1s \
    --backward 2s --json --engine simgrid 2> /dev/null)
  [[ $said =~ \"iteration_s\":\ *24\.0*[^0-9] ]] || fail "not 24 s: $said"
}

moved() {
  packaging/make.sh "$build" "$work" archive > /dev/null
  tar -C "$work" -xzf "$work"/pipewright-*.tar.gz
  local root glibc file owner
  root=$(echo "$work"/pipewright-*/)
  for file in bin/pipewright lib/pipewright/libpipewright_simgrid.so INSTALL \
    share/man/man1/pipewright.1 share/bash-completion/completions/pipewright \
    share/doc/pipewright/copyright share/doc/pipewright/docs/plan.md; do
    [[ -s $root/$file ]] || fail "the archive has no $file"
  done
  smoke env -i "$root/bin/pipewright"
  # All that the program has loaded with SimGrid is glibc's or the archive's.
  while read -r file; do
    owner=$(basename "$file")
    [[ $file == "$root"* || $file == "${root%/}/"* ||
      $owner =~ ^(lib(c|m|dl|rt|pthread)\.so|ld-linux) ]] ||
      fail "the archive's program takes $file"
  done < <(env -i LD_TRACE_LOADED_OBJECTS=1 "$root/bin/pipewright" |
    awk '$2 == "=>" {print $3}')
  glibc=$(sed -n 's/.*with glibc \([0-9.]*[0-9]\) .*/\1/p' "$root/INSTALL")
  [[ $glibc =~ ^2\.[0-9]+$ ]] || fail "INSTALL names no glibc"
  note "moved: runs with its own libraries, needs glibc $glibc"
}

# A root of a release of Debian in $work/SUITE.
fresh_root() { # SUITE
  if [[ -n ${ROOTS:-} && -d $ROOTS/$1 ]]; then
    cp -a "$ROOTS/$1" "$work/$1"
  else
    debootstrap --variant=minbase "$1" "$work/$1" > "$work/$1.log"
  fi
  mount -t proc proc "$work/$1/proc"
  mkdir "$work/$1/made"
  cp "$made"/* "$work/$1/made"
}

# Names of all files but those that apt and dpkg keep of their own.
files_of() { # ROOT
  (cd "$1" && find . -xdev -path ./proc -prune -o -path ./made -prune -o \
    -path ./var/lib/apt -prune -o -path ./var/lib/dpkg -prune -o \
    -path ./var/cache -prune -o -path ./var/log -prune -o -path ./tmp -prune -o \
    -print | sort)
}

install_and_remove() {
  local root=$work/bookworm packages
  local apt=(chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get -qq)
  note "bare Debian 12: installing the packages by apt"
  "${apt[@]}" update
  files_of "$root" > "$work/before"
  (cd "$made" && printf '/made/%s\n' *.deb) > "$work/debs"
  xargs -d '\n' -a "$work/debs" "${apt[@]}" install -y --no-install-recommends \
    > "$work/apt.log" 2>&1 ||
    fail "apt: $(tail -n 20 "$work/apt.log")"
  note "bare Debian 12: smoke test"
  smoke chroot "$root" pipewright
  chroot "$root" python3 -c '
import pipewright
report = pipewright.simulate(schedule="1f1b", pp=1, microbatches=8,
    forward="1s", backward="2s", engine="simgrid")
assert report["iteration_s"] == 24, report["iteration_s"]
print("python: iteration_s", report["iteration_s"])'
  note "bare Debian 12: removing them"
  mapfile -t packages < <(for deb in "$made"/*.deb; do
    dpkg-deb -f "$deb" Package
  done)
  "${apt[@]}" purge -y --autoremove "${packages[@]}" > "$work/apt.log" 2>&1 ||
    fail "apt: $(tail -n 20 "$work/apt.log")"
  files_of "$root" > "$work/after"
  diff "$work/before" "$work/after" > "$work/left" || true
  if grep -i pipewright "$work/left"; then fail "files are left (above)"; fi
  note "bare Debian 12: $(wc -l < "$work/left") lines of difference to before"
  cat "$work/left"
}

run_archive() { # SUITE
  local root=$work/$1
  tar -C "$root/opt" -xzf "$made"/pipewright-*glibc*.tar.gz
  smoke chroot --userspec=65534:65534 "$root" \
    /opt/"$(cd "$root/opt" && ls)"/bin/pipewright
  note "$1: the archive's program runs as a user"
}

roots() {
  made=${KEEP:-$work/made}
  packaging/make.sh "$build" "$made"
  # First the archive: nothing is installed then.
  fresh_root bookworm
  run_archive bookworm
  install_and_remove
  fresh_root trixie
  run_archive trixie
}

[[ $# -eq 2 && $1 =~ ^(moved|roots)$ ]] || {
  usage >&2
  exit 2
}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$(cd "$2" && pwd)
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
# In a mount namespace of its own, so that nothing stays mounted.
if [[ $1 == roots && -z ${PIPEWRIGHT_UNSHARED:-} ]]; then
  PIPEWRIGHT_UNSHARED=1 exec unshare -m "$0" "$@"
fi
work=$(mktemp -d)
clean_up() {
  umount "$work"/*/proc 2> /dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT
"$1"
