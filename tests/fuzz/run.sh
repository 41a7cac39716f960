#!/usr/bin/env bash
# Fuzzes targets, and takes what is new into their corpora:
#   run.sh BUILD SECONDS [TARGET...]   rounds of ten minutes, the targets in turn
#   run.sh BUILD take [TARGET...]      corpora from what was found so far
# BUILD is a folder of the preset "fuzz". A target is done after at least
# SECONDS and 1e6 executions (1e5 of programs) when a round has brought no new
# edge. Statistics stay below BUILD: a call goes on where the last one was ended,
# and "take" prints them, a row a target.
set -euo pipefail
if [[ $# -lt 2 ]]; then
  sed -n '2,8s/^# //p' "$0" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
build=$1
seconds=$2
shift 2
targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
  mapfile -t targets < <(ls "$here/corpus")
fi
for target in "${targets[@]}"; do
  [[ -x $build/tests/fuzz_$target ]] ||
    { echo "run.sh: no $build/tests/fuzz_$target" >&2; exit 2; }
done
# Rows register themselves and live to the end, so leaks are not looked for.
# Where memory came from is not kept, a fifth of the time; a crash's input run
# by itself tells.
export ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16:malloc_context_size=1

# The last value of "NAME: N" in a log of libFuzzer, or 0.
last_of() { { grep -aoE "$1: *[0-9]+" "$2" || echo 0; } | tail -n 1 | grep -oE '[0-9]+$'; }

# Sets work, and total, spent, edges and quiet (the last round had no new edge).
read_state() {
  work=$build/fuzzing/$1
  mkdir -p "$work/corpus"
  total=0 spent=0 edges=0 quiet=no commit=-
  if [[ -f $work/state ]]; then
    read -r total spent edges quiet commit < "$work/state"
  fi
}

is_done() {
  local least=1000000
  [[ $1 == program ]] && least=100000
  [[ $quiet == yes ]] && ((spent >= seconds && total >= least))
}

fuzz_round() {
  local target=$1 before=$edges log=$work/log began=$SECONDS
  local round=$((seconds < 600 ? seconds : 600))
  if ! "$build/tests/fuzz_$target" -max_total_time="$round" -max_len=16384 \
    -timeout=30 -rss_limit_mb=3072 -print_final_stats=1 -entropic=0 \
    -dict="$here/dictionary/$target.dict" -artifact_prefix="$work/" \
    "$work/corpus" "$here/corpus/$target" > "$log" 2>&1; then
    echo "run.sh: $target failed; its log is $log" >&2
    grep -a -m 3 -E 'check failed|ERROR|Test unit written' "$log" >&2 || true
    return 1
  fi
  edges=$(last_of cov "$log")
  total=$((total + $(last_of stat::number_of_executed_units "$log")))
  spent=$((spent + SECONDS - began))
  quiet=no
  ((edges <= before)) && quiet=yes
  commit=$(git -C "$here" rev-parse --short HEAD)
  echo "$total $spent $edges $quiet $commit" > "$work/state"
  echo "$target: $total executions, $spent s, $edges edges (before: $before)"
}

# Only what adds an edge, the smallest inputs first; how often an edge is taken
# does not count, or there would be ten times as many.
take() {
  local target=$1
  rm -rf "$work/merged"
  mkdir "$work/merged"
  "$build/tests/fuzz_$target" -merge=1 -use_counters=0 -max_len=16384 \
    "$work/merged" \
    "$here/corpus/$target" "$work/corpus" > "$work/merge.log" 2>&1
  rm -f "$here/corpus/$target"/*
  cp "$work/merged"/* "$here/corpus/$target/"
  printf '| %s | %s | %s | %s | %s | %s | %s | %s |\n' "$target" "$total" \
    "$spent" "$edges" "$quiet" "$(find "$work/merged" -type f | wc -l)" \
    "$(date -u +%F)" "$commit"
}

if [[ $seconds == take ]]; then
  echo '| target | executions | seconds | edges | last ten minutes brought none | corpus | date | commit |'
  echo '|---|---|---|---|---|---|---|---|'
  for target in "${targets[@]}"; do
    read_state "$target"
    take "$target"
  done
  exit 0
fi

failed=0
while [[ ${#targets[@]} -gt 0 ]]; do
  left=()
  for target in "${targets[@]}"; do
    read_state "$target"
    if is_done "$target"; then continue; fi
    # One that fails is left alone; the others go on.
    if ! fuzz_round "$target"; then failed=1; continue; fi
    # A call with fewer seconds than a round is a try: one round each.
    if ((seconds >= 600)) && ! is_done "$target"; then left+=("$target"); fi
  done
  targets=("${left[@]}")
done
exit "$failed"
