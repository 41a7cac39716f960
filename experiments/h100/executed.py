"""Results of `execute --json` as a table: executed.csv.

    python3 experiments/h100/executed.py FILE.json... > experiments/h100/executed.csv
"""
import csv
import json
import os
import sys

table = csv.writer(sys.stdout, lineterminator='\n')
table.writerow(['model', 'schedule', 'type', 'clock', 'way', 'predicted_s',
                'predicted_low_s', 'predicted_high_s', 'executed_s', 'error',
                'step_1_s', 'step_2_s', 'step_3_s', 'steps_inside',
                'gradients', 'reference_gradient_error', 'reference_tolerance',
                'replay_passes', 'replay_settled'])
for path in sys.argv[1:]:
    with open(path) as file:
        report = json.load(file)
    run = report['execute']
    check, reference = run['check'], run['reference']
    replay = run['replay']
    low, high = run['predicted_interval_s'] or (None, None)
    gradients = 'not checked'
    if check:
        gradients = ('same bits' if check['same_bits'] else
                     'agree' if check['agrees'] else 'differ')
    way = 'one rank after the other' if replay else (
        'one rank at a time' if run['one_at_a_time'] else 'side by side')
    table.writerow([
        report['model'], os.path.basename(report['schedule']), run['type'],
        run['clock'], way, run['predicted_iteration_s'], low, high,
        report['iteration_s'], run['error'], *run['step_s'],
        run['steps_inside'], gradients,
        reference and reference['gradient_error'],
        reference and reference['tolerance'],
        replay and replay['passes'], replay and replay['consistent']])
