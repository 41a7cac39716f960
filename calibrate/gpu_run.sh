#!/usr/bin/env bash
# Everything that a GPU machine is needed for, in one call: says what the
# machine is, builds, checks every kernel against float64, calibrates, runs the
# executor. For a machine with CUDA, CMake, Ninja and a compiler, and no
# network. Every step has a log and a limit of its own, results are written as
# they come, and what is missing is said and left out. Changes no setting of
# the GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

usage() {
  cat << 'END'
Usage: calibrate/gpu_run.sh [OPTIONS]

  --debs DIR     build against the Debian packages in DIR (see gpu_debs.sh)
  --prefix DIR   build against what is installed under DIR
  --build DIR    take the program and library that were built into DIR
  --out DIR      logs and results (default: gpu_results)
  --work DIR     where to build (default: build/gpu)
  --model NAME   what to calibrate (default: gpt-tiny); may be given again
  --limit S      seconds for each calibration (default: 300)
  --deadline S   seconds for all of it (default: none): a step gets what is
                 left, and steps for which nothing is left are named
  --only STEP    environment, build, calibrate, checks or execute; may be
                 given again. They run in this order: what a GPU is needed for
                 first

Exit 0: every step that could run succeeded; 1: one failed; 2: wrong usage;
77: no GPU.
END
}

debs='' prefix='' carried='' out=gpu_results work=build/gpu limit=300
deadline=0
models=() only=()
while [[ $# -gt 0 ]]; do
  option=$1
  shift
  case $option in
    -h | --help)
      usage
      exit 0
      ;;
    --debs | --prefix | --build | --out | --work | --model | --limit | --deadline | \
      --only)
      if [[ $# -eq 0 ]]; then
        printf 'gpu_run.sh: %s needs a value\n' "$option" >&2
        exit 2
      fi
      ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
  case $option in
    --debs) debs=$1 ;;
    --prefix) prefix=$1 ;;
    --build) carried=$1 ;;
    --out) out=$1 ;;
    --work) work=$1 ;;
    --model) models+=("$1") ;;
    --limit) limit=$1 ;;
    --deadline) deadline=$1 ;;
    --only) only+=("$1") ;;
  esac
  shift
done
for seconds in "$limit" "$deadline"; do
  if [[ ! $seconds =~ ^[0-9]+$ ]]; then
    printf 'gpu_run.sh: %s is not a number of seconds\n' "$seconds" >&2
    exit 2
  fi
done
[[ ${#models[@]} -gt 0 ]] || models=(gpt-tiny)
for folder in "$debs" "$prefix" "$carried"; do
  if [[ -n $folder && ! -d $folder ]]; then
    printf 'gpu_run.sh: %s is not a folder\n' "$folder" >&2
    exit 2
  fi
done
mkdir -p "$out" "$work" || exit 1
out=$(cd "$out" && pwd)
work=$(cd "$work" && pwd)
[[ -z $carried ]] || carried=$(cd "$carried" && pwd)
. calibrate/run_steps.sh

wanted() {
  [[ ${#only[@]} -eq 0 ]] && return 0
  local step
  for step in "${only[@]}"; do
    if [[ $step == "$1" ]]; then return 0; fi
  done
  return 1
}

. calibrate/gpu_libraries.sh

environment() {
  date -u
  uname -a
  cat /etc/os-release
  nproc
  free -m
  nvidia-smi || echo "no nvidia-smi"
  nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE,ECC 2> /dev/null
  local fields=name,driver_version,pci.bus_id,memory.total,pcie.link.gen.current
  nvidia-smi --query-gpu="$fields,pcie.link.width.current" --format=csv
  nvidia-smi topo -m
  "$cuda/bin/nvcc" --version
  cmake --version
  ninja --version
  c++ --version
  ldd --version | head -1
  git log -1 --format='%H %cI' 2> /dev/null
  printf '%s\n' "LD_LIBRARY_PATH=$LD_LIBRARY_PATH"
  return 0
}
export -f environment
export cuda
wanted environment && step environment 60 bash -c environment

# Packages unpacked; CMake finds them by CMAKE_PREFIX_PATH.
unpack() {
  local package
  mkdir -p "$2"
  for package in "$1"/*.deb; do
    [[ -f $package ]] || { echo "no packages in $1" && return 1; }
    echo "$package"
    if command -v dpkg > /dev/null; then
      dpkg -x "$package" "$2" || return 1
    else
      # An ar archive with one compressed tar in it.
      (cd "$2" && ar p "$package" data.tar.xz | tar xJ) || return 1
    fi
  done
}
export -f unpack

if [[ -n $debs ]]; then
  if ! step unpack 120 bash -c 'unpack "$@"' unpack \
    "$(cd "$debs" && pwd)" "$work/prefix"; then
    exit 1
  fi
  prefix=$work/prefix/usr
fi

build() {
  local options=(
    -G Ninja -S . -B "$work/tree" -DCMAKE_BUILD_TYPE=Release
    -DPIPEWRIGHT_TESTS=OFF -DPIPEWRIGHT_BENCHMARKS=OFF
    -DPIPEWRIGHT_SIMGRID=OFF -DPIPEWRIGHT_CUDA=ON -DPIPEWRIGHT_ONEDNN=AUTO
  )
  # For this machine's card alone, where there is one to ask.
  if nvidia-smi -L 2> /dev/null | grep -q GPU; then
    options+=(-DCMAKE_CUDA_ARCHITECTURES=native)
  fi
  [[ -z $prefix ]] || options+=("-DCMAKE_PREFIX_PATH=$prefix")
  [[ -x $cuda/bin/nvcc ]] &&
    options+=("-DCMAKE_CUDA_COMPILER=$cuda/bin/nvcc")
  [[ -z $cublas ]] || options+=("-DPIPEWRIGHT_CUBLASLT_INCLUDE=$cublas")
  [[ -z $cudnn ]] || options+=("-DPIPEWRIGHT_CUDNN_INCLUDE=$cudnn")
  [[ -z $nccl ]] || options+=("-DPIPEWRIGHT_NCCL_INCLUDE=$nccl")
  cmake "${options[@]}" || return 1
  local targets=(pipewright pipewright_cuda gpu_kernels)
  [[ -z $nccl ]] || targets+=(pipewright_nccl gpu_nccl)
  cmake --build "$work/tree" --target "${targets[@]}"
}
export -f build
if [[ -n $prefix ]]; then
  multiarch=$(c++ -print-multiarch 2> /dev/null)
  export PATH=$prefix/bin:$PATH
  export LD_LIBRARY_PATH=$prefix/lib/${multiarch:-.}:$prefix/lib:$LD_LIBRARY_PATH
  export PKG_CONFIG_PATH=$prefix/lib/${multiarch:-.}/pkgconfig:$prefix/lib/pkgconfig
fi
cublas=$(header cublasLt.h)
cudnn=$(header cudnn_graph.h)
nccl=$(header nccl.h)
export prefix work cublas cudnn nccl
tree=$work/tree
if [[ -n $carried ]]; then
  tree=$carried
elif wanted build; then
  step build 600 bash -c build || exit 1
fi
for program in pipewright libpipewright_cuda.so; do
  if [[ ! -e $tree/$program ]]; then
    say "there is no $program in $tree"
    exit 1
  fi
done
export PIPEWRIGHT_CUDA_LIBRARY=$tree/libpipewright_cuda.so

checks=$tree/tests/gpu/gpu_kernels
if [[ -x $checks ]]; then
  # A check of no such name: says whether there is a device.
  timeout 60 "$checks" pipewright-has-no-such-check > "$out/device.log" 2>&1 \
    < /dev/null
  if [[ $? -eq 77 ]]; then
    say "$(tail -n 1 "$out/device.log")"
    exit 77
  fi
fi

gpus=$(visible_gpus)
say_version "$tree/pipewright"
say "$(date -u '+%F %T') UTC, $(nproc) CPU cores, $gpus GPUs"
nvidia-smi --query-gpu=name,driver_version,memory.total \
  --format=csv,noheader 2> /dev/null | tee -a "$out/summary.txt"

# True if the program knows a verb: another version may not.
knows() { "$tree/pipewright" "$1" --help > /dev/null 2>&1; }

# A schedule's file in which every activation goes to the host behind its forward
# and comes back one pass ahead of its backward.
with_copies() { # OUT SCHEDULE...
  local file=$1
  shift
  "$tree/pipewright" schedule --format text --schedule "$@" | awk '
    !/^[0-9]+: / { print; next }
    {
      count = 0
      for (at = 2; at <= NF; ++at) {
        id = $at
        sub(/^[A-Z]+/, "", id)
        if ($at ~ /^B/) {
          last = token[count]
          if (last == "O" id) {
            token[++count] = "L" id
          } else {
            token[count] = "L" id
            token[++count] = last
          }
        }
        token[++count] = $at
        if ($at ~ /^F/) token[++count] = "O" id
      }
      line = $1
      for (at = 1; at <= count; ++at) line = line " " token[at]
      print line
    }' > "$file"
}

# Does the card have fp8? Compute capability 8.9 and up.
has_fp8() {
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null |
    awk 'NR == 1 { found = $1 >= 8.9 } END { exit !found }'
}

# Three quarters of what the step gets: it ends within 1.3 times the budget.
budget() {
  local seconds
  seconds=$(($(granted "$limit") * 3 / 4))
  echo "$((seconds > 0 ? seconds : 1))s"
}

calibrate_model() { # MODEL
  local model=$1 profile=$out/$1.txtpb
  makes=$profile step "calibrate-$model" "$limit" "$tree/pipewright" calibrate \
    --device cuda --model "$model" --budget "$(budget)" -o "$profile"
  if [[ $gpus -gt 1 && -e $tree/libpipewright_nccl.so ]]; then
    nccl_calibrated "$profile"
  fi
  if has_fp8; then
    makes=$out/$model-fp8.txtpb step "calibrate-fp8-$model" "$limit" "$tree/pipewright" calibrate \
      --device cuda --model "$model" --type fp8 --transport threads \
      --budget "$(budget)" -o "$out/$model-fp8.txtpb"
  fi
}

# Each beside what was predicted from the calibration, one line a run in
# predicted.csv: all ranks under one token in virtual time, then one rank after
# the other in wall time, then the same with copies to the host beside them (the
# copies' own times are measured; those given are the prediction's alone).
execute_model() { # MODEL
  local model=$1 schedule name file options row=()
  local sizes=(--pp 4 --microbatches 8)
  options=(--model "$model" --device cuda --steps 3 --json)
  if [[ -s $out/$model.txtpb ]]; then
    options+=(--profile "$out/$model.txtpb" --p2p 0ms)
    # A row is of a prediction; without a profile it would be refused.
    row=(--row "$out/predicted.csv")
  fi
  for schedule in 1f1b zb-h1 zb-v; do
    name=execute-$model-$schedule
    makes=$out/$name.json step "$name" "$limit" "$tree/pipewright" execute --schedule "$schedule" \
      "${sizes[@]}" "${options[@]}" --clock virtual -o "$out/$name.json" \
      --trace "$out/$name.trace.json" "${row[@]}"
    name=replay-$model-$schedule
    makes=$out/$name.json step "$name" "$limit" "$tree/pipewright" execute --schedule "$schedule" \
      "${sizes[@]}" "${options[@]}" --clock real --replay-rank all \
      -o "$out/$name.json" --trace "$out/$name.trace.json"
    file=$out/$schedule-copies.pws
    with_copies "$file" "$schedule" "${sizes[@]}"
    makes=$out/$name-copies.json step "$name-copies" "$limit" "$tree/pipewright" execute --schedule "$file" \
      "${options[@]}" --clock real --replay-rank all \
      --offload-time 1ms --load-time 1ms \
      -o "$out/$name-copies.json" --trace "$out/$name-copies.trace.json"
  done
}

say_counts() { # STEP: how many checks passed, were refused and failed
  local counts
  counts=$(grep -E '^[0-9]+ passed, ' "$out/$1.log" 2> /dev/null | tail -n 1)
  [[ -z $counts ]] || say "$1: $counts"
}

check_kernels() {
  if [[ ! -x $checks ]]; then
    say "no gpu_kernels in $tree: the kernels are not checked"
    return
  fi
  step checks 400 "$checks"
  say_counts checks
  PIPEWRIGHT_CUDNN=off step checks-own-attention 200 "$checks" attention
  say_counts checks-own-attention
  if [[ -x $tree/tests/gpu/gpu_nccl ]]; then
    step checks-nccl 120 "$tree/tests/gpu/gpu_nccl" \
      "$tree/libpipewright_nccl.so"
  fi
}

run_verb() { # VERB
  wanted "$1" || return 0
  if ! knows "$1"; then
    say "pipewright has no verb $1 in this version: left out"
    return
  fi
  local model
  for model in "${models[@]}"; do "${1}_model" "$model"; done
}

run_verb calibrate
if wanted checks; then check_kernels; fi
run_verb execute

# Ranks on GPUs of their own, where there are several: a process each, without
# MPI. NCCL takes no two ranks on one GPU.
execute_nccl() { # RANKS NAME OPTIONS...
  local ranks=$1 name=$2 rank pids=() status=0
  shift 2
  rm -f "$work/job"*
  for ((rank = 0; rank < ranks; ++rank)); do
    "$tree/pipewright" execute --device cuda --clock real --steps 2 \
      --transport nccl --timeout 60 --json --bootstrap "file:$work/job" \
      --rank "$rank" --ranks "$ranks" -o "$out/$name.json" "$@" &
    pids+=($!)
  done
  for rank in "${pids[@]}"; do wait "$rank" || status=$?; done
  return "$status"
}
export -f execute_nccl
export tree out

step_nccl() { # RANKS NAME OPTIONS...
  makes=$out/$2.json step "$2" "$limit" bash -c 'execute_nccl "$@"' execute_nccl "$@"
}
if wanted execute && [[ -e $tree/libpipewright_nccl.so ]]; then
  if [[ $gpus -lt 2 ]]; then
    say "one GPU: ranks over NCCL are not executed, nor transfers calibrated"
  else
    ranks=$((gpus < 8 ? gpus : 8))
    for model in "${models[@]}"; do
      step_nccl "$ranks" "execute-nccl-$model" --schedule 1f1b \
        --pp "$ranks" --microbatches $((2 * ranks)) --model "$model"
      if [[ $((ranks % 2)) -eq 0 && $ranks -ge 4 ]]; then
        step_nccl "$ranks" "execute-nccl-ddp-$model" --schedule zb-h1 \
          --pp $((ranks / 2)) --dp 2 --data-parallel ddp \
          --microbatches "$ranks" --model "$model"
      fi
    done
  fi
fi

finish
