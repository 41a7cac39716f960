#!/usr/bin/env bash
# Fuzzes targets for a time and merges what is new into their corpora:
#   run.sh BUILD SECONDS [TARGET...]
# BUILD is a folder of the preset "fuzz". Prints a row of statistics a target.
set -euo pipefail
if [[ $# -lt 2 ]]; then
  sed -n '2,4s/^# //p' "$0" >&2
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

# The value that libFuzzer prints behind `stat::NAME:`.
stat_of() { sed -n "s/^stat::$1: *//p" "$2" | tail -n 1; }

echo '| target | executions | seconds | edges | corpus | date | commit |'
echo '|---|---|---|---|---|---|---|'
for target in "${targets[@]}"; do
  program=$build/tests/fuzz_$target
  [[ -x $program ]] || { echo "run.sh: no $program" >&2; exit 2; }
  work=$build/fuzzing/$target
  mkdir -p "$work/corpus"
  log=$work/log
  if ! "$program" -max_total_time="$seconds" -max_len=16384 -timeout=30 \
    -rss_limit_mb=3072 -print_final_stats=1 -verbosity=1 \
    -dict="$here/dictionary/$target.dict" -artifact_prefix="$work/" \
    "$work/corpus" "$here/corpus/$target" > "$log" 2>&1; then
    echo "run.sh: $target failed; its log is $log" >&2
    grep -m 3 -E 'check failed|ERROR|Test unit written' "$log" >&2 || true
    exit 1
  fi
  # Only what adds coverage, the smallest inputs first.
  rm -rf "$work/merged"
  mkdir "$work/merged"
  "$program" -merge=1 -max_len=16384 "$work/merged" "$here/corpus/$target" \
    "$work/corpus" > "$work/merge.log" 2>&1
  edges=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1)
  printf '| %s | %s | %s | %s | %s | %s | %s |\n' "$target" \
    "$(stat_of number_of_executed_units "$log")" "$seconds" "${edges#cov: }" \
    "$(find "$work/merged" -type f | wc -l)" "$(date -u +%F)" \
    "$(git -C "$here" rev-parse --short HEAD)"
done
