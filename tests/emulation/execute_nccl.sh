#!/usr/bin/env bash
# execute_nccl.sh PIPEWRIGHT RANKS OPTIONS...: trains the small model three steps
# with a process and an emulated GPU for each rank, over NCCL, and on the CPU
# with threads, and holds one against the other as execute.sh does.
#
# OPTIONS hold --pp, and --dp where there are copies; RANKS is pp * dp.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 2
pipewright=$1
ranks=$2
shift 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
mkdir "$work/rooms"
export EMULATION_ROOMS=$work/rooms EMULATION_DEVICES=$ranks
common=(--model "$here/tiny.json" --steps 3 --train-seed 3 --clock real)
tolerance=0.002 # as in execute.sh

fail() {
  printf 'execute_nccl.sh: %s\n' "$*" >&2
  exit 1
}
losses() { awk '$1 == "loss" { $1 = ""; print; exit }' "$1"; }

pids=()
for ((rank = 0; rank < ranks; ++rank)); do
  # Seeds differ: each process does its streams in another order.
  EMULATION_SEED=$((${EMULATION_SEED:-0} + rank)) timeout 500 \
    "$pipewright" execute --device cuda --transport nccl --timeout 120 \
    --bootstrap "file:$work/job" --rank "$rank" --ranks "$ranks" \
    "${common[@]}" "$@" > "$work/$rank.log" 2>&1 &
  pids+=($!)
done
status=0
for rank in "${!pids[@]}"; do
  wait "${pids[rank]}" || {
    status=$?
    printf 'rank %s: exit %s\n' "$rank" "$status"
    tail -n 20 "$work/$rank.log"
  }
done
[[ $status -eq 0 ]] || fail "a rank failed"
cat "$work/0.log"
grep -q '^executed .*Emulated GPU' "$work/0.log" || fail "it ran somewhere else"
grep -q '^gradients *agree' "$work/0.log" || fail "gradients do not agree"
[[ -z $(ls "$work/rooms") ]] || fail "communicators are left: $(ls "$work/rooms")"
"$pipewright" execute --device cpu "${common[@]}" "$@" > "$work/cpu.log" 2>&1 ||
  fail "the CPU's run failed: $(cat "$work/cpu.log")"
printf 'losses of the CPU: %s\n' "$(losses "$work/cpu.log")"
paste -d ' ' <(losses "$work/0.log" | xargs -n 1) \
  <(losses "$work/cpu.log" | xargs -n 1) |
  awk -v tolerance="$tolerance" '
    { difference = $1 - $2; if (difference < 0) difference = -difference }
    NF != 2 || !(difference <= tolerance) { print "losses differ:", $0; bad = 1 }
    END { exit bad || NR != 3 }' || fail "losses are not the CPU's"
