"""Own estimates of passes beside those of the shipped profiles: passes.csv.

    python3 experiments/h100/passes.py PIPEWRIGHT > experiments/h100/passes.csv
    python3 experiments/h100/passes.py PIPEWRIGHT h200 > experiments/h200/passes.csv

Run it in the repository's folder. It needs no GPU.
"""
import csv
import json
import subprocess
import sys

DEVICE = sys.argv[2] if len(sys.argv) > 2 else 'h100'
RUNS = [  # model, type, microbatch, sequence
    ('llama3-8b', 'bf16', 1, 8192),
    ('llama3-8b', 'bf16', 2, 8192),
    ('llama3-8b', 'bf16', 1, 4096),
    ('llama3-8b', 'fp8', 1, 8192),
    ('gpt-1.7b', 'bf16', 1, 2048),
    ('gpt-1.7b', 'bf16', 2, 2048),
    ('qwen3-30b-a3b', 'bf16', 1, 4096),
]


def run(*arguments):
    # Exit code 3: the run exceeds a device's memory, and its report is whole.
    done = subprocess.run([sys.argv[1], *arguments], capture_output=True)
    if done.returncode not in (0, 3):
        sys.exit(done.stderr.decode())
    return json.loads(done.stdout)


def estimated(model, kind, microbatch, sequence):
    report = run('simulate', '--analytic', DEVICE, '--model', model,
                 '--schedule', '1f1b', '--pp', '2', '--microbatches', '4',
                 '--engine', 'fast', '--json', '--sequence', str(sequence),
                 '--microbatch-size', str(microbatch), '--precision', kind)
    seconds = {}
    for op in report['costs']['ops']:
        key = (op['block'].replace(' ', '-'), op['pass'])
        seconds[key] = seconds.get(key, 0) + op['seconds']
    return seconds


def measured(model, kind, microbatch, sequence):
    report = run('calibrate', 'show', f'calibrate/profiles/{DEVICE}-{model}.txtpb',
                 '--json')
    seconds = {}
    end = f' {kind} b{microbatch} s{sequence} tp1'
    for entry in report['times']:
        words = entry['key'].split(' ')
        if entry['key'].endswith(end):
            seconds[words[0], words[1]] = entry['median_s']
    return seconds


table = csv.writer(sys.stdout, lineterminator='\n')
table.writerow(['model', 'type', 'microbatch_size', 'sequence', 'block', 'pass',
                'estimated_s', 'calibrated_s', 'error'])
for model, kind, microbatch, sequence in RUNS:
    own = estimated(model, kind, microbatch, sequence)
    gpu = measured(model, kind, microbatch, sequence)
    for block, name in own:
        if block == 'embedding' or name not in ('F', 'B', 'W'):
            continue
        ours, theirs = own[block, name], gpu[block, name]
        table.writerow([model, kind, microbatch, sequence, block, name,
                        f'{ours:.6g}', f'{theirs:.6g}',
                        f'{ours / theirs - 1:+.3f}'])
