#!/usr/bin/env bash
# machines.sh BUILD PIPEWRIGHT GPU_KERNELS NCCL_MODULE HOW: the scripts for
# machines with GPUs, from begin to end, on emulated ones.
#
#   BUILD   folder of the build of tests/emulation
#   HOW     one: calibrate/gpu_run.sh with one GPU; several: with four;
#           slurm: calibrate/slurm_run.sh on two machines of four GPUs
#
# The program is the ordinary one. In front of it stands a script that shortens
# `calibrate`, whose times mean nothing here, and lets `execute` train a smaller
# model, without the profile, which has no times of it.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 2
root=$(cd "$here/../.." && pwd) || exit 2
build=$(cd "$1" && pwd) || exit 2
pipewright=$2
kernels=$3
nccl=$4
how=$5
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

fail() {
  printf 'machines.sh: %s\n' "$*" >&2
  cat "$work/out/summary.txt" "$work/log" 2> /dev/null
  exit 1
}

# What was built for such a machine.
tree=$work/tree
mkdir -p "$tree/tests/gpu" "$work/rooms" "$work/toolkit"
ln -s "$build/libraries" "$work/toolkit/lib64"
ln -s "$build/backend/libpipewright_cuda.so" "$tree/"
ln -s "$nccl" "$tree/libpipewright_nccl.so"
modules=$(dirname "$pipewright")
for module in onednn simgrid; do
  [[ ! -e $modules/libpipewright_$module.so ]] ||
    ln -s "$modules/libpipewright_$module.so" "$tree/"
done
# As many layers as stages.
sed 's/"num_hidden_layers":4/"num_hidden_layers":8/' "$here/tiny.json" \
  > "$work/tiny.json"
{
  printf '#!/usr/bin/env bash\nprogram=%q model=%q\n' "$pipewright" \
    "$work/tiny.json"
  cat << 'END'
verb=${1:-}
if [[ $verb == calibrate ]]; then
  arguments=()
  while [[ $# -gt 0 ]]; do
    case $1 in
      --budget) budget=$2 && shift ;;
      *) arguments+=("$1") ;;
    esac
    shift
  done
  # Three quarters of the limit of 500 s.
  if [[ -n ${budget:-} && $budget != 375s ]]; then
    echo "a budget of $budget" >&2
    exit 1
  fi
  EMULATION_CLOCK_ONLY=1 exec "$program" "${arguments[@]}" --quick --budget 0s
fi
if [[ $verb != execute || ${2:-} == --help ]]; then exec "$program" "$@"; fi
arguments=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --model) arguments+=(--model "$model") && shift ;;
    --profile | --p2p | --row) shift ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
exec "$program" "${arguments[@]}"
END
} > "$tree/pipewright"
printf '#!/bin/sh\nexec "%s" "${1:-norm 1x}"\n' "$kernels" \
  > "$tree/tests/gpu/gpu_kernels"
chmod +x "$tree/pipewright" "$tree/tests/gpu/gpu_kernels"

export PATH=$here/machines:$PATH CUDA_HOME=$work/toolkit
export EMULATION_ROOMS=$work/rooms LD_LIBRARY_PATH=$build/libraries
export PIPEWRIGHT_NCCL_LIBRARY=$tree/libpipewright_nccl.so
cd "$root" || exit 2

case $how in
  one | several)
    devices=1
    if [[ $how == several ]]; then
      devices=4
      # In a shell that srun has started.
      export SLURM_PROCID=0 SLURM_LOCALID=0
    fi
    EMULATION_DEVICES=$devices calibrate/gpu_run.sh --build "$tree" \
      --out "$work/out" --work "$work/work" \
      --limit 500 > "$work/log" 2>&1 || fail "gpu_run.sh: exit $?"
    wanted=('^Emulated GPU of sm_90, ' '^calibrate-.* ok$' '^checks .* ok$'
      '^checks: [1-9][0-9]* passed, [0-9]+ refused, 0 failed$'
      '^execute-.*-zb-v .* ok$' '^replay-.*-1f1b-copies .* ok$')
    if [[ $how == several ]]; then
      wanted+=('[1-9][0-9]* transfers over NCCL' '^execute-nccl-.* ok$'
        '^execute-nccl-ddp-.* ok$')
    else
      wanted+=('^one GPU: ')
    fi
    ;;
  slurm)
    export SLURM_NTASKS=8 SLURM_JOB_NUM_NODES=2 SLURM_JOB_NODELIST='here[1-2]'
    EMULATION_DEVICES=4 SLURM_SUBMIT_DIR=$root calibrate/slurm_run.sh \
      --build "$tree" --out "$work/out" \
      --limit 500 > "$work/log" 2>&1 || fail "slurm_run.sh: exit $?"
    wanted=('2 nodes, 8 tasks' '^nodes .* ok$' '^execute-1f1b .* ok$'
      '^execute-zb-h1 .* ok$' '^execute-1f1b-ddp .* ok$' '^calibrate-.* ok$'
      '[1-9][0-9]* transfers over NCCL')
    # Among two, and among all on both machines.
    for nodes in 1 2; do
      grep -q "nodes: $nodes\$" "$work/out/gpt-tiny.txtpb" ||
        fail "no transfers between GPUs of $nodes machines"
    done
    ;;
  *) fail "no way $how" ;;
esac
for line in "${wanted[@]}"; do
  grep -Eq -- "$line" "$work/out/summary.txt" || fail "no line \"$line\""
done
if grep -E 'FAILED|left out: the deadline' "$work/out/summary.txt"; then
  fail "a step has failed"
fi
[[ -s $work/out.tar.gz ]] || fail "there is no archive"
# What is to be committed: reports and clocks, and when each step ran.
grep -Eq '^execute-1f1b,|^execute-.*-zb-v,' "$work/out/raw/steps.csv" ||
  fail "raw results do not say when a step ran"
grep -q '"step_s"' "$work/out/raw/"execute-*.json ||
  fail "raw results have no report"
# grep reads to the end: with pipefail a reader that stops early fails zcat once
# the clocks are longer than a pipe holds.
zcat "$work/out/raw/clocks.csv.gz" |
  grep '^2026/11/26 .*, 1980, ' > /dev/null ||
  fail "raw results have no clocks"
if compgen -G "$work/out/raw/*.trace.json" > /dev/null; then
  fail "raw results have traces"
fi
cat "$work/out/summary.txt"

# A step that does not end is ended and named, and those behind it.
if [[ $how == one ]]; then
  # It says at once if there is a device.
  printf '#!/bin/sh\n[ "$1" = pipewright-has-no-such-check ] || exec sleep 100\n' \
    > "$tree/tests/gpu/gpu_kernels"
  calibrate/gpu_run.sh --build "$tree" --out "$work/late" --work "$work/work" \
    --only checks --deadline 3 > "$work/log" 2>&1 &&
    fail "a step that never ends is no failure"
  grep -Eq '^checks .* FAILED: not done in [0-9] s$' "$work/late/summary.txt" ||
    fail "the step that never ends is not named"
  grep -q 'left out: the deadline has come' "$work/late/summary.txt" ||
    fail "the steps behind it are not named"
fi
