#!/usr/bin/env bash
# Makes what people install: packages of Debian, an archive for people without root
# and an archive of the sources.
set -euo pipefail

usage() {
  cat << 'END'
Usage: packaging/make.sh BUILD OUT [debs|archive|source]

BUILD is a build folder with everything built, OUT a folder for the files.
Without a third word all three are made.
END
}

fail() {
  printf 'make.sh: %s\n' "$*" >&2
  exit 1
}

# Packages of Debian, one for each component that is built.
debs() {
  (cd "$build" && cpack -G DEB -B "$out" > "$out/cpack.log") ||
    fail "cpack failed: $out/cpack.log"
  rm -rf "$out/_CPack_Packages" "$out/cpack.log"
}

# Libraries that a program or a module needs, without those of glibc, which only
# the machine itself can have. MPI and CUDA are also the machine's.
libraries_of() { # FILE...
  local listed
  listed=$(ldd "$@")
  ! grep 'not found' <<< "$listed" || fail "a library is missing (above)"
  awk '$2 == "=>" {print $1, $3}' <<< "$listed" | sort -u |
    grep -vE '^(lib(c|m|dl|rt|pthread|resolv|util)\.so|ld-linux)'
}

# The newest version of glibc that a file in a folder asks for.
glibc_of() { # FOLDER
  find "$1" -type f \( -name '*.so*' -o -path '*/bin/*' \) \
    -exec objdump -T {} + | grep -o 'GLIBC_[0-9.]*[0-9]' | sort -uV | tail -n 1 |
    cut -d _ -f 2
}

archive() {
  local stage=$work/stage component name path package glibc
  for component in pipewright simgrid mpi cuda; do
    cmake --install "$build" --prefix "$stage" --strip \
      --component $component > /dev/null
  done
  local private=$stage/lib/pipewright licences=$stage/share/doc/pipewright/licences
  mkdir -p "$licences"
  local own=("$stage/bin/pipewright")
  for name in onednn simgrid; do
    [[ ! -f $private/libpipewright_$name.so ]] ||
      own+=("$private/libpipewright_$name.so")
  done
  libraries_of "${own[@]}" > "$work/libraries"
  while read -r name path; do
    cp -L "$path" "$private/$name"
    # Packages name /usr/lib, the linker often /lib, which is the same folder.
    path=$(readlink -f "$path")
    package=$(dpkg -S "$path" 2> /dev/null || dpkg -S "${path#/usr}") ||
      fail "no package of Debian has $path: its licence is not known"
    package=${package%%:*}
    cp -L "/usr/share/doc/$package/copyright" "$licences/$package"
  done < "$work/libraries"
  glibc=$(glibc_of "$stage")
  name=pipewright-$version-$(uname -s)-$(uname -m)-glibc$glibc
  cat > "$stage/INSTALL" << END
Pipewright $version. Needs Linux on $(uname -m) with glibc $glibc or newer
(ldd --version), and nothing else: bin/pipewright runs from any folder and takes
its libraries from lib/pipewright. MPI and CUDA are those of the machine.
Licences of the libraries are in share/doc/pipewright/licences.
END
  mv "$stage" "$work/$name"
  tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner \
    -czf "$out/${name,,}.tar.gz" "$name"
}

# The sources of the last commit, which build without git.
source_archive() {
  git -C "$sources" archive --format=tar.gz \
    --prefix="pipewright-$version/" -o "$out/pipewright-$version.tar.gz" HEAD
}

[[ $# -ge 2 ]] || {
  usage >&2
  exit 2
}
sources=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "$1" && pwd)
[[ -x $build/pipewright ]] || fail "$build has no program: build it first"
mkdir -p "$2"
out=$(cd "$2" && pwd)
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case ${3:-all} in
  debs | archive) "$3" ;;
  source) source_archive ;;
  all)
    debs
    archive
    source_archive
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac
ls -s --block-size=KiB "$out"
