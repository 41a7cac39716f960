#!/usr/bin/env bash
# registers.sh NVCC [ARCHITECTURE]: registers and spilled bytes of the CUDA
# backend's kernels, as docs/dev/gpu.md has them: over all types and widths of a
# kernel the most. Compiles all of kernels/cuda/*.cu once. Exit 1: one spills
# that may not.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 2
root=$(cd "$here/../../.." && pwd) || exit 2
nvcc=$1
architecture=${2:-sm_90a}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

for file in "$root"/kernels/cuda/*.cu; do
  "$nvcc" -std=c++17 -O3 -arch="$architecture" -Xptxas -v -I"$root" \
    -c "$file" -o "$work/object" 2>&1 | sed "s|^|${file##*/} |" || exit 1
done | c++filt > "$work/log"
grep -q 'Used [0-9]* registers' "$work/log" || {
  cat "$work/log"
  exit 2
}
printf '| File | Kernel | Registers | Spilled bytes |\n|---|---|---|---|\n'
awk '
  /Function properties for/ {
    name = $0
    sub(/.*Function properties for (void )?/, "", name)
    gsub(/pipewright::cuda::|\(anonymous namespace\)::/, "", name)
    sub(/[<(].*/, "", name)
  }
  /bytes spill stores/ {
    match($0, /[0-9]+ bytes spill stores/)
    spilled = substr($0, RSTART) + 0
  }
  /Used [0-9]+ registers/ {
    match($0, /Used [0-9]+/)
    used = substr($0, RSTART + 5) + 0
    key = $1 " | " name
    if (!(key in most)) order[++count] = key
    if (used > most[key]) most[key] = used
    if (spilled > spills[key] + 0) spills[key] = spilled
  }
  END {
    for (at = 1; at <= count; ++at) {
      key = order[at]
      printf "| %s | %d | %d |\n", key, most[key], spills[key]
      if (spills[key] > 0) bad = 1
    }
    exit bad
  }' "$work/log"
