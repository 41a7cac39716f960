#!/usr/bin/env bash
# Calibrates this machine's CPU, predicts a step of every schedule with what it
# has measured, runs the same schedules with real kernels, and says how far the
# two are apart. Begun again it goes on where it was ended.
# Usage: run.sh [PIPEWRIGHT [FOLDER [PP ...]]]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pipewright=${1:-$here/../../build/release/pipewright}
out=${2:-closed_loop}
shift $(($# < 2 ? $# : 2))
sizes=("$@")
[[ $# -gt 0 ]] || sizes=(4 8)
# A layer's pass of four sequences takes 5 ms and more; a rank has two layers.
sequences=4

mkdir -p "$out"
profile=$out/profile.txtpb
table=$out/measured.csv
[[ -s $profile ]] || "$pipewright" calibrate --device cpu --model gpt-tiny \
  --microbatch-sizes $sequences --sequences 128 --tp 1 -o "$profile"

run() { # SCHEDULE PP [OPTIONS]
  local schedule=$1 pp=$2
  shift 2
  echo "pp $pp $schedule $*" >&2
  # 1: gradients differ, and the row says so. 2: the schedule cannot take these
  # sizes; why is in the log.
  "$pipewright" execute --schedule "$schedule" --pp "$pp" \
    --microbatches $((2 * pp)) --model gpt-tiny \
    --set model.layers=$((2 * pp)) --microbatch-size $sequences \
    --profile "$profile" --p2p 0ms --interference off --steps 2 "$@" \
    --row "$table" -o /dev/null 2>> "$out/log.txt" || {
    local status=$?
    echo "  exit $status: $(tail -n 1 "$out/log.txt")" >&2
  }
}

names=$("$pipewright" list schedules --json |
  sed -n 's/^      "name": "\(.*\)",\?$/\1/p')
for pp in "${sizes[@]}"; do
  for name in $names; do run "$name" "$pp"; done
  # Layers that do not spread evenly: three more on the first rank, less behind.
  layers="4, 1, 2, 1"
  for ((rank = 4; rank < pp; rank += 2)); do layers+=", 3, 1"; done
  for name in 1f1b zb-h1 zb-h2; do
    run "$name" "$pp" --set "strategy.layers=[$layers]"
  done
done

"$pipewright" compare "$table" --summary --html "$out/results.html" \
  --svg "$out/results.svg" | tee "$out/summary.txt"
