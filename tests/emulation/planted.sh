#!/usr/bin/env bash
# planted.sh BUILD GPU_KERNELS PIPEWRIGHT [NAME...]: puts one fault at a time
# into the backend, builds what it concerns, and runs it under three seeds: at
# least one of them has to notice, and none without the fault.
#
#   BUILD         folder of the build of tests/emulation
#   NAME          only planted/NAME.mutant (in the form of tests/mutation/run.sh,
#                 with `units`: the files to compile, and `run`: kernels FILTER
#                 or execute OPTIONS)
#
# CXX compiles; INCLUDES are folders with CUDA's headers, divided by colons.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 2
root=$(cd "$here/../.." && pwd) || exit 2
build=$(cd "$1" && pwd) || exit 2
kernels=$2
pipewright=$3
shift 3
names=("$@")
[[ ${#names[@]} -gt 0 ]] ||
  mapfile -t names < <(cd "$here/planted" && printf '%s\n' ./*.mutant |
    sed 's|^./||; s|\.mutant$||')
objects=$build/CMakeFiles/emulated_backend_plain.dir/__/__/kernels/cuda
work=$build/planted
seeds=(0 1 3)
export LD_LIBRARY_PATH=$build/libraries

fail() {
  printf 'planted.sh: %s\n' "$*" >&2
  exit 2
}

field() { sed -n "/^old:\$/q; s/^$1: //p" "$mutant"; }

# Puts the fault into a copy of the sources at $tree.
plant() {
  local file old new text
  file=$(field file)
  old=$(sed '1,/^old:$/d; /^new:$/,$d' "$mutant")
  new=$(sed '1,/^new:$/d' "$mutant")
  text=$(cat "$root/$file") || return 1
  [[ ${text/"$old"/} != "$text" ]] || fail "$name: its old text is not there"
  [[ ${text/"$old"/} == "${text//"$old"/}" ]] ||
    fail "$name: its old text is there more than once"
  rm -rf "$tree"
  mkdir -p "$tree"
  cp -r "$root/kernels" "$tree/kernels"
  printf '%s\n' "${text/"$old"/"$new"}" > "$tree/$file"
}

compile() {
  local unit flags=() linked=() object folder
  IFS=: read -ra folders <<< "$INCLUDES"
  for folder in "${folders[@]}"; do flags+=(-isystem "$folder"); done
  for unit in $(field units); do
    "$CXX" -x c++ -std=c++20 -O1 -fPIC -w -fno-strict-aliasing \
      -fvisibility=hidden -DPIPEWRIGHT_CUDNN -DPIPEWRIGHT_EMULATED_CUDA \
      -I"$tree" -I"$root" -I"$here/device" "${flags[@]}" \
      -c "$tree/kernels/cuda/$unit" -o "$tree/$unit.o" || return 1
  done
  for object in "$objects"/*.o; do
    unit=$(basename "$object")
    if [[ -e $tree/$unit ]]; then object=$tree/$unit; fi
    linked+=("$object")
  done
  "$CXX" -shared -o "$tree/libpipewright_cuda.so" "${linked[@]}" \
    "$build"/libraries/libcudart.so.* -ldl
}

# Runs it with seed $1 and library $2; true where all is well.
holds() {
  local what rest
  read -r what rest <<< "$(field run)"
  if [[ $what == kernels ]]; then
    EMULATION_SEED=$1 PIPEWRIGHT_CUDA_LIBRARY=$2 timeout 600 \
      "$kernels" "$rest"
  else
    local options
    read -ra options <<< "$rest"
    EMULATION_SEED=$1 PIPEWRIGHT_CUDA_LIBRARY=$2 timeout 600 \
      "$here/execute.sh" "$pipewright" "${options[@]}"
  fi
}

survived=0
for name in "${names[@]}"; do
  mutant=$here/planted/$name.mutant
  tree=$work/$name
  plant || fail "$name: no such file"
  compile || fail "$name: it does not build"
  noticed=()
  for seed in "${seeds[@]}"; do
    holds "$seed" "$build/plain/libpipewright_cuda.so" \
      > "$tree/clean.$seed.log" 2>&1 ||
      fail "$name: seed $seed fails without the fault: $tree/clean.$seed.log"
    holds "$seed" "$tree/libpipewright_cuda.so" > "$tree/$seed.log" 2>&1 ||
      noticed+=("$seed")
  done
  if [[ ${#noticed[@]} -eq 0 ]]; then survived=$((survived + 1)); fi
  printf '| %s | %s | %s |\n' "$name" "$(field what)" \
    "${noticed[*]:-SURVIVED}"
done
exit $((survived > 0))
