"""What the host takes to start operations of PyTorch, in microseconds, each with
tensors so small that the device is always done first.

    python3 host.py OUT.csv

The first row, a torch.nn.Linear without gradient, is the unit of the launch
counts in sim/cost/host_time.cc. `backward_us` is that of autograd's thread, the
hand-over to it included. With PIPEWRIGHT_DEVICE=cpu: to try the script.
"""
import csv
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get('PIPEWRIGHT_DEVICE', 'cuda')
ON_GPU = DEVICE == 'cuda'
TYPE = torch.bfloat16 if ON_GPU else torch.float32
ROWS, WIDTH, REPEATS = 16, 128, 50 if ON_GPU else 5


def randn(*shape, grad=False):
    return torch.randn(*shape, device=DEVICE, dtype=TYPE, requires_grad=grad)


def synchronize():
    if ON_GPU:
        torch.cuda.synchronize()


def per_call(work, rounds=25 if ON_GPU else 2):
    """Median over rounds of REPEATS calls; the device catches up in between."""
    for _ in range(3):
        work()
    times = []
    for _ in range(rounds):
        synchronize()
        start = time.perf_counter()
        for _ in range(REPEATS):
            work()
        times.append((time.perf_counter() - start) / REPEATS)
        synchronize()
    return sorted(times)[len(times) // 2]


class Own(torch.autograd.Function):
    """A function of autograd in Python with one kernel each way."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def row(name, forward, inputs, calls=8):
    """Forward with gradients recorded, and a backward of `calls` of them in a
    row, so that handing over to autograd's thread counts once in `calls`."""
    try:
        forward_s = per_call(lambda: forward(*inputs))
        backward_s = 0.0
        y = forward(*inputs)
        if isinstance(y, torch.Tensor) and y.requires_grad:
            spans = []
            for _ in range(40 if ON_GPU else 3):
                ys = [forward(*inputs) for _ in range(calls)]
                gs = [torch.ones_like(y) for y in ys]
                synchronize()
                start = time.perf_counter()
                torch.autograd.backward(ys, gs)
                spans.append((time.perf_counter() - start) / calls)
                for tensor in LEAVES:
                    tensor.grad = None
                synchronize()
            backward_s = sorted(spans)[len(spans) // 2]
        OUT.writerow([name, f'{forward_s * 1e6:.2f}', f'{backward_s * 1e6:.2f}'])
        print(name, f'{forward_s * 1e6:.2f} {backward_s * 1e6:.2f} us',
              flush=True)
    except Exception as error:
        print('failed', name, repr(error)[:300], flush=True)


OUT = csv.writer(open(sys.argv[1], 'w'), lineterminator='\n')
OUT.writerow(['operation', 'forward_us', 'backward_us'])
x = randn(ROWS, WIDTH)
g = randn(ROWS, WIDTH, grad=True)
weight = randn(WIDTH, WIDTH, grad=True)
gain = randn(WIDTH, grad=True)
linear = nn.Linear(WIDTH, WIDTH, bias=False).to(DEVICE).to(TYPE)
many = [randn(WIDTH, WIDTH, grad=True) for _ in range(16)]
LEAVES = [g, weight, gain, *linear.parameters(), *many]
wide = randn(16 * ROWS, WIDTH, grad=True)
LEAVES.append(wide)
index = torch.arange(ROWS, device=DEVICE)
scores = torch.randn(ROWS, 128, device=DEVICE)
picks = scores.topk(8, -1)[1]
bank = randn(16, WIDTH, WIDTH, grad=True)
LEAVES.append(bank)
ends = torch.arange(ROWS, 17 * ROWS, ROWS, device=DEVICE, dtype=torch.int32)

with torch.no_grad():
    row('nn.Linear, no gradient', linear, (x,))
    row('F.linear, no gradient', F.linear, (x, weight))
    row('add, no gradient', torch.add, (x, x))
    row('empty', lambda: torch.empty(ROWS, WIDTH, device=DEVICE), ())
    row('view', lambda: x.view(-1), ())
    row('topk', lambda: scores.topk(8, -1), ())
    row('softmax', lambda: torch.softmax(scores, -1), ())
    row('argsort', lambda: picks.flatten().argsort(stable=True), ())
    row('bincount', lambda: torch.bincount(picks.flatten(), minlength=128), ())
    row('copy to the host, waited for', lambda: index.tolist(), ())
    row('fp32 to bf16', lambda: scores.to(torch.bfloat16), ())
    row('amax', lambda: scores.abs().amax(), ())
row('nn.Linear', linear, (g,))
row('F.linear', F.linear, (g, weight))
row('own function', Own.apply, (g,))
row('add', torch.add, (g, g))
row('multiply', torch.mul, (g, g))
row('silu', F.silu, (g,))
row('rms_norm', lambda x, w: F.rms_norm(x, (WIDTH,), w, 1e-5), (g, gain))
row('layer_norm', lambda x, w: F.layer_norm(x, (WIDTH,), w), (g, gain))
row('transpose', lambda x: x.transpose(0, 1), (g,))
row('index_select', lambda x: x.index_select(0, index), (g,))
row('index_add', lambda x: torch.zeros_like(x).index_add(0, index, x), (g,))
row('split in 16', lambda x: x.split(ROWS)[0], (wide,))
row('16 products and their cat', lambda x: torch.cat(
    [F.linear(p, w) for p, w in zip(x.split(ROWS), many)]), (wide,), 2)
row('grouped product of 16', lambda x: torch._grouped_mm(
    x, bank.transpose(1, 2), offs=ends), (wide,), 2)
q, k, v = (randn(1, 4, 64, 128, grad=True) for _ in range(3))
LEAVES += [q, k, v]
row('attention', lambda a, b, c: F.scaled_dot_product_attention(
    a, b, c, is_causal=True), (q, k, v), 4)
if ON_GPU:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x
        for _ in range(30):
            y = y * 1.0
    row('graph of 30 kernels', graph.replay, ())
    from torch.profiler import ProfilerActivity, profile
    q, k, v = (torch.randn(1, 32, 8192, 128, device=DEVICE, dtype=TYPE,
                           requires_grad=True) for _ in range(3))
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
        synchronize()
    for event in prof.events():
        print('kernel', event.name[:100], f'{event.device_time:.0f} us')
    import ctypes
    runtime = ctypes.CDLL('libcudart.so.13')
    print('host memory', end=' ')
    for mib in (64, 256):
        a = torch.empty(mib << 20, dtype=torch.uint8, pin_memory=True)
        b = torch.empty(mib << 20, dtype=torch.uint8, device=DEVICE)
        for to, source, name in ((b, a, 'to the device'), (a, b, 'to the host')):
            to.copy_(source)
            synchronize()
            start = time.perf_counter()
            for _ in range(5):
                to.copy_(source, non_blocking=True)
            synchronize()
            rate = 5 * (mib << 20) / (time.perf_counter() - start)
            print(f'{mib} MiB {name} {rate / 1e9:.1f} GB/s', end='; ')
    print()
