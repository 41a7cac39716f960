#!/usr/bin/env bash
# ordinary.sh BACKEND FILE...: what the emulation runs are the ordinary
# programs: prints the hash of each, and fails where one is linked with a library
# of CUDA or knows anything of the emulation. BACKEND, the one library that is
# compiled for it, must fail this check.
set -uo pipefail
backend=$1
shift

knows() { # FILE
  readelf -d "$1" | grep -E 'NEEDED.*(cuda|cublas|cudnn|nccl|nvidia)' ||
    grep -acE 'EMULATION_[A-Z]|emulated_|8emulated' "$1" > /dev/null
}

knows "$backend" > /dev/null || {
  printf 'ordinary.sh: nothing of the emulation is seen in %s\n' "$backend"
  exit 1
}
for file in "$@"; do
  if knows "$file"; then
    printf 'ordinary.sh: %s knows of the emulation\n' "$file"
    exit 1
  fi
  sha256sum "$file" || exit 1
done
