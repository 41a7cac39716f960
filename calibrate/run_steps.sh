# Steps with a limit, a log and a line in the summary; gpu_run.sh and slurm_run.sh
# read it. They set `out`, the folder of results, and `deadline`, seconds for all
# of it or 0.
: > "$out/summary.txt"
echo 'step,begin,end' > "$out/steps.csv" # UTC
failures=0

# Five times a second until the end, of this machine's GPUs: the clocks that a
# result belongs to.
clocks_pid=''
clock_fields=timestamp,index,clocks.sm,clocks.mem,power.draw,temperature.gpu
clock_fields+=,clocks_throttle_reasons.active
stop_clocks() {
  [[ -z $clocks_pid ]] || kill "$clocks_pid" 2> /dev/null
  clocks_pid=''
}
trap stop_clocks EXIT
if command -v nvidia-smi > /dev/null; then
  nvidia-smi "--query-gpu=$clock_fields" --format=csv,nounits --loop-ms=200 \
    > "$out/clocks.csv" 2>&1 < /dev/null &
  clocks_pid=$!
fi
now() { date -u '+%F %T.%3N'; }

say() { printf '%s\n' "$*" | tee -a "$out/summary.txt"; }

# What a step of so many seconds gets of what the deadline leaves; 0: nothing.
granted() { # SECONDS
  local seconds=$1 left=$((deadline - SECONDS))
  if [[ $deadline -gt 0 && $seconds -gt $left ]]; then
    seconds=$((left > 0 ? left : 0))
  fi
  echo "$seconds"
}

# step NAME SECONDS COMMAND...: 77 is a step that has nothing to do here. It is
# not done within SECONDS, or within what the deadline leaves: it failed. So it has
# where it does not write the file `makes`, which goes before it begins.
step() {
  local name=$1 seconds start=$SECONDS status verdict=ok begin made=${makes:-}
  seconds=$(granted "$2")
  shift 2
  if [[ $seconds -lt 1 ]]; then
    say "$(printf '%-28s    - s  left out: the deadline has come' "$name")"
    failures=$((failures + 1))
    return 1
  fi
  [[ -z $made ]] || rm -f "$made"
  begin=$(now)
  timeout --kill-after=10 "$seconds" "$@" > "$out/$name.log" 2>&1 < /dev/null
  status=$?
  echo "$name,$begin,$(now)" >> "$out/steps.csv"
  if [[ $status -eq 0 && -n $made && ! -s $made ]]; then
    status=1
    verdict="FAILED: it has not written ${made##*/}"
  fi
  case $status in
    0) ;;
    77) verdict='skipped (see its log)' ;;
    124 | 137) verdict="FAILED: not done in $seconds s" ;;
    *) [[ $verdict != ok ]] || verdict="FAILED: exit $status" ;;
  esac
  say "$(printf '%-28s %4d s  %s' "$name" "$((SECONDS - start))" "$verdict")"
  if [[ $status -ne 0 && $status -ne 77 ]]; then
    failures=$((failures + 1))
    tail -n 15 "$out/$name.log"
  fi
  return "$status"
}

# What a profile has of transfers between GPUs; none is a failure.
nccl_calibrated() { # PROFILE
  local profile=$1 count
  [[ -s $profile ]] || return
  count=$(grep -c 'transport: "nccl"' "$profile")
  say "$profile: $count transfers over NCCL"
  [[ $count -eq 0 ]] || return
  failures=$((failures + 1))
  grep 'warnings: .*NCCL' "$profile" | tee -a "$out/summary.txt"
}

# How many GPUs a program sees. `nvidia-smi -L` lists all, whatever
# CUDA_VISIBLE_DEVICES says: numbers or (shortened) names, of which CUDA takes those
# before the first that it does not know. Of MIG's instances it takes one.
visible_gpus() {
  nvidia-smi -L 2> /dev/null | awk -v set="${CUDA_VISIBLE_DEVICES+1}" \
    -v wanted="${CUDA_VISIBLE_DEVICES-}" '
    { name = $NF; sub(/\)$/, "", name) }
    /^GPU / { uuid[gpus++] = name; instances[gpus - 1] = 0 }
    /^ +MIG / { mig[migs++] = name; instances[gpus - 1]++ }
    END {
      for (at = 0; at < gpus; ++at) whole += !instances[at]
      if (!set) { print (whole ? whole : (migs > 0)); exit }
      count = split(wanted, names, ",")
      for (at = 1; at <= count; ++at) {
        known = 0
        for (gpu = 0; gpu < gpus; ++gpu) {
          if (instances[gpu]) continue
          if (names[at] == gpu "" ||
              (names[at] ~ /^GPU-/ && index(uuid[gpu], names[at]) == 1)) {
            known = 1
          }
        }
        for (instance = 0; instance < migs; ++instance) {
          if (names[at] ~ /^MIG-/ && index(mig[instance], names[at]) == 1) {
            print found ? found : 1
            exit
          }
        }
        if (!known) break
        ++found
      }
      print found + 0
    }'
}

# What was run, and where: the head of a summary that is sent to somebody.
say_version() { # PROGRAM
  say "$("$1" version 2>&1 | head -n 1), $(git log -1 --format='commit %h of %cs' \
    2> /dev/null || echo 'no commit known')"
}

# What is small and says what was measured, to be committed with a table that is
# made of it: reports, profiles, clocks; no traces and no logs.
keep_raw() {
  local file
  rm -rf "$out/raw"
  mkdir -p "$out/raw"
  for file in "$out"/*.json "$out"/*.txtpb "$out"/*.csv "$out/summary.txt"; do
    if [[ ! -s $file || $file == *.trace.json ]]; then continue; fi
    if [[ $file == */clocks.csv ]]; then
      gzip -9 -n -c "$file" > "$out/raw/clocks.csv.gz"
    else
      cp "$file" "$out/raw/"
    fi
  done
  say "raw results to commit: $out/raw"
}

# The last lines; false where a step failed.
finish() {
  stop_clocks
  say "$failures steps failed; results in $out"
  keep_raw
  if tar -C "$(dirname "$out")" -czf "$out.tar.gz" "$(basename "$out")"; then
    printf 'to send: %s\n' "$out.tar.gz"
  fi
  [[ $failures -eq 0 ]]
}
