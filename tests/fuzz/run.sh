#!/usr/bin/env bash
# Fuzzes targets and merges what is new into their corpora:
#   run.sh BUILD SECONDS [TARGET...]
# BUILD is a folder of the preset "fuzz". Each target runs for at least SECONDS,
# and on until a round of ten minutes has brought no new edge and there were 1e6
# executions (1e5 of programs). Prints a row of statistics a target.
set -euo pipefail
if [[ $# -lt 2 ]]; then
  sed -n '2,6s/^# //p' "$0" >&2
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
# Rows register themselves and live to the end, so leaks are not looked for.
export ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16
round=$((seconds < 600 ? seconds : 600))

# The last value of "NAME: N" in a log of libFuzzer.
last_of() { grep -oE "$1: *[0-9]+" "$2" | tail -n 1 | grep -oE '[0-9]+$'; }

echo '| target | executions | seconds | edges | corpus | date | commit |'
echo '|---|---|---|---|---|---|---|'
for target in "${targets[@]}"; do
  program=$build/tests/fuzz_$target
  [[ -x $program ]] || { echo "run.sh: no $program" >&2; exit 2; }
  least=1000000
  [[ $target == program ]] && least=100000
  work=$build/fuzzing/$target
  mkdir -p "$work/corpus"
  log=$work/log
  total=0
  spent=0
  edges=0
  while true; do
    if ! "$program" -max_total_time="$round" -max_len=16384 -timeout=30 \
      -rss_limit_mb=3072 -print_final_stats=1 \
      -dict="$here/dictionary/$target.dict" -artifact_prefix="$work/" \
      "$work/corpus" "$here/corpus/$target" > "$log" 2>&1; then
      echo "run.sh: $target failed; its log is $log" >&2
      grep -m 3 -E 'check failed|ERROR|Test unit written' "$log" >&2 || true
      exit 1
    fi
    before=$edges
    edges=$(last_of cov "$log")
    total=$((total + $(last_of stat::number_of_executed_units "$log")))
    spent=$((spent + round))
    if ((spent >= seconds && edges <= before && total >= least)); then break; fi
    # A short call is a try of the script.
    if ((seconds < 600 && spent >= seconds)); then break; fi
  done
  # Only what adds coverage, the smallest inputs first.
  rm -rf "$work/merged"
  mkdir "$work/merged"
  "$program" -merge=1 -max_len=16384 "$work/merged" "$here/corpus/$target" \
    "$work/corpus" > "$work/merge.log" 2>&1
  rm -f "$here/corpus/$target"/*
  cp "$work/merged"/* "$here/corpus/$target/"
  printf '| %s | %s | %s | %s | %s | %s | %s |\n' "$target" "$total" "$spent" \
    "$edges" "$(find "$work/merged" -type f | wc -l)" "$(date -u +%F)" \
    "$(git -C "$here" rev-parse --short HEAD)"
done
