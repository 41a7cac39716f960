"""Predicts the mixtures of mixtures.csv from lone products, attention and
copies, by mean power and with a clock for each kernel alone. `check.py h200_`
does so for another card's tables, with the energies of the H100.
"""
import csv
import os
import sys

IDLE, BOARD = 121.0, 700.0
FLOP = {'bf16': 1.19e-12, 'fp8': 0.637e-12}
FORWARD, BACKWARD, BYTE = 1.24, 1.35, 133e-12

HERE = os.path.dirname(__file__) or '.'
CARD = sys.argv[1] if len(sys.argv) > 1 else ''
# torch.cuda._sleep counts cycles, of the same clock on both cards.
WAIT_S = 1014.19e-6


def table(name):
    with open(os.path.join(HERE, name)) as f:
        return [row for row in csv.DictReader(f) if row['kind'] != 'short']


rows = table(CARD + 'mixtures.csv')
# The product that has gaps behind it, alone.
one_s = next(1e-6 * float(row['burst_us']) for row in table(CARD + 'products.csv')
             if row['type'] == 'bf16' and row['m'] == row['n'] == row['k'])


def burst(kind, **cells):
    for row in rows:
        if row['kind'] == kind and all(row[k] == v for k, v in cells.items()):
            return 1e-6 * float(row['burst_us'])
    raise SystemExit(f'mixtures.csv has no {kind} {cells}')


def clock(computing_s, steady_s, computing_j, steady_j):
    low, high = 0.1, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        energy = computing_j * middle**2 + steady_j
        if energy <= (BOARD - IDLE) * (computing_s / middle + steady_s):
            low = middle
        else:
            high = middle
    return low


def alone(seconds, joules):
    return seconds / clock(seconds, 0, joules, 0)


copy_s = burst('copy')
copy_bytes = float(next(r['work'] for r in rows if r['kind'] == 'copy'))
ahead = {p: burst('attention', layout=p) for p in ('forward', 'backward')}
worst = 0.0
print(f'{"mixture":28} {"lasting ms":>10} {"mean power":>10} {"alone":>8}')
for row in rows:
    kind, joules = row['kind'], FLOP.get(row['type'], 0) * float(row['work'])
    if kind in ('attention', 'copy', 'wait'):
        continue
    if kind.startswith('product, gaps'):
        parts = [(one_s, joules)]
        steady_s, steady_j = WAIT_S * float(row['layout']) / 2e6, 0.0
    else:
        forward, backward, copied = map(float, row['layout'].split('/'))
        parts = [(burst('products', type=row['type']), joules)]
        if forward:
            parts += [(ahead['forward'], FORWARD * FLOP['bf16'] * forward),
                      (ahead['backward'], BACKWARD * FLOP['bf16'] * backward)]
        waits = int(kind.split()[-2]) if kind.endswith('waits') else 0
        steady_s = round(copied / copy_bytes) * copy_s + waits * WAIT_S
        steady_j = BYTE * copied
    computing_s = sum(part[0] for part in parts)
    mean_s = computing_s / clock(computing_s, steady_s,
                                 sum(part[1] for part in parts),
                                 steady_j) + steady_s
    alone_s = sum(alone(*part) for part in parts) + steady_s
    lasting_s = 1e-6 * float(row['lasting_us'])
    worst = max(worst, abs(mean_s / lasting_s - 1))
    print(f'{kind + " " + row["type"]:28} {lasting_s * 1e3:10.2f} '
          f'{100 * (mean_s / lasting_s - 1):+9.1f} % '
          f'{100 * (alone_s / lasting_s - 1):+6.1f} %')
print(f'worst by mean power: {100 * worst:.1f} %')
