"""Estimates beside what PyTorch took, in milliseconds of one layer, forward and
backward: python3 compare.py PIPEWRIGHT DEVICE MEASURED.csv > DEVICE-compared.csv

An estimate is that of `simulate --analytic DEVICE` with fused kernels, exchanges
left out; the last two columns have the error with `costs.analytic.kernels:
compiled` and `eager`. It needs no GPU.
"""
import csv
import json
import subprocess
import sys

PROGRAM, DEVICE, MEASURED = sys.argv[1:4]
MODELS = {'llama3-8b': ['llama3-8b'], 'llama3-8b head': ['llama3-8b'],
          'llama3-70b tp8': ['llama3-70b', '--tp', '8'],
          'llama3-70b tp4': ['llama3-70b', '--tp', '4'],
          'llama3-405b tp8': ['llama3-405b', '--tp', '8'],
          'qwen3-30b-a3b ep8 grouped': ['qwen3-30b-a3b', '--dp', '8', '--set',
                                        'strategy.ep=8'],
          'qwen3-30b-a3b ep8 loop': ['qwen3-30b-a3b', '--dp', '8', '--set',
                                     'strategy.ep=8']}


def estimate(name, launch, precision, tokens, kernels):
    batch, sequence = tokens.split('x')
    model, *options = MODELS[name]
    if '--tp' in options:
        options += ['--set', 'strategy.sequence_parallel=false']
    # One card is no slowest one, and W writes its gradient once, in 16 bit.
    # PyTorch launches the kernels, not Megatron-LM.
    options += ['--set', 'costs.analytic.launch_time=13.48us',
                '--set', 'costs.analytic.speed_range=0',
                '--set', 'strategy.gradient_bytes_per_parameter=2']
    kinds = {'bf16': 'bf16', 'fp8': 'fp8-tensorwise'}
    done = subprocess.run(
        [PROGRAM, 'simulate', '--analytic', DEVICE, '--system',
         'dgx-' + DEVICE, '--nodes', '4', '--model', model,
         '--schedule', '1f1b', '--pp', '2', '--microbatches', '4', '--engine',
         'fast', '--json', '--sequence', sequence, '--microbatch-size', batch,
         '--precision', kinds[precision], '--set', f'strategy.launch={launch}',
         '--set', f'costs.analytic.kernels={kernels}', *options],
        capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    sums = {}
    block = 'head' if name.endswith('head') else 'layer'
    for op in json.loads(done.stdout)['costs']['ops']:
        if block not in op['block']:
            continue
        for part, value in (('device', op['seconds']),
                            ('host', op['host_seconds']),
                            ('launches', op['launches'])):
            way = 'F' if op['pass'] == 'F' else 'B'
            sums[way, part] = sums.get((way, part), 0) + value
    return sums


table = csv.writer(sys.stdout, lineterminator='\n')
table.writerow(['case', 'launch', 'precision', 'tokens', 'forward_s',
                'estimated_forward_s', 'backward_s', 'estimated_backward_s',
                'error', 'kernels_s', 'error_of_kernels', 'host_s',
                'estimated_host_s', 'launches', 'estimated_launches',
                'error_compiled', 'error_eager'])
with open(MEASURED) as file:
    for row in csv.DictReader(file):
        if row['case'] not in MODELS:
            continue
        case = [row[key] for key in ('case', 'launch', 'precision', 'tokens')]
        own = estimate(*case, 'fused')
        value = {key: float(row[key]) for key in row if key.endswith('_s')}
        device = own['F', 'device'] + own['B', 'device']
        host = own['F', 'host'] + own['B', 'host']
        step, compiled, eager = (
            sum(max(sums[way, 'device'], sums[way, 'host']) for way in 'FB')
            for sums in (own, estimate(*case, 'compiled'),
                         estimate(*case, 'eager')))
        took = value['forward_s'] + value['backward_s']
        kernels = value['kernels_forward_s'] + value['kernels_backward_s']
        host_took = value['host_forward_s'] + value['host_backward_s']
        count = float(row['launches_forward']) + float(row['launches_backward'])
        table.writerow(
            [*case,
             f"{value['forward_s']:.5g}", f"{own['F', 'device']:.5g}",
             f"{value['backward_s']:.5g}", f"{own['B', 'device']:.5g}",
             f'{step / took - 1:+.3f}', f'{kernels:.5g}',
             f'{device / kernels - 1:+.3f}', f'{host_took:.5g}', f'{host:.5g}',
             f'{count:.4g}', f"{own['F', 'launches'] + own['B', 'launches']:.4g}",
             f'{compiled / took - 1:+.3f}', f'{eager / took - 1:+.3f}'])
