#!/bin/sh
# Time (user + system) and memory of W1 and its variants, one line each.
# measure.sh [PIPEWRIGHT]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
pipewright=${1:-$here/../../build/release/pipewright}
used=$(mktemp)
log=$(mktemp)
trap 'rm -f "$used" "$log"' EXIT

line() {
  name=$1
  shift
  /usr/bin/time -o "$used" -f '%U %S %M' "$pipewright" simulate "$@" \
      >"$log" 2>&1 || cat "$log"
  awk -v name="$name" '{ printf "%-44s %7.2f s %5.0f MB\n", name, $1 + $2,
      $3 / 1024 }' "$used"
}

for devices in 64 256 1024 4096 16384; do
  size="--dp $((devices / 16)) --nodes $((devices / 8))"
  for jitter in none uniform:5%; do
    # shellcheck disable=SC2086
    line "$devices devices, jitter $jitter" "$here/w1.yaml" $size --jitter $jitter
  done
done
for engine in fluid simgrid; do
  for mapping in dp-pp pp-dp; do
    for jitter in none uniform:5%; do
      line "1024 devices, $engine, $mapping, jitter $jitter" "$here/w1.yaml" \
        --dp 64 --nodes 128 --engine $engine --mapping $mapping --jitter $jitter
    done
  done
done
line "heavy, jitter" "$here/w1.yaml" --jitter uniform:5% --hop-bytes 100MB
line "4096 devices, zero1, 3 % jitter" --schedule zb-h1 --pp 16 --dp 256 \
  --microbatches 64 --forward 5ms --backward 10ms --system dgx-h100 \
  --hop-bytes 16MiB --gradient-bytes 1GB --data-parallel zero1 --jitter 3% \
  --iterations 1
line "65536 devices, fast, 3 % jitter" --schedule 1f1b --pp 16 --dp 4096 \
  --microbatches 64 --forward 5ms --backward 10ms --p2p 0.5ms --jitter 3% \
  --iterations 1 --engine fast
