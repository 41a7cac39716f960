#!/usr/bin/env bash
# versions.sh CXX INCLUDES: the host's part of the CUDA backend and the NCCL
# module are also sources for CUDA 12.4 and 12.8: with the version macros of
# those, and without names that came later, they compile without a warning. A
# file that uses such a name outside of an #if must not compile.
#
# INCLUDES are folders with CUDA's headers, divided by colons.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 2
root=$(cd "$here/../.." && pwd) || exit 2
cxx=$1
IFS=: read -ra folders <<< "$2"
flags=(-std=c++20 -fsyntax-only -Wall -Wextra -Wno-missing-field-initializers
  -Wno-unused-function -Werror -DPIPEWRIGHT_CUDNN -I"$root"
  -include "$here/versions/older.h")
has_nccl=no
for folder in "${folders[@]}"; do
  flags+=(-isystem "$folder")
  if [[ -f $folder/nccl.h ]]; then has_nccl=yes; fi
done
failures=0

for version in 12040 12080; do
  for file in "$root"/kernels/cuda/*.cc \
    "$root"/execute/transport/nccl/module.cc; do
    if [[ $file == */nccl/* && $has_nccl == no ]]; then continue; fi
    if ! "$cxx" "${flags[@]}" -DOLDER=$version "$file"; then
      printf 'FAILED %s with the macros of %s\n' "${file#"$root/"}" $version
      failures=$((failures + 1))
    fi
  done
  printf 'CUDA %d.%d: done\n' $((version / 1000)) $((version % 1000 / 10))
done

# The check notices what it is for.
new='auto* grouped = &cublasGemmGroupedBatchedEx; auto* device = &cudaStreamGetDevice;'
if "$cxx" "${flags[@]}" -DOLDER=12040 -x c++ - <<< "$new" 2> /dev/null; then
  printf 'FAILED a newer name is not noticed\n'
  failures=$((failures + 1))
fi
exit $((failures > 0))
