#!/usr/bin/env bash
# Kills a sweep and its workers at random moments, 50 times, and resumes it;
# the table in the end has to be that of an undisturbed run.
#   tests/analysis/sweep/kills.sh PIPEWRIGHT [KILLS]
set -euo pipefail
pipewright=$1
kills=${2:-50}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

sweep() {
  local file=$1
  shift
  "$pipewright" sweep --schedule 1f1b --microbatches 16 --forward 1ms \
    --backward 2ms --sweep strategy.pp=2..33 \
    --sweep schedule.name=1f1b,gpipe,zb-h1 \
    --sweep costs.p2p=0ms..2ms+0.02ms -j 2 --retry 20 -o "$file" "$@"
}

children() { cat "/proc/$1/task/$1/children" 2> /dev/null || true; }

# A quarter of a second at most, in milliseconds.
pause() { sleep "0.$(printf '%03d' $((RANDOM % 250)))"; }

sweep "$folder/whole.sqlite" --jsonl "$folder/whole.jsonl" > /dev/null 2>&1
for ((kill_number = 0; kill_number < kills; ++kill_number)); do
  sweep "$folder/killed.sqlite" > /dev/null 2>&1 &
  shell=$!
  pause
  coordinator=$(children "$shell" | cut -d ' ' -f 1)
  victim=${coordinator:-$shell}
  if ((kill_number % 2)); then
    # Its workers, one or all.
    for worker in $(children "$victim"); do
      kill -9 "$worker" 2> /dev/null || true
    done
    pause
  fi
  kill -9 "$victim" 2> /dev/null || true
  wait "$shell" 2> /dev/null || true
done
sweep "$folder/killed.sqlite" --jsonl "$folder/killed.jsonl" > /dev/null
if cmp -s <(sort "$folder/whole.jsonl") <(sort "$folder/killed.jsonl"); then
  printf '%s kills: %s rows, as if undisturbed\n' "$kills" \
    "$(wc -l < "$folder/killed.jsonl")"
else
  printf 'the tables differ after %s kills\n' "$kills"
  exit 1
fi
