#!/usr/bin/env bash
# Runs tests as they would run on other machines: with fewer instruction sets,
# one core, small pages, another language and time zone, another user, a home
# that cannot be written, temporary files elsewhere, a checkout that cannot be
# written. What this machine cannot be is skipped with the reason:
#   isa       loops and oneDNN with plain code, AVX2, AVX-512 without bf16
#   bf16      products in bf16, as with AMX
#   cores     one core
#   pages     no large pages
#   locale    German, a comma in decimals (package locales)
#   zone      another time zone
#   home      no home, or one that cannot be written
#   user      a user other than root
#   folder    temporary files in a folder with an odd name
#   readonly  a checkout that cannot be written
# kernels/cpu/choice.h has the variables of the first two.
# Usage: tests/hosts.sh [-a] [TESTS [NAME ...]]
#   TESTS  build/ci/tests/pipewright_tests unless given
#   NAME   isa bf16 cores pages locale zone home user folder readonly; all of
#          them unless given
#   -a     all tests for each, not only the areas that could differ by it
# Example: tests/hosts.sh build/ci/tests/pipewright_tests isa user
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
names=(isa bf16 cores pages locale zone home user folder readonly)
usage() {
  sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "${BASH_SOURCE[0]}"
}

whole=
case ${1:-} in
  -a) whole='~[mpi]~[nodes]~[.]' && shift ;;
  -h | --help | help) usage && exit ;;
esac
# shellcheck disable=SC2317  # the functions are called by their names
tests=$(realpath "${1:-$here/../build/ci/tests/pipewright_tests}")
shift $(($# < 1 ? $# : 1))
[[ -x $tests ]] || {
  echo "hosts.sh: no $tests; allowed: a built pipewright_tests" >&2
  exit 2
}
chosen=("$@")
[[ $# -gt 0 ]] || chosen=("${names[@]}")

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch"
failed=0

skip() { printf '%-10s skipped: %s\n' "$1" "$2"; }

# run NAME WHAT AREAS COMMAND...: the tests behind COMMAND, for example env.
run() {
  local name=$1 what=$2 areas=${whole:-$3} log
  shift 3
  log=$scratch/$name.log
  local begin=$SECONDS
  if (cd "$scratch" && "$@" "$tests" "$areas") > "$log" 2>&1; then
    printf '%-10s passed in %d s: %s; %s\n' "$name" $((SECONDS - begin)) \
      "$what" "$(tail -n 2 "$log" | head -n 1)"
  else
    printf '%-10s FAILED: %s\n' "$name" "$what"
    tail -n 60 "$log"
    failed=1
  fi
}

# Does the processor have all of these flags?
has() {
  local flag
  for flag in "$@"; do
    grep -qw -m 1 "$flag" /proc/cpuinfo || return 1
  done
}

# oneDNN's own dispatch and ours (kernels/cpu/choice.h), from little to all.
isa() {
  local areas='[kernels],[calibrate],[execute]~[mpi]~[nodes]'
  run isa "plain loops, oneDNN with SSE4.1" "$areas" env \
    PIPEWRIGHT_CPU_LOOPS=portable ONEDNN_MAX_CPU_ISA=SSE41 \
    PIPEWRIGHT_CPU_BF16=off
  if has avx2 fma; then
    run isa AVX2 "$areas" env PIPEWRIGHT_CPU_LOOPS=avx2 \
      ONEDNN_MAX_CPU_ISA=AVX2 PIPEWRIGHT_CPU_BF16=off
  else
    skip isa "no AVX2"
  fi
  if has avx512f avx512bw avx512dq avx512vl; then
    run isa "AVX-512 without bf16" "$areas" env PIPEWRIGHT_CPU_LOOPS=avx512 \
      ONEDNN_MAX_CPU_ISA=AVX512_CORE PIPEWRIGHT_CPU_BF16=off
  else
    skip isa "no AVX-512"
  fi
  run isa "all that the processor has" "$areas" env
}

# As on a processor that multiplies bf16 fast (AMX), by whatever oneDNN has.
bf16() {
  if has avx512f avx512bw avx512dq avx512vl; then
    run bf16 "products in bf16" '[kernels],[calibrate],[execute]~[mpi]~[nodes]' \
      env PIPEWRIGHT_CPU_BF16=on
  else
    skip bf16 "no AVX-512, without which oneDNN has no bf16"
  fi
}

cores() {
  command -v taskset > /dev/null || { skip cores "no taskset"; return; }
  run cores "one core" '[kernels],[calibrate],[execute]~[mpi]~[nodes]' \
    taskset -c 0
}

# prctl(PR_SET_THP_DISABLE): no large pages for the process and its children.
pages() {
  local number
  case $(uname -m) in
    x86_64) number=157 ;;
    aarch64) number=167 ;;
    *) skip pages "prctl's number is not known here" && return ;;
  esac
  # shellcheck disable=SC2016
  run pages "no large pages" '[kernels],[calibrate],[execute]~[mpi]~[nodes]' \
    perl -e 'syscall(shift, 41, 1, 0, 0, 0) == 0 or die; exec @ARGV' "$number"
}

locale() {
  command -v localedef > /dev/null && [[ -d /usr/share/i18n/locales ]] || {
    skip locale "no localedef or no sources of locales (package locales)"
    return
  }
  mkdir -p "$scratch/locales"
  localedef -i de_DE -f UTF-8 "$scratch/locales/de_DE.UTF-8" || return
  run locale "German, a comma in decimals" \
    '[report],[config],[cost],[cli],[schedule],[trace],[compare],[base]' env \
    LOCPATH="$scratch/locales" LC_ALL=de_DE.UTF-8 LANG=de_DE.UTF-8
}

zone() {
  run zone "14 hours ahead of UTC" '[report],[cost],[calibrate],[compare]' \
    env TZ=Pacific/Kiritimati
}

home() {
  local areas='[cli],[config],[base],[execute]~[mpi]~[nodes]'
  run home "no home" "$areas" env -u HOME
  run home "a home that cannot be written" "$areas" env HOME=/proc
}

user() {
  if [[ $(id -u) -ne 0 ]]; then
    skip user "needs root to become somebody else; this is $(id -un) anyway"
    return
  fi
  run user "nobody" '[base],[cli],[config],[calibrate],[execute]~[mpi]~[nodes]' \
    setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent
}

# A name with what a careless shell or URL would trip over.
folder() {
  mkdir -p "$scratch/temporäre dateien & mehr"
  run folder "temporary files in a folder with an odd name" \
    '[base],[cli],[config],[compare],[execute]~[mpi]~[nodes]' env \
    TMPDIR="$scratch/temporäre dateien & mehr"
}

readonly_checkout() {
  local root
  root=$(realpath "$here/..")
  unshare -m true 2> /dev/null || {
    skip readonly "unshare -m is not allowed"
    return
  }
  # shellcheck disable=SC2016
  run readonly "a checkout that cannot be written" \
    '[base],[cli],[config],[report],[schedule],[layering]' unshare -m sh -c \
    'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"' \
    "$root"
}

for name in "${chosen[@]}"; do
  case $name in
    isa | bf16 | cores | pages | locale | zone | home | user | folder) "$name" ;;
    readonly) readonly_checkout ;;
    *)
      echo "hosts.sh: unknown '$name'; allowed: ${names[*]}" >&2
      exit 2
      ;;
  esac
done
exit "$failed"
