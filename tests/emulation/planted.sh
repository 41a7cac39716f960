#!/usr/bin/env bash
# planted.sh BUILD GPU_KERNELS PIPEWRIGHT [NAME...]: puts one fault at a time
# into the backend or the NCCL module, builds what it concerns, and runs it under
# three seeds (or PLANTED_SEEDS): at least one of them has to notice, and for the reason that the
# fault's file says. What is built the same way without the fault has to pass
# under all three.
#
#   BUILD         folder of the build of tests/emulation
#   NAME          only planted/NAME.mutant (in the form of tests/mutation/run.sh,
#                 with `units`: the files of kernels/cuda to compile, or
#                 `module: nccl`; `run`: kernels FILTER, execute OPTIONS or
#                 nccl RANKS OPTIONS; and `shows`: what the output then says)
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
objects=$build/CMakeFiles/emulated_backend.dir/__/__/kernels/cuda
work=$build/planted
read -ra seeds <<< "${PLANTED_SEEDS:-0 1 3}"
declare -A passes # without the fault: what was built, how it ran, the seed
export LD_LIBRARY_PATH=$build/libraries

fail() {
  printf 'planted.sh: %s\n' "$*" >&2
  exit 2
}

field() { sed -n "/^old:\$/q; s/^$1: //p" "$mutant"; }

# A copy of the sources at $1.
copy() {
  rm -rf "$1"
  mkdir -p "$1/execute"
  cp -r "$root/kernels" "$1/kernels" && cp -r "$root/execute/transport" "$1/execute/transport"
}

# Puts the fault into the copy at $1.
plant() {
  local file old new text
  file=$(field file)
  old=$(sed '1,/^old:$/d; /^new:$/,$d' "$mutant")
  new=$(sed '1,/^new:$/d' "$mutant")
  text=$(cat "$root/$file") || return 1
  [[ ${text/"$old"/} != "$text" ]] || fail "$name: its old text is not there"
  [[ ${text/"$old"/} == "${text//"$old"/}" ]] ||
    fail "$name: its old text is there more than once"
  printf '%s\n' "${text/"$old"/"$new"}" > "$1/$file"
}

# Builds what the mutant concerns from the copy at $1.
compile() {
  local tree=$1 unit flags=() linked=() object folder
  IFS=: read -ra folders <<< "$INCLUDES"
  for folder in "${folders[@]}"; do flags+=(-isystem "$folder"); done
  flags+=(-std=c++20 -O1 -fPIC -w -fvisibility=hidden -I"$tree" -I"$root")
  if [[ $(field module) == nccl ]]; then
    "$CXX" "${flags[@]}" -shared -o "$tree/libpipewright_nccl.so" \
      "$tree/execute/transport/nccl/module.cc" "$tree/kernels/module.cc" -ldl
    return
  fi
  for unit in $(field units); do
    "$CXX" -x c++ "${flags[@]}" -fno-strict-aliasing -DPIPEWRIGHT_CUDNN \
      -DPIPEWRIGHT_EMULATED_CUDA -I"$here/device" \
      -c "$tree/kernels/cuda/$unit" -o "$tree/$unit.o" || return 1
  done
  for object in "$objects"/*.o; do
    unit=$(basename "$object")
    if [[ -e $tree/$unit ]]; then object=$tree/$unit; fi
    linked+=("$object")
  done
  # The other objects are of the backend that CI runs, with this sanitizer.
  "$CXX" -shared -fsanitize=undefined -o "$tree/libpipewright_cuda.so" \
    "${linked[@]}" "$build"/libraries/libcudart.so.* -ldl
}

# Runs with seed $1 what was built at $2; true where all is well.
holds() {
  local what rest options
  export EMULATION_SEED=$1 PIPEWRIGHT_CUDA_LIBRARY=$build/backend/libpipewright_cuda.so
  if [[ $(field module) == nccl ]]; then
    export PIPEWRIGHT_NCCL_LIBRARY=$2/libpipewright_nccl.so
  else
    export PIPEWRIGHT_CUDA_LIBRARY=$2/libpipewright_cuda.so
  fi
  read -r what rest <<< "$(field run)"
  read -ra options <<< "$rest"
  case $what in
    kernels) timeout 600 "$kernels" "$rest" ;;
    execute) timeout 600 "$here/execute.sh" "$pipewright" "${options[@]}" ;;
    nccl)
      EMULATION_PATIENCE=5 timeout 600 "$here/execute_nccl.sh" "$pipewright" \
        "${options[@]}"
      ;;
    *) fail "$name: no way to run $what" ;;
  esac
}

survived=0
control='' # what the control at $work/control was built from
for name in "${names[@]}"; do
  mutant=$here/planted/$name.mutant
  [[ -f $mutant ]] || fail "$name: no such file"
  tree=$work/$name
  shows=$(field shows)
  [[ -n $shows ]] || fail "$name: it does not say what is seen of it"
  if [[ $control != "$(field module)$(field units)" ]]; then
    copy "$work/control" && compile "$work/control" ||
      fail "$name: it does not build without the fault"
    control=$(field module)$(field units)
  fi
  copy "$tree" && plant "$tree" || fail "$name: it cannot be planted"
  compile "$tree" || fail "$name: it does not build"
  noticed=()
  for seed in "${seeds[@]}"; do
    clean="$control/$(field run)/$seed"
    [[ -n ${passes[$clean]:-} ]] ||
      (holds "$seed" "$work/control") > "$tree/clean.$seed.log" 2>&1 ||
      fail "$name: seed $seed fails without the fault: $tree/clean.$seed.log"
    passes[$clean]=1
    (holds "$seed" "$tree") > "$tree/$seed.log" 2>&1 && continue
    grep -Eq -- "$shows" "$tree/$seed.log" ||
      fail "$name: seed $seed fails, but not with \"$shows\": $tree/$seed.log"
    noticed+=("$seed")
  done
  if [[ ${#noticed[@]} -eq 0 ]]; then survived=$((survived + 1)); fi
  printf '| %s | %s | %s |\n' "$name" "$(field what)" \
    "${noticed[*]:-SURVIVED}"
done
exit $((survived > 0))
