#!/usr/bin/env bash
# Calibrates this machine's CPU once, executes ten schedules with real kernels
# in two rounds, and counts how many of the steps lie in the 90 % interval that
# was predicted for a step. About four minutes on two cores that do nothing
# else. Begun again with the same FOLDER it goes on: what has its steps is not
# run.
# Usage: [ROUNDS=2] [STEPS=6] run.sh [PIPEWRIGHT [FOLDER]]
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pipewright=${1:-$here/../../build/release/pipewright}
out=${2:-step_interval}
rounds=${ROUNDS:-2}
steps=${STEPS:-6}
schedules=(gpipe 1f1b interleaved-1f1b looped-bfs zb-h1 zb-h2 zb-v v-half
  dualpipe hanayo)

mkdir -p "$out"
profile=$out/profile.txtpb
# As in closed_loop: four sequences, 5 ms and more of each pass of a layer.
[[ -s $profile ]] || "$pipewright" calibrate --device cpu --model gpt-tiny \
  --microbatch-sizes 4 --sequences 128 --tp 1 -o "$profile" \
  > "$out/calibrated.txt" 2> "$out/log.txt"

table=$out/steps.csv
[[ -s $table ]] ||
  echo "schedule,round,step,predicted_s,low_s,high_s,step_s,inside" > "$table"

# The steps behind the first, which warms up, of the report on standard input.
rows() { # SCHEDULE ROUND
  awk -v schedule="$1" -v round="$2" '
    /^ *"[a-z_]*": \[$/ { list = $1; count[list] = 0; next }
    /^ *\]/ { list = ""; next }
    list != "" {
      value = $1
      sub(/,$/, "", value)
      values[list, ++count[list]] = value
    }
    $1 == "\"predicted_iteration_s\":" {
      predicted = $2
      sub(/,/, "", predicted)
    }
    END {
      low = values["\"predicted_interval_s\":", 1]
      high = values["\"predicted_interval_s\":", 2]
      if (low == "" || predicted == "") exit 1
      for (step = 2; step <= count["\"step_s\":"]; ++step) {
        value = values["\"step_s\":", step]
        printf "%s,%s,%d,%s,%s,%s,%s,%d\n", schedule, round, step, predicted,
          low, high, value, (value + 0 >= low + 0 && value + 0 <= high + 0)
      }
    }'
}

# Two layers a rank, as many microbatches as closed_loop has, one rank computing
# at a time, as there: each stands for a device of its own.
for ((round = 1; round <= rounds; ++round)); do
  for schedule in "${schedules[@]}"; do
    ! grep -q "^$schedule,$round," "$table" || continue
    echo "round $round $schedule" >&2
    "$pipewright" execute --schedule "$schedule" --pp 4 --microbatches 8 \
      --microbatch-size 4 --model gpt-tiny --set model.layers=8 \
      --set model.sequence=128 --profile "$profile" --p2p 0ms \
      --interference off --steps "$steps" --one-at-a-time --no-check --json \
      2>> "$out/log.txt" | rows "$schedule" "$round" > "$out/rows.csv"
    cat "$out/rows.csv" >> "$table"
  done
done
rm -f "$out/rows.csv"

# By schedule and over all: steps, those inside, the interval's width over the
# prediction, the median error of the prediction.
awk -F, '
  function sorted(list, count, i, j, value) {
    for (i = 2; i <= count; ++i) {
      value = list[i]
      for (j = i - 1; j > 0 && list[j] > value; --j) list[j + 1] = list[j]
      list[j + 1] = value
    }
  }
  function median(list, count) {
    sorted(list, count)
    return count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2
  }
  NR > 1 {
    if (!($1 in all)) order[++names] = $1
    ++all[$1]
    inside[$1] += $8
    below[$1] += $7 < $5
    width[++count] = 100 * ($6 - $5) / $4
    of[$1] = width[count]
    error[count] = 100 * ($4 / $7 - 1)
    total += $8
    less += $7 < $5
  }
  END {
    for (name = 1; name <= names; ++name) {
      key = order[name]
      printf "%-18s %3d of %3d inside, %d below, %d above, width %.1f %%\n", key,
        inside[key], all[key], below[key], all[key] - inside[key] - below[key],
        of[key]
    }
    printf "%d of %d steps inside (%.1f %%), %d below, %d above; median width %.1f %% of the step, median error %+.1f %%\n",
      total, count, 100 * total / count, less, count - total - less,
      median(width, count), median(error, count)
  }' "$table" | tee "$out/summary.txt"
