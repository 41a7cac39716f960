#!/usr/bin/env bash
# Runs in which what is between ranks is measured: two processes in wall time
# under mpirun, with messages of some MiB, once over TCP and once over shared
# memory, and once with activations that go to the host and back beside the
# passes. The prediction has hops, copies and interference from a calibration
# under the same mpirun. Needs two cores that nobody else uses, and mpirun.
# Usage: [TRANSPORTS="tcp shm"] [BUDGET=60s] [SEQUENCES=16]
#   between_ranks.sh [PIPEWRIGHT [FOLDER [REPEATS]]]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pipewright=${1:-$here/../../build/release/pipewright}
out=${2:-between_ranks}
repeats=${3:-5}
transports=${TRANSPORTS:-tcp shm}
budget=${BUDGET:-60s}
sequences=${SEQUENCES:-16}
tokens=128
hidden=256 # gpt-tiny's

mkdir -p "$out"
# A rank is a process; its copies have a thread of their own, so none is bound.
ranks() { # TRANSPORT COMMAND...
  local transport=$1
  shift
  local -a mca=()
  [[ $transport != tcp ]] || mca=(--mca pml ob1 --mca btl "tcp,self")
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    mpirun --oversubscribe --bind-to none "${mca[@]}" -n 2 "$@" \
    2>> "$out/log.txt"
}

# The number of KEY in the JSON object on standard input.
number() { # KEY
  sed -n "s/^ *\"$1\": \([-+.e0-9]*\),\?\$/\1/p" | head -n 1
}

# What the CPU's kernels send are fp32.
hop_bytes=$((sequences * tokens * hidden * 4))
# One layer a stage: as much of a step as can be is between stages.
setting() { # SCHEDULE
  local stages=2
  [[ $1 != interleaved-1f1b ]] || stages=4
  echo --schedule "$1" --pp 2 --model gpt-tiny --set "model.layers=$stages" \
    --set "model.sequence=$tokens" --microbatch-size "$sequences"
}

# Bytes that a stage holds of one microbatch: what one more of them adds.
held() {
  local count peaks=()
  for count in 1 2; do
    # shellcheck disable=SC2046
    peaks+=("$("$pipewright" execute $(setting gpipe) --microbatches "$count" \
      --steps 1 --no-check --json 2>> "$out/log.txt" |
      awk '/"peak_bytes": \[/ { getline; gsub(/[ ,]/, ""); print; exit }')")
  done
  awk -v one="${peaks[0]}" -v two="${peaks[1]}" \
    'BEGIN { printf "%.0f\n", two - one }'
}

# Seconds of a copy of so many bytes, between measured sizes on the line of the
# logarithms, beyond the largest in proportion.
copy_seconds() { # PROFILE d2h|h2d BYTES
  awk -v way="\"$2\"" -v bytes="$3" '
    $1 == "copies" { in_copy = 1; beside = 0 }
    in_copy && $1 == "direction:" { direction = $2 }
    in_copy && $1 == "bytes:" { size = $2 }
    in_copy && $1 == "beside_opposite:" { beside = 1 }
    in_copy && $1 == "median_us:" {
      if (direction == way && !beside) { x[++n] = size; y[n] = $2 * 1e-6 }
      in_copy = 0
    }
    END {
      for (i = 1; i < n && x[i + 1] < bytes; ++i);
      if (bytes >= x[n]) { print y[n] * bytes / x[n]; exit }
      part = log(bytes / x[i]) / log(x[i + 1] / x[i])
      print y[i] * exp(part * log(y[i + 1] / y[i]))
    }' "$1"
}

held_bytes=$(held)
echo "a stage holds $held_bytes bytes of a microbatch" >&2
for transport in $transports; do
  profile=$out/profile_$transport.txtpb
  [[ -s $profile ]] || ranks "$transport" "$pipewright" calibrate --device cpu \
    --model gpt-tiny --microbatch-sizes "$sequences" --sequences "$tokens" \
    --tp 1 --budget "$budget" -o "$profile" > "$out/calibrated_$transport.txt"
done

table=$out/between_ranks.csv
columns=transport,schedule,interference_s,plain_s,no_hops_s,step_s,preemptions
[[ -s $table ]] || echo "$columns" > "$table"
# Predictions with the calibrated interference, without it, and with neither it
# nor hops nor copies; and the run.
run() { # TRANSPORT NAME SCHEDULE [COPIES]
  local transport=$1 name=$2 schedule=$3 copies=${4:-}
  local profile=$out/profile_$transport.txtpb
  local -a common times=(--hop-bytes "${hop_bytes}B") free=(--p2p 0ms)
  # shellcheck disable=SC2207
  common=($(setting "$schedule") --profile "$profile")
  [[ -f $schedule ]] || common+=(--microbatches 8)
  if [[ -n $copies ]]; then
    local out_s in_s
    out_s=$(copy_seconds "$profile" d2h "$held_bytes")
    in_s=$(copy_seconds "$profile" h2d "$held_bytes")
    times+=(--set "costs.uniform.offload=${out_s}s"
      --set "costs.uniform.load=${in_s}s")
    free+=(--set costs.uniform.offload=0s --set costs.uniform.load=0s)
  fi
  predict() {
    "$pipewright" simulate "${common[@]}" --optimizer synchronised --json "$@" \
      2>> "$out/log.txt" | number iteration_s
  }
  local on off none json
  on=$(predict "${times[@]}" --interference on \
    --trace "$out/$transport.$name.simulated.json")
  off=$(predict "${times[@]}" --interference off)
  none=$(predict "${free[@]}" --interference off)
  json=$(ranks "$transport" "$pipewright" execute "${common[@]}" "${times[@]}" \
    --interference on --clock real --steps 4 --no-check --json \
    --trace "$out/$transport.$name.measured.json")
  echo "$transport,$name,$on,$off,$none,$(number iteration_s <<< "$json"),$(
    number preemptions <<< "$json")" | tee -a "$table" >&2
}

# Turn about, so that a slow moment meets all of them.
for ((repeat = 0; repeat < repeats; ++repeat)); do
  for transport in $transports; do
    for schedule in 1f1b zb-h1 interleaved-1f1b; do
      run "$transport" "$schedule" "$schedule"
    done
    run "$transport" copies "$here/copies.pws" copies
  done
done

# Where each run of the last round parts from its prediction.
for transport in $transports; do
  for name in 1f1b zb-h1 interleaved-1f1b copies; do
    "$pipewright" compare "$out/$transport.$name.simulated.json" \
      "$out/$transport.$name.measured.json" \
      > "$out/$transport.$name.compared.txt" 2>> "$out/log.txt" || true
  done
done

awk -F, '
  function median(list, count, i, j, t, v) {
    count = split(list, v, " ")
    for (i = 2; i <= count; ++i)
      for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; --j) {
        t = v[j]; v[j] = v[j - 1]; v[j - 1] = t
      }
    return count % 2 ? v[(count + 1) / 2] : (v[count / 2] + v[count / 2 + 1]) / 2
  }
  NR > 1 {
    name = $1 " " $2
    if (!(name in step)) names[++n] = name
    step[name] = step[name] " " $6
    on[name] = $3; off[name] = $4; none[name] = $5; preempted[name] += $7
  }
  END {
    printf "%-21s %11s %22s %22s %22s %9s\n", "", "executed",
      "with interference", "without", "hops, copies free", "preempted"
    for (i = 1; i <= n; ++i) {
      s = names[i]; run = median(step[s])
      printf "%-21s %8.2f ms", s, run * 1e3
      for (which = 1; which <= 3; ++which) {
        p = which == 1 ? on[s] : which == 2 ? off[s] : none[s]
        printf " %8.2f ms %+7.2f %%", p * 1e3, 100 * (p / run - 1)
      }
      printf " %9d\n", preempted[s]
    }
  }' "$table" | tee "$out/summary.txt"
