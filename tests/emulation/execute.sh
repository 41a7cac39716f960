#!/usr/bin/env bash
# execute.sh PIPEWRIGHT OPTIONS... [-- OPTIONS...]: trains the small model three
# steps on the emulated GPU and on the CPU and holds one against the other.
# Options behind -- are for the GPU alone. A replay (--replay-rank) computes with
# made-up data: of it only that it ends well.
#
# Of the GPU's run: it ended well, its gradients are those of a sequential run,
# and its losses are the CPU's but for roundings of bf16.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 2
pipewright=$1
shift
options=() only=()
while [[ $# -gt 0 && $1 != -- ]]; do
  options+=("$1")
  shift
done
if [[ $# -gt 0 ]]; then
  shift
  only=("$@")
fi
# Tolerance of a loss of about 5: bf16 has 8 bits, and losses are means over
# tokens.
tolerance=0.002

run() { # DEVICE OPTIONS...
  local device=$1
  shift
  "$pipewright" execute --device "$device" --model "$here/tiny.json" --steps 3 \
    --train-seed 3 "${options[@]}" "$@" 2>&1
}

fail() {
  printf 'execute.sh: %s\n' "$*" >&2
  exit 1
}
losses() { awk '$1 == "loss" { $1 = ""; print; exit }' <<< "$1"; }

gpu=$(run cuda "${only[@]}") || {
  printf '%s\n' "$gpu"
  fail "the emulated GPU's run failed"
}
printf '%s\n' "$gpu"
grep -q '^executed .*Emulated GPU' <<< "$gpu" || fail "it ran somewhere else"
if [[ " ${only[*]} " == *" --replay-rank "* ]]; then exit 0; fi
grep -q '^gradients *agree' <<< "$gpu" || fail "gradients do not agree"
cpu=$(run cpu) || fail "the CPU's run failed: $cpu"
printf 'losses of the CPU: %s\n' "$(losses "$cpu")"
paste -d ' ' <(losses "$gpu" | xargs -n 1) <(losses "$cpu" | xargs -n 1) |
  awk -v tolerance="$tolerance" '
    { difference = $1 - $2; if (difference < 0) difference = -difference }
    NF != 2 || !(difference <= tolerance) { print "losses differ:", $0; bad = 1 }
    END { exit bad || NR != 3 }' || fail "losses are not the CPU's"
