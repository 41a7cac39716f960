"""Products of experts, one for each, in the ways in which they are launched:

    python3 grouped.py OUT.csv [SECONDS]

`loop`: one after the other; `streams`: in turn on four streams, as Transformer
Engine has them; `grouped`: one kernel. The first two replay a CUDA graph, so the
host does not count. Seconds are of all experts together under a load that lasts;
`one` is a single product of all rows, which is what estimates start from.
Rows differ from expert to expert by a tenth. One GPU; without one nothing runs.
"""
import csv
import sys
import time

import torch

WARM_S, LASTING_S = 0.1, 0.2
STREAMS = 4
# Case, hidden, width, experts of a device, rows of each.
CASES = [
    ('qwen3-30b-a3b ep16', 2048, 768, 8, 4096),
    ('qwen3-30b-a3b ep8', 2048, 768, 16, 2048),
    ('qwen3-30b-a3b ep8, 2 sequences', 2048, 768, 16, 4096),
    ('gpt-oss-120b ep8', 2880, 2880, 16, 1024),
    ('qwen3-235b-a22b ep32', 4096, 1536, 4, 4096),
    ('deepseek-v3 ep32', 7168, 2048, 8, 1024),
    ('qwen3-30b-a3b ep8, few rows', 2048, 768, 16, 256),
]


def median(values):
    return sorted(values)[len(values) // 2]


def lasting(call):
    def run():
        first = torch.cuda.Event(enable_timing=True)
        last = torch.cuda.Event(enable_timing=True)
        first.record()
        call()
        last.record()
        return first, last

    end, pending = time.time() + WARM_S, []
    while time.time() < end:
        pending.append(run())
        if len(pending) > 8:
            pending.pop(0)[1].synchronize()
    marks, end = [], time.time() + LASTING_S
    while time.time() < end:
        marks.append(run())
        pending.append(marks[-1])
        if len(pending) > 8:
            pending.pop(0)[1].synchronize()
    torch.cuda.synchronize()
    return median([1e-3 * a.elapsed_time(b) for a, b in marks])


def captured(calls, streams):
    """One replay of all calls, on as many streams in turn."""
    sides = [torch.cuda.Stream() for _ in range(streams)]
    graph = torch.cuda.CUDAGraph()
    for call in calls:
        call()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        now = torch.cuda.current_stream()
        if streams == 1:
            for call in calls:
                call()
        else:
            for side in sides:
                side.wait_stream(now)
            for at, call in enumerate(calls):
                with torch.cuda.stream(sides[at % streams]):
                    call()
            for side in sides:
                now.wait_stream(side)
    return graph.replay


def main():
    if not torch.cuda.is_available():
        print('no GPU: nothing is measured')
        return
    start = time.time()
    limit_s = float(sys.argv[2]) if len(sys.argv) > 2 else 90
    file = open(sys.argv[1], 'w')
    table = csv.writer(file, lineterminator='\n')
    table.writerow(['case', 'pass', 'product', 'type', 'way', 'experts', 'rows',
                    'n', 'k', 'seconds', 'tflops'])
    one = torch.ones((), device='cuda')
    wide, narrow = torch.bfloat16, torch.float8_e4m3fn

    def multiply(a, b):
        """a @ b.t(), b with rows of the inner dimension."""
        if a.dtype == wide:
            return a @ b.t()
        return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one,
                                out_dtype=wide)

    for name, hidden, width, experts, rows in CASES:
        # Multiples of 16, as products in 8 bit want them.
        counts = [max(16, int(rows * (1 + 0.1 * ((at % 3) - 1))) // 16 * 16)
                  for at in range(experts)]
        total = sum(counts)
        ends = torch.tensor(counts).cumsum(0).to('cuda', torch.int32)
        for product, n, k in (('up', 2 * width, hidden),
                              ('down', hidden, width)):
            x = torch.randn(total, k, device='cuda', dtype=wide)
            g = torch.randn(total, n, device='cuda', dtype=wide)
            w = torch.randn(experts, n, k, device='cuda', dtype=wide)
            flops = 2.0 * total * n * k
            for kind, type_name in ((wide, 'bf16'), (narrow, 'fp8')):
                xs, gs = ([part.to(kind) for part in t.split(counts)]
                          for t in (x, g))
                ws = [w[at].to(kind) for at in range(experts)]
                # 8 bit copies the other order, 16 bit takes it as it lies.
                wts, gts, xts = (
                    [part.t() if kind is wide else part.t().contiguous()
                     for part in t] for t in (ws, gs, xs))
                passes = {
                    'F': [lambda a=a, b=b: multiply(a, b)
                          for a, b in zip(xs, ws)],
                    'B': [lambda a=a, b=b: multiply(a, b)
                          for a, b in zip(gs, wts)],
                    'W': [lambda a=a, b=b: multiply(a, b)
                          for a, b in zip(gts, xts)]}
                ways = {}
                for way, calls in passes.items():
                    ways[way, 'loop'] = lambda c=calls: captured(c, 1)
                    ways[way, 'streams'] = lambda c=calls: captured(c, STREAMS)
                all_x, all_g = x.to(kind), g.to(kind)
                ways['F', 'one'] = lambda: captured(
                    [lambda: multiply(all_x, ws[0])], 1)
                ways['B', 'one'] = lambda: captured(
                    [lambda: multiply(all_g, wts[0])], 1)
                if kind is wide and hasattr(torch, '_grouped_mm'):
                    ways['F', 'grouped'] = lambda: lambda: torch._grouped_mm(
                        x, w.transpose(1, 2), offs=ends)
                    ways['B', 'grouped'] = lambda: lambda: torch._grouped_mm(
                        g, w, offs=ends)
                    ways['W', 'grouped'] = lambda: lambda: torch._grouped_mm(
                        g.t(), x, offs=ends)
                for (which, way), make in ways.items():
                    if time.time() - start > limit_s:
                        print('no time for', name, product, type_name, which,
                              way, flush=True)
                        continue
                    try:
                        seconds = lasting(make())
                    except Exception as error:
                        print('failed', name, product, type_name, which, way,
                              repr(error)[:300], flush=True)
                        continue
                    table.writerow([name, which, product, type_name, way,
                                    experts, rows, n, k, f'{seconds:.5g}',
                                    f'{flops / seconds / 1e12:.1f}'])
            file.flush()
        print(name, f'{time.time() - start:.0f} s', flush=True)


if __name__ == '__main__':
    main()
