#!/usr/bin/env bash
#SBATCH --job-name=pipewright
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=01:00:00
#
# What several machines with GPUs are needed for, in one job: sbatch
# calibrate/slurm_run.sh --build DIR. One task a GPU. Every step has a log, a
# limit of its own and a line in the summary; what is missing is said and left
# out. The folders must be on a file system that all machines see. Changes no
# setting of the GPUs.
#
# Needs a build with libpipewright_cuda.so and libpipewright_nccl.so;
# calibrate/gpu_run.sh makes one (its build/gpu/tree).
set -uo pipefail
# Slurm runs a copy of this file, from the folder of the call of sbatch.
cd "${SLURM_SUBMIT_DIR:-$PWD}" || exit 1
if [[ ! -f calibrate/run_steps.sh ]]; then
  printf "slurm_run.sh: submit it from the repository's folder\n" >&2
  exit 2
fi

usage() {
  cat << 'END'
Usage: sbatch [SBATCH OPTIONS] calibrate/slurm_run.sh --build DIR [OPTIONS]

  --build DIR    where the program and its libraries were built
  --out DIR      logs and results (default: slurm_results)
  --model NAME   what to calibrate and run (default: gpt-tiny)
  --limit S      seconds for each step (default: 300)
  --deadline S   seconds for all of it (default: none): a step gets what is
                 left, and steps for which nothing is left are named
  --interface I  where tasks reach each other over TCP, for a few bytes: a
                 network interface (default: that of `hostname -I`, the first)

Exit 0: every step that could run succeeded; 1: one failed; 2: wrong usage.
END
}

build='' out=slurm_results model=gpt-tiny limit=300 deadline=0 interface=''
while [[ $# -gt 0 ]]; do
  option=$1
  shift
  case $option in
    -h | --help)
      usage
      exit 0
      ;;
    --build | --out | --model | --limit | --deadline | --interface)
      if [[ $# -eq 0 ]]; then
        printf 'slurm_run.sh: %s needs a value\n' "$option" >&2
        exit 2
      fi
      ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
  case $option in
    --build) build=$1 ;;
    --out) out=$1 ;;
    --model) model=$1 ;;
    --limit) limit=$1 ;;
    --deadline) deadline=$1 ;;
    --interface) interface=$1 ;;
  esac
  shift
done
for seconds in "$limit" "$deadline"; do
  if [[ ! $seconds =~ ^[0-9]+$ ]]; then
    printf 'slurm_run.sh: %s is not a number of seconds\n' "$seconds" >&2
    exit 2
  fi
done
if [[ ! -x $build/pipewright ]]; then
  printf 'slurm_run.sh: --build %s: there is no pipewright in it\n' \
    "${build:-(not given)}" >&2
  exit 2
fi
ranks=${SLURM_NTASKS:-}
nodes=${SLURM_JOB_NUM_NODES:-}
if [[ ! $ranks =~ ^[0-9]+$ || ! $nodes =~ ^[0-9]+$ || $ranks -lt 2 ]]; then
  printf 'slurm_run.sh: not in a job of Slurm with two tasks or more\n' >&2
  exit 2
fi
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
build=$(cd "$build" && pwd)
. calibrate/run_steps.sh

export PIPEWRIGHT_CUDA_LIBRARY=$build/libpipewright_cuda.so
say "$(date -u '+%F %T') UTC, $nodes nodes, $ranks tasks: ${SLURM_JOB_NODELIST:-}"
say_version "$build/pipewright"

# What each machine is; a task a machine.
about() {
  hostname
  uname -r
  nproc
  nvidia-smi || echo 'no nvidia-smi'
  nvidia-smi topo -m
  env | grep -E '^(NCCL|UCX|CUDA|LD_LIBRARY_PATH|SLURM_(JOB|STEP)_)' | sort
  ls /sys/class/infiniband 2> /dev/null
  return 0
}
export -f about
step nodes 60 srun --ntasks="$nodes" --ntasks-per-node=1 --label bash -c about

for library in libpipewright_cuda.so libpipewright_nccl.so; do
  if [[ ! -e $build/$library ]]; then
    say "there is no $library in $build: nothing more can run"
    exit 1
  fi
done

# A task of a job that meets at a file. It says at which address of its machine.
task() { # NAME VERB OPTIONS...
  local name=$1 listen=()
  shift
  [[ -n $interface ]] || interface=$(hostname -I | tr ' ' '\n' |
    grep -m 1 -E '^[0-9]+(\.[0-9]+){3}$')
  [[ -z $interface ]] || listen=(--listen "$interface")
  exec "$build/pipewright" "$@" --device cuda --transport nccl \
    --model "$model" --bootstrap "file:$out/$name.job" \
    --rank "$SLURM_PROCID" --ranks "$SLURM_NTASKS" "${listen[@]}"
}
export -f task
export build out model interface

tasks() { # NAME FILE VERB OPTIONS...
  local name=$1 makes=$2
  shift 2
  rm -f "$out/$name.job"*
  step "$name" "$limit" srun --kill-on-bad-exit=1 \
    bash -c 'task "$@"' task "$name" "$@" -o "$makes"
}

# Transfers over NCCL between the machines, and the passes.
profile=$out/$model.txtpb
tasks "calibrate-$model" "$profile" calibrate
nccl_calibrated "$profile"

execute() { # NAME OPTIONS...
  local name=$1
  shift
  tasks "$name" "$out/$name.json" execute --clock real --timeout 60 --steps 3 \
    --json "$@"
}
# The pipeline across the machines; then two copies of one half as long.
execute execute-1f1b --schedule 1f1b --pp "$ranks" --microbatches $((2 * ranks))
execute execute-zb-h1 --schedule zb-h1 --pp "$ranks" \
  --microbatches $((2 * ranks))
if [[ $((ranks % 2)) -eq 0 && $ranks -ge 4 ]]; then
  execute execute-1f1b-ddp --schedule 1f1b --pp $((ranks / 2)) --dp 2 \
    --microbatches "$ranks" --data-parallel ddp
fi

finish
