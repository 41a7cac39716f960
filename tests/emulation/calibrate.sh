#!/usr/bin/env bash
# calibrate.sh PIPEWRIGHT FOLDER TYPE MODEL: calibrates the emulated GPU and
# reads the profile back. Its times are the emulator's, so that only their
# presence is checked; nothing is computed (EMULATION_CLOCK_ONLY).
set -euo pipefail
pipewright=$1
type=$3
model=$4
profile=$2/calibrate-$type-$model.txtpb
rm -f "$profile"
EMULATION_CLOCK_ONLY=1 "$pipewright" calibrate --device cuda --quick \
  --transport threads --budget 0s --type "$type" --model "$model" -o "$profile"
grep -q 'Emulated GPU' "$profile"
shown=$("$pipewright" calibrate show "$profile")
# A product, attention, the optimizer and a copy, each with a time above 0.
for entry in gemm attention adam h2d; do
  if ! grep -Eq "^ *$entry.* [1-9][0-9.]* [mu]s" <<< "$shown"; then
    printf 'calibrate.sh: there is no time of %s in\n%s\n' "$entry" "$shown" >&2
    exit 1
  fi
done
