#!/usr/bin/env bash
# Calibrates this machine's CPU and then, for three schedules at two ranks, sets
# side by side what the simulator predicts, what two threads take in wall time,
# and what is composed of ranks that run alone in wall time. Needs two cores
# that nobody else uses; how often a rank was preempted is in the table.
# Usage: run.sh [PIPEWRIGHT [FOLDER [REPEATS]]]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pipewright=${1:-$here/../../build/release/pipewright}
out=${2:-real_clock}
repeats=${3:-5}

mkdir -p "$out"
profile=$out/profile.txtpb
[[ -s $profile ]] || "$pipewright" calibrate --device cpu --model gpt-tiny \
  --microbatch-sizes 4 --sequences 128 --tp 1 -o "$profile" \
  > "$out/calibrated.txt" 2> "$out/log.txt"

# Four sequences a microbatch: 5 ms and more of each pass of a layer, as in
# closed_loop. Four layers a rank.
execute() { # SCHEDULE [OPTIONS]
  local schedule=$1
  shift
  "$pipewright" execute --schedule "$schedule" --pp 2 --microbatches 8 \
    --microbatch-size 4 --model gpt-tiny --set model.layers=8 \
    --set model.sequence=128 --profile "$profile" --p2p 0ms \
    --interference off --steps 3 --no-check --json "$@" 2>> "$out/log.txt"
}

# The number of KEY in the JSON object on standard input.
number() { # KEY
  sed -n "s/^ *\"$1\": \([-+.e0-9]*\),\?\$/\1/p" | head -n 1
}

# A line a run: schedule,way,predicted_s,step_s,preemptions,replay_passes.
table=$out/runs.csv
echo "schedule,way,predicted_s,step_s,preemptions,replay_passes" > "$table"
run() { # SCHEDULE WAY [OPTIONS]
  local schedule=$1 way=$2 json
  shift 2
  json=$(execute "$schedule" "$@")
  echo "$schedule,$way,$(number predicted_iteration_s <<< "$json"),$(
    number iteration_s <<< "$json"),$(number preemptions <<< "$json"),$(
    number passes <<< "$json")" | tee -a "$table" >&2
}

# Turn about, so that a slow moment meets all ways.
for ((repeat = 0; repeat < repeats; ++repeat)); do
  for schedule in 1f1b zb-h1 interleaved-1f1b; do
    run "$schedule" real --clock real
    run "$schedule" replay --clock real --replay-rank all
    run "$schedule" virtual --clock virtual
  done
done

# Medians, and how far prediction and replay are from what was measured.
awk -F, '
  function median(key, count, i, j, t, v) {
    count = split(list[key], v, " ")
    for (i = 2; i <= count; ++i)
      for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; --j) {
        t = v[j]; v[j] = v[j - 1]; v[j - 1] = t
      }
    return count % 2 ? v[(count + 1) / 2] : (v[count / 2] + v[count / 2 + 1]) / 2
  }
  NR > 1 {
    if (!($1 in predicted)) names[++n] = $1
    predicted[$1] = $3
    list[$1 "," $2] = list[$1 "," $2] " " $4
    if ($2 == "real") preempted[$1] += $5
  }
  END {
    printf "%-17s %11s %11s %11s %11s %10s %10s %10s %9s\n", "schedule",
      "predicted", "real", "replay", "virtual", "pred/real", "repl/real",
      "pred/virt", "preempted"
    for (i = 1; i <= n; ++i) {
      s = names[i]; p = predicted[s] * 1e3
      real = median(s ",real") * 1e3; alone = median(s ",replay") * 1e3
      virtual = median(s ",virtual") * 1e3
      printf "%-17s %8.2f ms %8.2f ms %8.2f ms %8.2f ms %+8.2f %% %+8.2f %% %+8.2f %% %9d\n",
        s, p, real, alone, virtual, 100 * (p / real - 1),
        100 * (alone / real - 1), 100 * (p / virtual - 1), preempted[s]
    }
  }' "$table" | tee "$out/summary.txt"
