"""Own estimates of passes beside those of the shipped profiles: passes.csv.

    python3 experiments/h100/passes.py PIPEWRIGHT > experiments/h100/passes.csv
    python3 experiments/h100/passes.py PIPEWRIGHT h200 > experiments/h200/passes.csv
    python3 experiments/h100/passes.py PIPEWRIGHT h200 --markdown

Run it in the repository's folder. It needs no GPU. With --markdown it prints the
table of the README, which tests/tables_test.cc makes again.
"""
import csv
import json
import subprocess
import sys

DEVICE = sys.argv[2] if len(sys.argv) > 2 else 'h100'
RUNS = [  # model, type, microbatch, sequence, tp
    ('llama3-8b', 'bf16', 1, 8192, 1),
    ('llama3-8b', 'bf16', 2, 8192, 1),
    ('llama3-8b', 'bf16', 1, 4096, 1),
    ('llama3-8b', 'fp8', 1, 8192, 1),
    ('gpt-1.7b', 'bf16', 1, 2048, 1),
    ('gpt-1.7b', 'bf16', 2, 2048, 1),
    ('qwen3-30b-a3b', 'bf16', 1, 4096, 1),
    ('llama3-8b', 'bf16', 1, 4096, 2),
    ('llama3-8b', 'bf16', 1, 8192, 2),
    ('llama3-8b', 'bf16', 2, 8192, 2),
    ('llama3-8b', 'bf16', 1, 4096, 4),
    ('llama3-8b', 'bf16', 1, 8192, 4),
    ('llama3-8b', 'bf16', 2, 8192, 4),
    ('llama3-8b', 'fp8', 1, 8192, 4),
    ('llama3-70b', 'bf16', 1, 8192, 4),
    ('llama3-70b', 'bf16', 1, 8192, 8),
]
PASSES = ('F', 'B', 'W')


def run(*arguments):
    # Exit code 3: the run exceeds a device's memory, and its report is whole.
    done = subprocess.run([sys.argv[1], *arguments], capture_output=True)
    if done.returncode not in (0, 3):
        sys.exit(done.stderr.decode())
    return json.loads(done.stdout)


def estimated(model, kind, microbatch, sequence, tp):
    # Layers of tensor parallelism as they were calibrated; they need links.
    more = ['--system', f'dgx-{DEVICE}', '--pp', '1', '--dp', '1', '--tp', str(tp),
            '--set', 'strategy.sequence_parallel=false'] if tp > 1 else ['--pp', '2']
    report = run('simulate', '--analytic', DEVICE, '--model', model,
                 '--schedule', '1f1b', '--microbatches', '4',
                 '--engine', 'fast', '--json', '--sequence', str(sequence),
                 '--microbatch-size', str(microbatch), '--precision', kind,
                 # No Python launches these kernels.
                 '--set', 'costs.analytic.launch_time=13.48us', *more)
    seconds = {}
    for op in report['costs']['ops']:
        key = (op['block'].replace(' ', '-'), op['pass'])
        seconds[key] = seconds.get(key, 0) + op['seconds']
    return seconds


def measured(model, kind, microbatch, sequence, tp):
    report = run('calibrate', 'show', f'calibrate/profiles/{DEVICE}-{model}.txtpb',
                 '--json')
    seconds = {}
    end = f' {kind} b{microbatch} s{sequence} tp{tp}'
    for entry in report['times']:
        words = entry['key'].split(' ')
        if entry['key'].endswith(end):
            seconds[words[0], words[1]] = entry['median_s']
    return seconds


def milliseconds(seconds):
    return f'{1e3 * seconds:.2f}' if seconds >= 1e-3 else f'{1e3 * seconds:.3f}'


markdown = '--markdown' in sys.argv
table = csv.writer(sys.stdout, lineterminator='\n')
if markdown:
    print('| Model | Block | F | B | W |\n|---|---|---|---|---|')
else:
    table.writerow(['model', 'type', 'microbatch_size', 'sequence', 'tp', 'block',
                    'pass', 'estimated_s', 'calibrated_s', 'error'])
for model, kind, microbatch, sequence, tp in RUNS:
    own = estimated(model, kind, microbatch, sequence, tp)
    gpu = measured(model, kind, microbatch, sequence, tp)
    for block in dict.fromkeys(block for block, name in own):
        # Embeddings are short; heads of tensor parallelism were not compared.
        if block == 'embedding' or (tp > 1 and block == 'head'):
            continue
        cells = []
        for name in PASSES:
            ours, theirs = own[block, name], gpu[block, name]
            cells.append(f'{milliseconds(ours)}, {milliseconds(theirs)}: '
                         f'{100 * (ours / theirs - 1):+.1f} %')
            if markdown:
                continue
            table.writerow([model, kind, microbatch, sequence, tp, block, name,
                            f'{ours:.6g}', f'{theirs:.6g}',
                            f'{ours / theirs - 1:+.3f}'])
        if markdown:
            setting = f'{model}, {kind}, b{microbatch} s{sequence}'
            if tp > 1:
                setting += f', tp {tp}'
            print('| ' + ' | '.join([setting, block, *cells]) + ' |')
