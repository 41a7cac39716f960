#!/usr/bin/env bash
# Installs what Pipewright needs, builds it, and shows or tests it. Every step
# is skipped when it is already done, so a second call is quick.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() {
  cat << 'END'
Usage: ./setup.sh COMMAND

  demo      install packages, build, reproduce a published table and draw the
            schedule of one of its settings
  test      install packages, build everything with warnings as errors, run
            all tests and the benchmarks once; what can corrupt memory also
            with sanitizers
  deps      only install the packages to build
  build     deps, then build build/release/pipewright
  sanitize  deps, then build and test all with address and undefined-behaviour
            sanitizers
  packages  PART: only print the Debian packages of build, gpu or browser

Installing needs root or sudo; without them the missing packages are named.
END
}

# Debian packages: which parts need one, its name, and the program that may stand
# in for it. build: to build and test all; gpu: what calibrate/gpu_debs.sh takes to
# a machine without network, so with the libraries behind headers; browser: one test.
PACKAGES=(
  'build cmake:cmake' 'build ninja-build:ninja' 'build g++:g++'
  'build pkg-config:pkg-config'
  'build,gpu protobuf-compiler:protoc' 'gpu libprotoc32'
  'build,gpu libprotobuf-dev' 'gpu libprotobuf32'
  'build,gpu libabsl-dev' 'gpu libabsl20220623'
  'build,gpu libyaml-cpp-dev' 'gpu libyaml-cpp0.7'
  'build,gpu libsqlite3-dev' 'gpu libsqlite3-0'
  'build,gpu libcli11-dev' 'build,gpu nlohmann-json3-dev'
  'build,gpu libtomlplusplus-dev' 'build,gpu zlib1g-dev'
  'build libsimgrid-dev' 'build libdnnl-dev' 'build libopenmpi-dev'
  'build openmpi-bin' 'build catch2' 'build libbenchmark-dev'
  'build python3-dev' 'build pybind11-dev' 'build python3-numpy'
  'build python3-pip' 'build python3-setuptools' 'build python3-venv'
  'build python3-wheel'
  'browser chromium:chromium' 'browser nodejs:node' 'browser npm:npm'
)

# Prints NAME[:PROGRAM] of those that a part needs.
packages_of() { # PART
  local row
  for row in "${PACKAGES[@]}"; do
    if [[ ",${row%% *}," == *",$1,"* ]]; then printf '%s\n' "${row#* }"; fi
  done
}

note() { printf '== [%d s] %s\n' "$SECONDS" "$*"; }
fail() {
  printf 'setup.sh: %s\n' "$*" >&2
  exit 1
}

# Prints those packages of a part that are not there.
missing() { # PART
  local entry package program status
  for entry in $(packages_of "$1"); do
    package=${entry%%:*}
    program=${entry#"$package"}
    program=${program#:}
    if [[ -n $program ]] && command -v "$program" > /dev/null; then continue; fi
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null) ||
      true
    [[ $status == installed ]] || printf '%s\n' "$package"
  done
}

as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  else
    sudo "$@"
  fi
}

# Waits for another apt (a fresh machine often updates itself) and tries a
# shaky network again.
apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q \
    -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300 "$@" < /dev/null
}

# Installs what is missing of a part's packages; false when it cannot.
install_missing() { # PART
  local packages
  mapfile -t packages < <(missing "$1")
  [[ ${#packages[@]} -gt 0 ]] || return 0
  if ! command -v apt-get > /dev/null; then
    printf 'This is not a Debian system. What Debian 12 calls:\n  %s\n' \
      "${packages[*]}"
    return 1
  fi
  if [[ $(id -u) -ne 0 ]] && ! command -v sudo > /dev/null; then
    printf 'Neither root nor sudo. Somebody who is root has to run:\n'
    printf '  apt-get install --no-install-recommends %s\n' "${packages[*]}"
    return 1
  fi
  # shellcheck source=/dev/null
  (. /etc/os-release && [[ "${ID-} ${VERSION_ID-}" == "debian 12" ]]) ||
    note "this is not Debian 12: other versions of libraries may not fit"
  note "installing ${packages[*]}"
  apt_get update || note "package lists not updated; going on with the old ones"
  apt_get install -y --no-install-recommends "${packages[@]}"
}

deps() {
  # npm does not look at the system's certificates by itself; a proxy's are only
  # there.
  local certificates=/etc/ssl/certs/ca-certificates.crt
  if [[ -z ${NODE_EXTRA_CA_CERTS:-} && -f $certificates ]]; then
    export NODE_EXTRA_CA_CERTS=$certificates
  fi
  if ! install_missing build; then
    # CMake looks for each library, wherever it comes from, and names the
    # first that it does not find.
    local program
    for program in cmake ninja g++ pkg-config protoc; do
      command -v "$program" > /dev/null || fail "$program is missing (see above)"
    done
    note "not installed; trying with what is there"
  fi
}

# As many compilers as there are processors, and 1 GiB of memory for each.
parallel_jobs() {
  local processors memory_gib
  processors=$(nproc)
  memory_gib=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  [[ $memory_gib -ge 1 ]] || memory_gib=1
  echo $((memory_gib < processors ? memory_gib : processors))
}

# One more than processors: a third of the tests' time is waiting.
test_jobs() { echo $(($(parallel_jobs) + 1)); }

# compile PRESET TARGET...
compile() {
  local preset=$1
  shift
  [[ -f build/$preset/build.ninja ]] || cmake --preset "$preset"
  note "building build/$preset"
  cmake --build --preset "$preset" --parallel "$(parallel_jobs)" --target "$@"
}

build() {
  deps
  compile release pipewright
}

demo() {
  deps
  compile demo pipewright
  [[ -f build/demo/libpipewright_mpi.so ]] ||
    note "built without MPI: not for mpirun (Debian: libopenmpi-dev openmpi-bin)"
  local pipewright=build/demo/pipewright pictures=build/demo
  local simulate=(
    "$pipewright" simulate --schedule zb-h2 --pp 8 --microbatches 24
    --forward 18.522ms --backward-input 18.086ms --backward-weight 9.337ms
    --p2p 0.601ms --engine simgrid
    --svg "$pictures/zb_h2.svg" --html "$pictures/zb_h2.html"
  )
  note "$pipewright reproduce zero-bubble-table5"
  "$pipewright" reproduce zero-bubble-table5
  note "${simulate[*]}"
  "${simulate[@]}"
  note "picture of the schedule: $PWD/$pictures/zb_h2.svg"
  note "report to open in a browser: $PWD/$pictures/zb_h2.html"
}

# What the browser test needs; CI must have it.
browser() {
  local installed=tests/browser/node_modules/.package-lock.json
  if ! install_missing browser; then
    [[ ${CI:-} != true ]] || fail "CI needs Chromium and npm"
    note "the browser test will be skipped: no Chromium or no npm"
    return
  fi
  [[ ! $installed -nt tests/browser/package-lock.json ]] || return 0
  # playwright-core drives Debian's Chromium and downloads no browser.
  if ! (cd tests/browser &&
    npm ci --ignore-scripts --no-audit --no-fund --fetch-retries 5); then
    [[ ${CI:-} != true ]] || fail "npm ci in tests/browser failed"
    note "the browser test will be skipped: npm ci in tests/browser failed"
  fi
}

sanitize() {
  deps
  # Listing the tests while building runs the binary. Leaks are not looked for:
  # registered rows live to the end and are reported after SimGrid has run.
  export ASAN_OPTIONS=detect_leaks=0:malloc_context_size=8
  compile dev all
  note "tests with sanitizers"
  ctest --preset dev --parallel "$(test_jobs)"
}

test_all() {
  deps
  browser
  compile ci all
  note "tests"
  ctest --preset ci --parallel "$(test_jobs)"
}

case ${1:-} in
  demo | deps | build | sanitize) "$1" ;;
  test) test_all ;;
  packages)
    names=$(packages_of "${2:-}")
    [[ -n $names ]] || fail "packages ${2:-}: of build, gpu or browser"
    printf '%s\n' "${names}" | cut -d : -f 1
    ;;
  help | -h | --help) usage ;;
  *)
    usage >&2
    exit 2
    ;;
esac
