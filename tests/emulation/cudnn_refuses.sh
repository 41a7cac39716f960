#!/usr/bin/env bash
# cudnn_refuses.sh GPU_KERNELS: where cuDNN fails, our own attention gives the
# right numbers in tens of times the time. The checks must say so and fail.
set -uo pipefail
log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT

fail() {
  printf 'cudnn_refuses.sh: %s\n' "$*" >&2
  cat "$log"
  exit 1
}

EMULATION_CUDNN_REFUSES=1 "$1" 'attention 2x64x64x4x4x64' > "$log" 2>&1 &&
  fail "cuDNN fails, and all checks pass"
grep -Eq '^FAILED +bf16 .* own attention; cudnn .*: execution plan: ' "$log" ||
  fail "no check names the cause"
grep -Eq '^ok +fp32 .* own attention +$' "$log" ||
  fail "fp32, which cuDNN is not asked for, does not pass"
PIPEWRIGHT_CUDNN=off EMULATION_CUDNN_REFUSES=1 "$1" \
  'attention 2x64x64x4x4x64' > "$log" 2>&1 ||
  fail "cuDNN is off, and a check fails"
