"""What a kernel that moves data takes from kernels and layers beside it:

    python3 beside.py OUT.csv [SECONDS]

The mover stands for a collective of NCCL: one block of 640 threads on each of so
many multiprocessors, which copies slices of 256 KiB within the device's memory,
without a pause or at a given rate, until it is told to stop. One GPU: nothing is
sent. Beside it run one kernel again and again, or a forward and backward of a
layer of ../torch_layers, each under a load that lasts. With PIPEWRIGHT_DEVICE=cpu
nothing is measured.

Columns: seconds of one run, how many times the seconds without a mover that is,
and what the mover moved, in GB/s (each byte is read and written).
"""
import csv
import os
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'torch_layers'))
import layers as torch_layers  # noqa: E402

WARM_S, LASTING_S = 0.2, 0.4
SLICE = 256 * 1024
MOVER = r'''
extern "C" __global__ void __launch_bounds__(640, 1)
mover(const float4* from, float4* to, long long slices, double ns_a_slice,
      const volatile int* stop, unsigned long long* moved) {
  const int values = SLICE / 16;
  unsigned long long start, now, mine = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  for (long long at = blockIdx.x;; at += gridDim.x) {
    const long long base = (at % slices) * values;
    for (int i = threadIdx.x; i < values; i += 4 * blockDim.x) {
      float4 x[4];
#pragma unroll
      for (int u = 0; u < 4; ++u)
        if (i + u * blockDim.x < values)
          x[u] = __ldcs(from + base + i + u * blockDim.x);
#pragma unroll
      for (int u = 0; u < 4; ++u)
        if (i + u * blockDim.x < values)
          __stcs(to + base + i + u * blockDim.x, x[u]);
    }
    ++mine;
    if (ns_a_slice > 0) {
      do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
      } while ((double)(now - start) < mine * ns_a_slice && *stop == 0);
    }
    if (threadIdx.x == 0) moved[blockIdx.x] = mine;
    // Nobody waits for ever should the host hang.
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (__syncthreads_or(*stop != 0 || now - start > 6000000000ull)) return;
  }
}
'''.replace('SLICE', str(SLICE))


class Mover:
    """Moves on a stream of its own between `start` and `stop`."""

    def __init__(self):
        import cupy
        self.cupy = cupy
        self.kernel = cupy.RawKernel(MOVER, 'mover')
        self.slices = 4096  # 1 GiB, twenty times the L2
        self.source = torch.ones(self.slices * SLICE // 4, device='cuda')
        self.target = torch.empty_like(self.source)
        self.stopped = torch.zeros(1, dtype=torch.int32, device='cuda')
        self.moved = torch.zeros(256, dtype=torch.int64, device='cuda')
        self.stream, self.side = torch.cuda.Stream(), torch.cuda.Stream()

    def start(self, blocks, gbps):
        if blocks == 0:
            return
        self.stopped.zero_()
        self.moved.zero_()
        torch.cuda.synchronize()
        pause = 0.0 if gbps is None else SLICE * blocks / gbps
        with self.cupy.cuda.ExternalStream(self.stream.cuda_stream):
            self.kernel((blocks,), (640,), (
                self.source.data_ptr(), self.target.data_ptr(),
                self.cupy.int64(self.slices), self.cupy.float64(pause),
                self.stopped.data_ptr(), self.moved.data_ptr()))
        self.began = time.perf_counter()

    def stop(self, blocks):
        """GB/s that were moved since `start`."""
        if blocks == 0:
            return 0.0
        took = time.perf_counter() - self.began
        with torch.cuda.stream(self.side):
            self.stopped.fill_(1)
        torch.cuda.synchronize()
        return float(self.moved.sum()) * SLICE / took / 1e9


def lasting(run):
    """Median seconds of `run` under a load that lasts; a run may give marks
    of its own parts, then there is one median a part."""
    end = time.time() + WARM_S
    pending = []

    def wait():
        while len(pending) > 3:
            pending.pop(0)[-1].synchronize()

    while time.time() < end:
        pending.append(run())
        wait()
    marks, end = [], time.time() + LASTING_S
    while time.time() < end:
        marks.append(run())
        pending.append(marks[-1])
        wait()
    torch.cuda.current_stream().synchronize()
    parts = len(marks[0]) - 1
    return [torch_layers.median([1e-3 * m[at].elapsed_time(m[at + 1])
                                 for m in marks]) for at in range(parts)]


def mark():
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def repeated(call, times):
    def run():
        first = mark()
        for _ in range(times):
            call()
        return [first, mark()]
    return run


def kernels():
    """Name, call and how often it is called between two marks."""
    tokens, hidden, width = 16384, 4096, 14336
    random = lambda *shape: torch.randn(  # noqa: E731
        *shape, device='cuda', dtype=torch.bfloat16)
    x, w = random(tokens, hidden), random(width, hidden)
    o = random(hidden, hidden)
    y = random(tokens, width)
    yield 'product 16384 x 14336 x 4096, bf16', lambda: x @ w.t(), 8
    yield 'product 16384 x 4096 x 4096, bf16', lambda: x @ o.t(), 24
    yield 'weight gradient 14336 x 4096 x 16384, bf16', lambda: y.t() @ x, 8
    one = torch.ones((), device='cuda')
    x8, w8 = x.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn)
    yield 'product 16384 x 14336 x 4096, fp8', lambda: torch._scaled_mm(
        x8, w8.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16,
        use_fast_accum=True), 16
    q, k, v = (random(2, 32, 8192, 128).requires_grad_() for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    with torch.no_grad():
        g = random(2, 32, 8192, 128)
    yield 'attention forward, 2 x 32 x 8192 x 128', lambda: attend(
        q.detach(), k.detach(), v.detach(), is_causal=True), 3
    a = attend(q, k, v, is_causal=True)
    yield 'attention backward', lambda: torch.autograd.grad(
        a, (q, k, v), g, retain_graph=True), 2
    scale = torch.ones(hidden, device='cuda', dtype=torch.bfloat16)
    yield 'RMS norm 16384 x 4096', lambda: torch.nn.functional.rms_norm(
        x, (hidden,), scale, 1e-5), 60
    yield 'copy of 470 MB', lambda: y.clone(), 10


def layer_runs():
    def of(name, launch, fp8, size):
        hidden, heads, groups, width = (4096, 32, 8, 14336)
        made = [torch_layers.Layer(
            torch_layers.Attention(hidden, heads, groups, hidden // heads, fp8),
            torch_layers.Mlp(hidden, width, fp8), hidden) for _ in range(2)]
        calls = made
        if launch == 'compiled':
            calls = [torch.compile(layer, dynamic=False) for layer in made]
        x = torch.randn(*size, hidden, device='cuda', dtype=torch.bfloat16,
                        requires_grad=True)
        turns = torch_layers.turns_of(size[1], hidden // heads)
        g = torch.randn_like(x)

        def run():
            marks = [mark()]
            y = x
            for call in calls:
                y = call(y, turns)
            marks.append(mark())
            y.backward(g)
            marks.append(mark())
            for layer in made:
                for parameter in layer.parameters():
                    parameter.grad = None
            x.grad = None
            return marks
        return name, run
    yield of('llama3-8b, 2 layers, bf16, compiled, 2 x 8192', 'compiled', False,
             (2, 8192))
    yield of('llama3-8b, 2 layers, fp8, compiled, 2 x 8192', 'compiled', True,
             (2, 8192))


# Blocks, and GB/s of all of them or None for as fast as it goes. 50 GB/s is a
# card of 400 Gbit/s, 350 to 450 what NCCL moves between eight GPUs of a node.
MOVERS = [(0, None), (1, 1), (8, 50), (16, 1), (16, 50), (16, 350), (16, None),
          (24, 350), (32, 50), (32, 350), (32, None)]


def main():
    if torch_layers.DEVICE != 'cuda':
        print('no GPU: nothing is measured')
        return
    limit_s = float(sys.argv[2]) if len(sys.argv) > 2 else 120
    start = time.time()
    mover = Mover()
    file = open(sys.argv[1], 'w')
    table = csv.writer(file, lineterminator='\n')
    table.writerow(['beside', 'part', 'blocks', 'gb_per_s_asked', 'seconds',
                    'times', 'gb_per_s_moved'])
    for blocks, gbps in MOVERS[1:]:
        mover.start(blocks, gbps)
        time.sleep(0.2)
        row = ['nothing', '', blocks, gbps or 'free', '', '',
               f'{mover.stop(blocks):.4g}']
        table.writerow(row)
        print(*row, flush=True)

    def measure(name, run, parts):
        alone = None
        for blocks, gbps in MOVERS:
            if time.time() - start > limit_s:
                print('no time for', name, blocks, gbps, flush=True)
                return
            mover.start(blocks, gbps)
            took = lasting(run)
            moved = mover.stop(blocks)
            alone = alone or took
            for part, seconds, before in zip(parts, took, alone):
                row = [name, part, blocks, gbps or 'free', f'{seconds:.6g}',
                       f'{seconds / before:.4f}', f'{moved:.4g}']
                table.writerow(row)
                print(*row, flush=True)
            file.flush()

    for name, run in layer_runs():
        try:
            measure(name, run, ['forward', 'backward'])
        except Exception as error:
            print('failed', name, repr(error)[:500], flush=True)
    torch.cuda.empty_cache()
    for name, call, times in kernels():
        try:
            measure(name, repeated(call, times), ['run'])
        except Exception as error:
            print('failed', name, repr(error)[:500], flush=True)


if __name__ == '__main__':
    main()
