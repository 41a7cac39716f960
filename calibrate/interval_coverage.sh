#!/usr/bin/env bash
# How honest are the intervals? Calibrates gpt-tiny anew RUNS times, each in a
# process of its own, and counts how often the 90 % prediction interval of one
# run holds the medians of later ones: over all and by kind, printed and in
# FOLDER/coverage.csv. Expected: 80 to 97 %. About RUNS minutes on a machine that
# does nothing else.
set -euo pipefail
usage() {
  echo "Usage: $0 PIPEWRIGHT FOLDER [RUNS]" >&2
  exit 2
}
[[ $# -ge 2 ]] || usage
pipewright=$1 folder=$2 runs=${3:-20}
mkdir -p "$folder"
profiles=()
for ((run = 1; run <= runs; ++run)); do
  profile=$folder/run$(printf '%02d' "$run").txtpb
  # A second call goes on where the first ended.
  [[ -f $profile ]] ||
    "$pipewright" calibrate --device cpu --model gpt-tiny -o "$profile" > /dev/null
  profiles+=("$profile")
done
"$pipewright" calibrate coverage --csv "$folder/coverage.csv" "${profiles[@]}"
