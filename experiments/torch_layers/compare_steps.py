"""A layer of FSDP2's steps beside its estimate, in milliseconds:

    python3 compare_steps.py PIPEWRIGHT STEPS.csv

Estimated: F, B, W and recomputation of `simulate --analytic h100 --framework
torchtitan` for a median card; the copies out of what is gathered, twice, and into
what is reduced, at the rates of lower_beside.cc; and AdamW of a whole layer, as
measured. It needs no GPU.
"""
import csv
import json
import subprocess
import sys

PROGRAM, MEASURED = sys.argv[1:3]
PARAMETERS, LAYERS = 218112000, 32
STREAM = 3.35e12 * 0.896  # bytes a second, devices/h100-80gb.textproto
COPIES_S = PARAMETERS / STREAM * (2 * 2 * 2 / 0.89 + (2 + 4) / 0.65)


def estimate(kernels, precision, recompute):
    done = subprocess.run(
        [PROGRAM, 'simulate', '--model', 'llama3-8b', '--system', 'dgx-h100',
         '--nodes', '1', '--analytic', 'h100', '--framework', 'torchtitan',
         '--schedule', '1f1b', '--pp', '1', '--dp', '8', '--microbatches', '1',
         '--microbatch-size', '2', '--sequence', '8192', '--precision',
         precision, '--recompute', recompute, '--engine', 'fast', '--json',
         '--memory', '200GiB', '--set', f'costs.analytic.kernels={kernels}',
         '--set', f'strategy.launch={kernels}',
         '--set', 'costs.analytic.speed_range=0'],
        capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    costs = json.loads(done.stdout)['costs']
    seconds = sum(op['seconds'] for op in costs['ops']
                  if op['block'] == 'layer')
    return seconds + costs['stages'][0]['recompute_s'] / LAYERS


with open(MEASURED) as file:
    rows = list(csv.DictReader(file))
adam_s = [float(row['seconds']) for row in rows
          if row['what'] == 'AdamW' and row['case'] == 'fused'][0] / 2
for row in rows:
    if row['what'] != 'layer' or 'default' in row['case']:
        continue
    launch, precision, again, _ = row['case'].split(', ')
    own = estimate(launch, {'bf16': 'bf16', 'fp8': 'fp8-tensorwise'}[precision],
                   'op-selective' if again == 'recomputed' else 'none')
    own += COPIES_S + adam_s
    took = float(row['seconds'])
    print(f"{row['case']}: measured {1e3 * took:.1f}, estimated "
          f"{1e3 * own:.1f}, {own / took - 1:+.1%}")
