#!/usr/bin/env bash
# How much faster odc is than FSDP2 layer by layer: over the minibatch, over the
# spread of lengths, over devices, and over the length of sequences, inside a
# node and across nodes. Every point is `simulate --seeds` with two --versus, so
# that all three strategies meet the same lengths. About a minute on two cores.
# Begun again with the same FOLDER it goes on: what has its rows is not run.
# Usage: [SEEDS=100] run.sh [PIPEWRIGHT [FOLDER]]
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pipewright=${1:-$here/../../build/release/pipewright}
out=${2:-odc}
seeds=${SEEDS:-100}
mkdir -p "$out"
table=$out/results.csv
[[ -s $table ]] ||
  echo "figure,x,where,strategy,devices,step_s,fsdp_step_s,gain,low,high" > "$table"

base=(--model qwen2.5-7b --system dgx-a100 --analytic --recompute full
  --schedule 1f1b --pp 1 --data-parallel fsdp --shard-blocks layer
  --packer lb-micro --packer-cost fit --engine fast)

# Rows of one point. The gain is FSDP's mean step over odc's; its interval is
# that of the difference of steps, draw by draw.
point() { # FIGURE X DEVICES LENGTHS MINIBATCH
  ! grep -q "^$1,$2,[^,]*,[^,]*,$3," "$table" || return 0
  local where="one node"
  local nodes=$((($3 + 7) / 8))
  ((nodes == 1)) || where="8 devices a node"
  "$pipewright" simulate "${base[@]}" --dp "$3" --nodes "$nodes" \
    --lengths "$4" --minibatch "$5" --seeds "$seeds" \
    --versus strategy.data_parallel=odc \
    --versus strategy.data_parallel=odc,sequences.packer=lb-mini \
    --json 2> "$out/warnings.txt" |
    awk -v figure="$1" -v x="$2" -v devices="$3" -v where="$where" '
      $1 == "\"mean_s\":" { sub(/,$/, "", $2); mean[++strategies] = $2 }
      $1 == "\"half_interval_s\":" { sub(/,$/, "", $2); half[++tests] = $2 }
      END {
        if (strategies != 3 || tests != 3) exit 1
        names[2] = "lb-micro"
        names[3] = "lb-mini"
        # Tests: first and second, first and third, second and third.
        for (s = 2; s <= 3; ++s)
          printf "%s,%s,%s,%s,%d,%.6g,%.6g,%.4f,%.4f,%.4f\n", figure, x, where,
            names[s], devices, mean[s], mean[1], mean[1] / mean[s],
            mean[1] / (mean[s] + half[s - 1]), mean[1] / (mean[s] - half[s - 1])
      }' >> "$table"
}

for minibatch in 1 2 4 8 16; do
  point minibatch "$minibatch" 8 longalign "$minibatch"
  point minibatch "$minibatch" 16 longalign "$minibatch"
done
# Lognormal lengths of one median; 0 is every length alike.
for sigma in 0 0.2 0.4 0.6 0.8 1; do
  law=lognormal:12000,$sigma,100,65536
  [[ $sigma != 0 ]] || law=constant:12000
  point spread "$sigma" 8 "$law" 4
  point spread "$sigma" 16 "$law" 4
done
for devices in 2 4 8 16 32 64; do
  point devices "$devices" "$devices" longalign 4
done
# The law of LongAlign with all its lengths scaled: its longest, in tokens.
for longest in 2048 4096 8192 16384 32768 65536; do
  law=$(awk -v f="$longest" 'BEGIN { f /= 65536
    printf "lognormal:%.0f,0.75,%.0f,%.0f", 11000 * f, 8000 * f, 65536 * f }')
  point length "$longest" 8 "$law" 4
  point length "$longest" 16 "$law" 4
done

# Figures: one an x, a series a strategy and place.
figure() { # NAME TITLE X-LABEL
  awk -F, -v name="$1" 'NR > 1 && $1 == name {
      place = $5 <= 8 ? "one node" : "two nodes"
      if ($1 == "devices") place = "nodes of 8"
      series = "odc " $4 ", " place
      printf "{\"%s\": %s, \"gain\": %s, \"series\": \"%s\"}\n", name, $2, $8, series
    }' "$table" > "$out/$1.json"
  for ending in svg png; do
    "$pipewright" plot "$out/$1.json" --x "$1" --y gain --series series \
      --kind line --no-front --title "$2" -o "$out/$1.$ending"
  done
}
figure minibatch "Gain of odc over the minibatch"
figure spread "Gain of odc over the spread of lengths"
figure devices "Gain of odc over devices"
figure length "Gain of odc over the longest sample"

# The page: figures and the table.
{
  cat << 'HTML'
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Gain of odc</title>
<style>
body { font: 15px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222 }
section { display: inline-block; width: 48%; min-width: 24em; vertical-align: top }
svg { width: 100%; height: auto }
table { border-collapse: collapse; font-size: 13px }
td, th { padding: 2px 10px; text-align: right; border-bottom: 1px solid #ddd }
</style></head><body>
<h1>Gain of odc over FSDP2, layer by layer</h1>
<p>Mean step of FSDP2 with LB-Micro over the mean step of odc, same draws of
lengths. qwen2.5-7b on DGX A100, analytic pass times, full recomputation, engine
fast; minibatch 4, 8 or 16 devices and LongAlign's law where nothing else is
said. Above 1 odc is faster. Low and high: 95 % interval of the difference draw
by draw.</p>
HTML
  for name in minibatch spread devices length; do
    echo "<section>"
    grep -v '^<?xml' "$out/$name.svg"
    echo "</section>"
  done
  echo "<h2>All points</h2><table>"
  awk -F, '{
      cell = NR == 1 ? "th" : "td"
      printf "<tr>"
      for (i = 1; i <= NF; ++i) printf "<%s>%s</%s>", cell, $i, cell
      print "</tr>"
    }' "$table"
  echo "</table></body></html>"
} > "$out/results.html"
echo "$out/results.html"
