#!/usr/bin/env bash
# Calibrates this machine's CPU, predicts a step of every schedule with what it
# has measured, runs the same schedules with real kernels, and says how far the
# two are apart. Does so in ROUNDS rounds (5), some minutes apart, for a machine
# is not as fast at all times: of each schedule the median counts. Begun again it
# goes on where it was ended.
# Usage: [ROUNDS=N] run.sh [PIPEWRIGHT [FOLDER [PP ...]]]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pipewright=${1:-$here/../../build/release/pipewright}
out=${2:-closed_loop}
shift $(($# < 2 ? $# : 2))
sizes=("$@")
[[ $# -gt 0 ]] || sizes=(4 8)

rounds=${ROUNDS:-5}

mkdir -p "$out"
table=$out/measured.csv

# One rank computes at a time: each stands for a device of its own, and two that
# share caches and memory slow each other down by some per cent. Two layers a
# rank, 8 pp sequences a step, as many microbatches as that gives.
run() { # SCHEDULE PP SEQUENCES [OPTIONS]
  local schedule=$1 pp=$2 sequences=$3
  shift 3
  # The sequential run takes as long again, and its bits are always the same.
  [[ $round -eq 1 ]] || set -- "$@" --no-check
  echo "round $round pp $pp $schedule $*" >&2
  # 1: gradients differ, and the row says so. 2: the schedule cannot take these
  # sizes; why is in the log.
  "$pipewright" execute --schedule "$schedule" --pp "$pp" \
    --microbatches $((8 * pp / sequences)) --microbatch-size "$sequences" \
    --model gpt-tiny --set model.layers=$((2 * pp)) --profile "$profile" \
    --p2p 0ms --interference off --steps 2 --one-at-a-time "$@" \
    --row "$table" --row-runs "$round" -o /dev/null \
    2>> "$out/log.txt" || {
    local status=$?
    echo "  exit $status: $(tail -n 1 "$out/log.txt")" >&2
  }
}

names=$("$pipewright" list schedules --json |
  sed -n 's/^      "name": "\(.*\)",\?$/\1/p')
for ((round = 1; round <= rounds; ++round)); do
  profile=$out/profile_$round.txtpb
  # Four sequences: 5 ms and more of each pass of a layer; and the slices below.
  [[ -s $profile ]] || "$pipewright" calibrate --device cpu --model gpt-tiny \
    --microbatch-sizes 2,4 --sequences 128 --tp 1 --sliced 4:2,8:4,16:8 \
    -o "$profile"
  for pp in "${sizes[@]}"; do
    for name in $names; do
      case $name in
        # A slice is a part of a pass and shall take 5 ms, too.
        seq1f1b | terapipe) run "$name" "$pp" 4 --slices 2 ;;
        slimpipe) run "$name" "$pp" $((2 * pp)) --slices "$pp" ;;
        *) run "$name" "$pp" 4 ;;
      esac
    done
    # Layers that do not spread evenly.
    layers=4,1,2,1
    for ((rank = 4; rank < pp; rank += 2)); do layers+=,3,1; done
    for name in 1f1b zb-h1 zb-h2; do
      run "$name" "$pp" 4 --layers "$layers"
    done
  done
done

"$pipewright" compare "$table" --summary --html "$out/results.html" \
  --svg "$out/results.svg" | tee "$out/summary.txt"
