#!/usr/bin/env bash
# calibrate_nccl.sh PIPEWRIGHT FOLDER DEVICES [MPIRUN]: calibrates transfers over
# NCCL between that many emulated GPUs, a thread each or a process each, and
# reads the profile back. Who meets whom is real; nothing is computed, and times
# are the emulator's.
set -euo pipefail
pipewright=$1
devices=$3
profile=$2/calibrate-nccl-$devices${4:+-processes}.txtpb
launch=()
if [[ $# -gt 3 ]]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  launch=("$4" --oversubscribe -n "$devices")
fi
rooms=$(mktemp -d)
trap 'rm -rf "$rooms"' EXIT
rm -f "$profile"
EMULATION_CLOCK_ONLY=1 EMULATION_ROOMS=$rooms EMULATION_DEVICES=$devices \
  "${launch[@]}" "$pipewright" calibrate --device cuda --quick --budget 0s \
  --type bf16 --model gpt-tiny -o "$profile"
fail() {
  printf 'calibrate_nccl.sh: %s\n' "$*" >&2
  exit 1
}
grep -q 'Emulated GPU' "$profile" || fail "it ran somewhere else"
grep -q 'NCCL 2\.' "$profile" || fail "no version of NCCL"
shown=$("$pipewright" calibrate show "$profile")
[[ -z $(ls "$rooms") ]] || fail "communicators are left: $(ls "$rooms")"
# A pair, and collectives of pairs and of all.
for ranks in 2 "$devices"; do
  for kind in all_reduce all_gather reduce_scatter; do
    grep -Eq "$kind .*$ranks ranks nccl.* [1-9][0-9.]* [mu]s" <<< "$shown" ||
      fail "no time of $kind between $ranks in
$shown"
  done
done
grep -Eq 'send_recv .*2 ranks nccl.* [1-9][0-9.]* [mu]s' <<< "$shown" ||
  fail "no time of send_recv in
$shown"

# A system of it, and a step on that system.
system=${profile%.txtpb}.textproto
"$pipewright" calibrate system "$profile" --system dgx-h100 -o "$system"
"$pipewright" simulate --system "$system" --schedule 1f1b --pp 2 \
  --microbatches 2 --forward 1ms --backward 2ms --hop-bytes 64MiB --json |
  grep -q '"iteration_s"' || fail "no step on $system"
grep -q 'fit of latency + bytes / bandwidth to 3 times of send_recv in a node' \
  "$system" || fail "no link of send_recv in $system"
