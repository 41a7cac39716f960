#!/usr/bin/env bash
# Calibrates this machine's CPU, predicts a step of every schedule with what it
# has measured, runs the same schedules with real kernels, and says how far the
# two are apart. Usage: run.sh [PIPEWRIGHT [FOLDER [PP ...]]]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pipewright=${1:-$here/../../build/release/pipewright}
out=${2:-closed_loop}
shift $(($# < 2 ? $# : 2))
sizes=("${@:-4}")
# Sixteen layers of about 7 ms a pass: the shortest stage takes 14 ms.
model=(--model gpt-tiny --microbatch-size 4)
steps=3

mkdir -p "$out"
profile=$out/profile.txtpb
[[ -s $profile ]] || "$pipewright" calibrate --device cpu --model gpt-tiny \
  --microbatch-sizes 4 --sequences 128 --tp 1 -o "$profile"

# The number behind a key of one level of indentation or deeper.
number() { grep -m 1 "\"$1\":" | sed 's/.*: *//; s/,$//'; }

results=$out/results.csv
echo "schedule,pp,microbatches,layers,predicted_s,executed_s,error,agrees" \
  > "$results"
run() { # NAME PP [OPTIONS]
  local name=$1 pp=$2 json=$out/$1-$2.json executed predicted
  shift 2
  local options=("${model[@]}" --pp "$pp" --microbatches $((2 * pp))
    --profile "$profile" --p2p 0ms --interference off "$@")
  [[ $name == *uneven* ]] || options+=(--schedule "$name")
  # Exit 1: gradients differ; the row says so.
  "$pipewright" execute "${options[@]}" --steps $steps --json \
    --trace "$out/$name-$pp.measured.json" -o "$json" 2> "$out/$name-$pp.log" ||
    [[ -s $json ]] || {
    printf '%-18s pp %d: %s\n' "$name" "$pp" "$(tail -n 1 "$out/$name-$pp.log")"
    return 0
  }
  executed=$(number iteration_s < "$json")
  predicted=$(number predicted_iteration_s < "$json")
  awk -v name="$name" -v pp="$pp" -v executed="$executed" \
    -v predicted="$predicted" -v csv="$results" \
    -v agrees="$(number agrees < "$json")" 'BEGIN {
      error = predicted / executed - 1
      printf "%s,%d,%d,16,%s,%s,%.5f,%s\n", name, pp, 2 * pp, predicted,
        executed, error, agrees >> csv
      printf "%-18s pp %d  predicted %8.2f ms  executed %8.2f ms  %+6.2f %%\n",
        name, pp, predicted * 1e3, executed * 1e3, error * 100
    }'
}

for pp in "${sizes[@]}"; do
  "$pipewright" list schedules --json | grep -E '^      "name":' |
    sed 's/.*: *"//; s/",\?$//; s/".*//' | while read -r name; do
    run "$name" "$pp" < /dev/null
  done
done
# Layers that do not spread evenly.
run uneven-zb-h1 4 --schedule zb-h1 --set 'strategy.layers=[7, 3, 3, 3]'

# Median and worst error; Kendall's tau over the pairs that are predicted more
# than 2 % apart.
tail -n +2 "$results" | sort -t, -k7,7g | awk -F, '
  { name[NR] = $1; pp[NR] = $2; predicted[NR] = $5; executed[NR] = $6
    size[NR] = $7 < 0 ? -$7 : $7 }
  END {
    for (i = 2; i <= NR; i++)
      for (j = i; j > 1 && size[j] < size[j - 1]; j--) {
        t = size[j]; size[j] = size[j - 1]; size[j - 1] = t
      }
    middle = NR % 2 ? size[(NR + 1) / 2] : (size[NR / 2] + size[NR / 2 + 1]) / 2
    printf "%d runs: error %.2f %% in the median, %.2f %% at worst\n", NR,
      100 * middle, 100 * size[NR]
    for (i = 1; i <= NR; i++)
      for (j = i + 1; j <= NR; j++) {
        if (pp[i] != pp[j]) continue
        apart = predicted[i] / predicted[j] - 1
        if (apart < 0.02 && apart > -0.02) { ties++; continue }
        (predicted[i] - predicted[j]) * (executed[i] - executed[j]) > 0 ?
          same++ : other++
      }
    if (same + other > 0)
      printf "order of schedules: tau %.3f over %d pairs, %d within 2 %% left out\n",
        (same - other) / (same + other), same + other, ties
  }' | tee "$out/summary.txt"
