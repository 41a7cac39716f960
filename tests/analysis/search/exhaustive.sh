#!/bin/bash
# Does `plan` find the best? Its answer against every point of a space, all run
# by `sweep`. The points are listed here, by rules written down anew
# (docs/plan.md): neither the enumerator nor the bound of the program takes part.
# Every 500th point is also run by `simulate`, a process of its own. Takes
# minutes; CI runs the small case in tests/cli/plan_test.cc.
#
#   tests/analysis/search/exhaustive.sh PIPEWRIGHT [SPACE...] [-j N]
#
# Prints for each space the points, the best of both, and whether the first ten are
# the same; exits with 1 if any differs.
set -euo pipefail

program=$1
shift
jobs=2
spaces=()
while (($#)); do
  case $1 in
    -j) jobs=$2; shift 2 ;;
    *) spaces+=("$1"); shift ;;
  esac
done
((${#spaces[@]})) || spaces=(dense-8 dense-16 uneven-8 braided-8 copies-8 names-8)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Layouts of the rule "ends": fewer layers on the first and on the last stage,
# what is left over one to a stage from the named place on.
layouts() { # layers pp vpp
  local layers=$1 pp=$2 vpp=$3 stages=$(($2 * $3)) first last each left
  ((layers % stages == 0)) && echo even
  ((stages > 1)) || return 0
  for first in 0 1; do
    for last in 0 1 2; do
      each=$(((layers + first + last) / stages))
      left=$((layers + first + last - each * stages))
      ((each >= first && each >= last && left <= stages - 2)) || continue
      local chunk place
      for chunk in late early; do
        for place in middle high low; do
          counts "$pp" "$vpp" "$first" "$last" "$each" "$left" "$chunk" "$place"
        done
      done
    done
  done
}

counts() { # pp vpp first last each left chunk place
  local pp=$1 vpp=$2 stages=$(($1 * $2)) left=$6 index step chunk
  local -a count=() within=()
  for ((index = 0; index < stages; ++index)); do count[index]=$5; done
  ((count[0] -= $3)) || true
  ((count[stages - 1] -= $4)) || true
  case $8 in
    low) for ((index = 0; index < pp; ++index)); do within+=("$index"); done ;;
    high) for ((index = pp - 1; index >= 0; --index)); do within+=("$index"); done ;;
    middle)
      local middle=$(((pp - 1) / 2))
      for ((step = 0; step < pp; ++step)); do
        if ((step % 2)); then index=$((middle + (step + 1) / 2)); else index=$((middle - step / 2)); fi
        if ((index >= 0 && index < pp)); then within+=("$index"); fi
      done
      ;;
  esac
  for ((chunk = 0; chunk < vpp; ++chunk)); do
    for index in "${within[@]}"; do
      ((left > 0)) || break 2
      local stage=$(($([[ $7 == late ]] && echo $((vpp - 1 - chunk)) || echo "$chunk") * pp + index))
      ((stage > 0 && stage < stages - 1)) || continue
      ((count[stage] += 1))
      ((left -= 1)) || true
    done
  done
  local IFS=,
  echo "--layers ${count[*]}"
}

# One line of flags for each point.
points() { # layers sequence devices batch schedules...
  local layers=$1 devices=$2 batch=$3 tp pp dp size schedule vpp recompute mode layout
  shift 3
  for tp in 1 2 4 8; do
    for ((pp = 1; pp <= devices / tp && pp <= layers; ++pp)); do
      ((devices / tp % pp == 0)) || continue
      dp=$((devices / tp / pp))
      ((batch % dp == 0)) || continue
      for size in 1 2 4 8; do
        ((batch / dp % size == 0)) || continue
        for schedule in "$@"; do
          for vpp in $all_chunks; do
            ((pp > 1 || vpp == 1)) || continue
            ((pp * vpp <= layers + 2)) || continue
            layouts "$layers" "$pp" "$vpp" | sort -u | while read -r layout; do
              [[ $layout == even ]] && layout=
              for recompute in none norm-activation full; do
                for mode in $( ((dp > 1)) && echo ddp zero1 zero2 fsdp || echo none); do
                  for offload in $offloads; do
                    echo "--tp $tp --pp $pp --dp $dp --microbatch-size $size" \
                      "--microbatches $((batch / dp / size)) --vpp $vpp" \
                      "--schedule ${schedule%%:*} --recompute $recompute" \
                      "$([[ $mode == none ]] || echo "--data-parallel $mode")" \
                      "--offload $offload $layout"
                  done
                done
              done
            done
          done
        done
      done
    done
  done
}

# The points as linked axes of one sweep; prints the time and the flags of each
# that runs and fits.
swept() { # FILE
  python3 - "$1" "$layers" > "$work/grid.yaml" << 'END'
import json
import sys

axes = {'tp': 'strategy.tp', 'pp': 'strategy.pp', 'dp': 'strategy.dp',
        'microbatch-size': 'strategy.microbatch_size',
        'microbatches': 'strategy.microbatches', 'vpp': 'strategy.vpp',
        'schedule': 'schedule.name', 'recompute': 'strategy.recompute',
        'data-parallel': 'strategy.data_parallel',
        'offload': 'strategy.offload', 'layers': 'strategy.layers'}
rows = []
for line in open(sys.argv[1]):
    words = line.split()
    row = dict(zip([word[2:] for word in words[::2]], words[1::2]))
    row.setdefault('data-parallel', 'none')
    stages = int(row['pp']) * int(row['vpp'])
    each = str(int(sys.argv[2]) // stages)
    row['layers'] = [int(count) for count in
                     row.get('layers', ','.join([each] * stages)).split(',')]
    rows.append(row)


def value(text):
    return int(text) if isinstance(text, str) and text.isdigit() else text


print(json.dumps({'linked': [{field: [value(row[flag]) for row in rows]
                              for flag, field in axes.items()}]}))
END
  rm -f "$work/runs.sqlite" "$work/runs.csv"
  "$program" sweep "$work/grid.yaml" "${base[@]}" --engine fast -j "$jobs" \
    -o "$work/runs.sqlite" --csv "$work/runs.csv" > "$work/sweep.log" 2>&1 || {
    cat "$work/sweep.log" >&2
    exit 1
  }
  python3 - "$work/grid.yaml" "$work/runs.csv" "$work/legal" << 'END'
import csv
import json
import sys

with open(sys.argv[1]) as file:
    axes = json.load(file)['linked'][0]
points = {json.dumps(point) for point in zip(*axes.values())}
with open(sys.argv[2]) as file:
    rows = list(csv.DictReader(file))
assert len(rows) == len(points), (len(rows), len(points))
assert all(row['status'] in ('ok', 'misfit', 'refused') for row in rows)
with open(sys.argv[3], 'w') as file:
    print(sum(row['status'] != 'refused' for row in rows), file=file)
for row in rows:
    if row['status'] == 'ok':
        flags = ['--' + name.split('.')[1].replace('_', '-') + ' ' + row[name]
                 for name in row if name.startswith('strategy.')]
        print(row['iteration_s'], '--schedule', row['schedule.name'], *flags)
END
}

# Every 500th by a process of its own.
again() { # FILE
  local seconds flags own
  while read -r seconds flags; do
    # shellcheck disable=SC2086
    own=$("$program" simulate "${base[@]}" --engine fast --json $flags \
      2> /dev/null | grep -m1 '"iteration_s"' | sed 's/.*: //; s/,$//')
    if [[ $own != "$seconds" ]]; then
      printf '  simulate says %s, sweep %s: %s\n' "$own" "$seconds" "$flags"
      return 1
    fi
  done < <(awk 'NR % 500 == 1' "$1")
}

failed=0
for space in "${spaces[@]}"; do
  more=() offloads=none
  case $space in
    dense-8) model=llama3-8b nodes=1 devices=8 batch=16 layers=32
      schedules=('1f1b:1' 'zb-h1:1' 'interleaved-1f1b:2 4') ;;
    dense-16) model=llama3-8b nodes=2 devices=16 batch=32 layers=32
      schedules=('1f1b:1' 'interleaved-1f1b:2') ;;
    uneven-8) model=llama2-7b nodes=1 devices=8 batch=24 layers=32
      schedules=('1f1b:1' 'gpipe:1' 'zb-h1:1' 'interleaved-1f1b:2 3 5') ;;
    braided-8) model=llama3-8b nodes=1 devices=8 batch=16 layers=32
      schedules=('1f1b:1')
      more=(--set strategy.braided_tensor=true --set system.nvlink.bandwidth=60GBps) ;;
    copies-8) model=llama3-8b nodes=1 devices=8 batch=32 layers=32
      offloads='none selective full'
      schedules=('1f1b:1' 'zb-h1:1' 'interleaved-1f1b:2')
      more=(--set "strategy.sequence=32768") ;;
    names-8) model=llama3-8b nodes=1 devices=8 batch=16 layers=32
      schedules=('1f1b:1' 'zb-h1:1' 'zb-h2:1' 'gis:2' 'interleaved-zb:2') ;;
    *) echo "unknown space $space" >&2; exit 2 ;;
  esac
  base=(--model "$model" --system dgx-h100 --nodes "$nodes" --analytic
    "${more[@]}")
  # Any schedule with any number of chunks; what it does not take does not run.
  all_chunks=$(printf '%s\n' "${schedules[@]#*:}" | tr ' ' '\n' | sort -nu | paste -sd' ')
  points "$layers" "$devices" "$batch" "${schedules[@]}" > "$work/points"
  # The time of each that runs and fits.
  swept "$work/points" > "$work/times"
  best=$(sort -g "$work/times" | sed -n 1p)
  again "$work/times" || failed=1
  names=() chunks=()
  for schedule in "${schedules[@]}"; do
    names+=("${schedule%%:*}")
    for vpp in ${schedule#*:}; do chunks+=("$vpp"); done
  done
  "$program" plan "${base[@]}" --global-batch "$batch" --no-confirm \
    --fix cp=1 --fix "offload=${offloads// /,}" \
    --fix "schedule=$(IFS=,; echo "${names[*]}")" \
    --fix "vpp=$(printf '%s\n' "${chunks[@]}" | sort -nu | paste -sd,)" --json > "$work/plan.json" || true
  # The first ten, so as `ranked` and the sweep have them; schedules that print
  # the same order are one.
  verdict=$(python3 - "$work/times" "$work/plan.json" "$program" << 'END'
import functools
import json
import re
import subprocess
import sys

with open(sys.argv[1]) as file:
    rows = [line.split(None, 1) for line in file]
fit = {flags for _, flags in rows}


def without(flags):
    return re.sub('--offload [a-z]+', '--offload none', flags)


@functools.lru_cache(None)
def order(schedule, pp, vpp, microbatches):
    text = subprocess.run(
        [sys.argv[3], 'schedule', schedule, '--pp', pp, '--vpp', vpp,
         '--microbatches', microbatches],
        check=True, capture_output=True, text=True).stdout
    # With one chunk a loop is plain.
    return text.replace('placement loop', 'placement plain') if vpp == '1' else text


def alike(flags):
    words = flags.split()
    row = dict(zip(words[::2], words[1::2]))
    return (order(row.pop('--schedule'), row['--pp'], row['--vpp'],
                  row['--microbatches']), tuple(sorted(row.items())))


# If a run fits without copies, plan does not look at it with them.
swept = []
seen = set()
for seconds, flags in sorted((float(row[0]), row[1]) for row in rows):
    if flags != without(flags) and without(flags) in fit:
        continue
    if len(swept) == 10:
        break
    if alike(flags) not in seen:
        seen.add(alike(flags))
        swept.append(seconds)
with open(sys.argv[2]) as file:
    plan = [row['iteration_s'] for row in json.load(file)['ranked']][:10]
print(plan[0] if plan else 'none', end=' ')
print('same' if len(plan) == len(swept) and all(
    abs(one - other) < 1e-9 * other for one, other in zip(plan, swept))
      else f'DIFFERS: exhaustive {swept}, plan {plan}')
END
  )
  printf '%s: %s points, %s legal, %s fit\n  exhaustive %s\n  plan       %s\n' \
    "$space" "$(wc -l < "$work/points")" "$(cat "$work/legal")" \
    "$(wc -l < "$work/times")" "$best" "${verdict%% *}"
  if [[ ${verdict#* } == same ]]; then
    echo "  the first ten are the same"
  else
    echo "  ${verdict#* }"
    failed=1
  fi
done
exit "$failed"
