"""Layers that PyTorch runs: seconds of a forward and of a backward (B and W
together) under a lasting load, of their kernels alone, and of the host alone.

    python3 layers.py OUT.csv [SECONDS [CASES]]

CASES is a pattern: only what it is found in, as in "llama3-8b compiled fp8", is
measured. OUT_kernels.csv gets the kernels of each case.
One GPU, no exchange: a shard of tensor parallelism is a layer with its part of
the heads and of the width, and the experts of one rank get as many rows as they
would from all. Inputs are random normal numbers. A case that fails is printed
and left out. With PIPEWRIGHT_DEVICE=cpu everything runs small, to try the script.
"""
import contextlib
import csv
import gc
import os
import re
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get('PIPEWRIGHT_DEVICE', 'cuda')
ON_GPU = DEVICE == 'cuda'
TYPE = torch.bfloat16 if ON_GPU else torch.float32
WARM_S, LASTING_S = (0.7, 1.0) if ON_GPU else (0.0, 0.01)
LAYERS = 4
COLUMNS = ['case', 'launch', 'precision', 'tokens', 'forward_s', 'backward_s',
           'kernels_forward_s', 'kernels_backward_s', 'launches_forward',
           'launches_backward', 'host_forward_s', 'host_backward_s', 'sm_mhz']


class Fp8Product(torch.autograd.Function):
    """One scale a tensor, from the largest value of now; e4m3 forward, e5m2
    gradients, sums of weight gradients in wide registers. As torchao has it:
    operands are kept in 8 bit, and copied in the other order in 8 bit."""

    @staticmethod
    def cast(x, kind):
        limit = torch.finfo(kind).max
        scale = limit / x.abs().amax().float().clamp(min=1e-12)
        return (x.float() * scale).clamp(-limit, limit).to(kind), 1 / scale

    @staticmethod
    def forward(ctx, x, weight):
        x8, x_scale = Fp8Product.cast(x, torch.float8_e4m3fn)
        w8, w_scale = Fp8Product.cast(weight, torch.float8_e4m3fn)
        ctx.save_for_backward(x8, x_scale, w8, w_scale)
        return torch._scaled_mm(x8, w8.t(), scale_a=x_scale, scale_b=w_scale,
                                out_dtype=torch.bfloat16, use_fast_accum=True)

    @staticmethod
    def backward(ctx, g):
        x8, x_scale, w8, w_scale = ctx.saved_tensors
        g8, g_scale = Fp8Product.cast(g, torch.float8_e5m2)
        gx = torch._scaled_mm(g8, w8.t().contiguous().t(), scale_a=g_scale,
                              scale_b=w_scale, out_dtype=torch.bfloat16)
        gw = torch._scaled_mm(g8.t().contiguous(), x8.t().contiguous().t(),
                              scale_a=g_scale, scale_b=x_scale,
                              out_dtype=torch.bfloat16)
        return gx, gw


class Linear(nn.Module):
    def __init__(self, inputs, outputs, fp8=False):
        super().__init__()
        self.weight = nn.Parameter(
            torch.randn(outputs, inputs, device=DEVICE, dtype=TYPE) * 0.02)
        self.fp8 = fp8

    def forward(self, x):
        if not self.fp8:
            return F.linear(x, self.weight)
        flat = Fp8Product.apply(x.reshape(-1, x.shape[-1]), self.weight)
        return flat.view(*x.shape[:-1], -1)


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, device=DEVICE, dtype=TYPE))

    def forward(self, x):
        if hasattr(F, 'rms_norm'):
            return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
        return y.to(x.dtype) * self.weight


def rotated(x, turns):
    """Rotary embedding in complex numbers, as torchtitan has it."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self, hidden, heads, groups, head, fp8, norms=False):
        super().__init__()
        self.heads, self.groups, self.head = heads, groups, head
        self.q = Linear(hidden, heads * head, fp8)
        self.k = Linear(hidden, groups * head, fp8)
        self.v = Linear(hidden, groups * head, fp8)
        self.o = Linear(heads * head, hidden, fp8)
        self.norms = nn.ModuleList([Norm(head), Norm(head)]) if norms else None

    def forward(self, x, turns):
        b, s, _ = x.shape
        q = self.q(x).view(b, s, self.heads, self.head)
        k = self.k(x).view(b, s, self.groups, self.head)
        v = self.v(x).view(b, s, self.groups, self.head)
        if self.norms:
            q, k = self.norms[0](q), self.norms[1](k)
        q, k = rotated(q, turns), rotated(k, turns)
        repeats = self.heads // self.groups
        k, v = (t.repeat_interleave(repeats, 2) for t in (k, v))
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
            is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, s, -1))


class Mlp(nn.Module):
    def __init__(self, hidden, width, fp8):
        super().__init__()
        self.gate = Linear(hidden, width, fp8)
        self.up = Linear(hidden, width, fp8)
        self.down = Linear(width, hidden, fp8)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """`local` of `all` experts, each of its rows; `grouped` for one product of
    all, else one for each, launched by a loop."""

    def __init__(self, hidden, width, local, count, chosen, grouped):
        super().__init__()
        self.router = Linear(hidden, count)
        self.local, self.chosen, self.grouped = local, chosen, grouped
        make = lambda *shape: nn.Parameter(  # noqa: E731
            torch.randn(*shape, device=DEVICE, dtype=TYPE) * 0.02)
        self.up = make(local, 2 * width, hidden)
        self.down = make(local, hidden, width)

    def product(self, rows, weights, counts, ends):
        if self.grouped:
            return torch._grouped_mm(rows, weights.transpose(1, 2), offs=ends)
        parts = rows.split(counts)
        return torch.cat([F.linear(part, weights[at])
                          for at, part in enumerate(parts)])

    def forward(self, x):
        b, s, hidden = x.shape
        flat = x.reshape(-1, hidden)
        scores = self.router(flat).float()
        share, picks = torch.softmax(scores, -1).topk(self.chosen, dim=-1)
        share = share / share.sum(-1, keepdim=True)
        picks = picks % self.local
        load = torch.bincount(picks.flatten(), minlength=self.local)
        order = picks.flatten().argsort(stable=True)
        token = order // self.chosen
        rows = flat.index_select(0, token)
        # The host waits for the counts, as it must before an exchange.
        counts = load.tolist()
        ends = load.cumsum(0).to(torch.int32)
        gate, up = self.product(rows, self.up, counts, ends).chunk(2, -1)
        weighted = F.silu(gate) * up
        weighted = weighted * share.flatten()[order].unsqueeze(-1).to(x.dtype)
        out = self.product(weighted, self.down, counts, ends)
        back = torch.zeros_like(flat).index_add(0, token, out)
        return back.view(b, s, hidden)


class Layer(nn.Module):
    def __init__(self, attention, mlp, hidden):
        super().__init__()
        self.attention, self.mlp = attention, mlp
        self.first, self.second = Norm(hidden), Norm(hidden)

    def forward(self, x, turns):
        x = x + self.attention(self.first(x), turns)
        return x + self.mlp(self.second(x))


def turns_of(sequence, head):
    angle = torch.outer(torch.arange(sequence, device=DEVICE).float(),
                        1e4 ** -(torch.arange(0, head, 2, device=DEVICE) / head))
    return torch.polar(torch.ones_like(angle), angle)[None, :, None, :]


def synchronize():
    if ON_GPU:
        torch.cuda.synchronize()


class Mark:
    def __init__(self):
        self.event = torch.cuda.Event(enable_timing=True) if ON_GPU else None

    def record(self):
        if ON_GPU:
            self.event.record()
        else:
            self.at = time.perf_counter()

    def until(self, other):
        if ON_GPU:
            return 1e-3 * self.event.elapsed_time(other.event)
        return other.at - self.at


def step(run, inputs, parameters, marks=None):
    if marks:
        marks[0].record()
    y = run(*inputs)
    if marks:
        marks[1].record()
    g = GRADIENT.get(y.shape)
    if g is None:
        g = GRADIENT[y.shape] = torch.randn_like(y)
    y.backward(g)
    if marks:
        marks[2].record()
    for parameter in parameters:
        parameter.grad = None
    inputs[0].grad = None


GRADIENT = {}


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def lasting(run, inputs, parameters):
    end = time.time() + WARM_S
    while True:
        step(run, inputs, parameters)
        synchronize()
        if time.time() >= end:
            break
    all_marks, start = [], time.time()
    while time.time() - start < LASTING_S:
        marks = [Mark(), Mark(), Mark()]
        step(run, inputs, parameters, marks)
        all_marks.append(marks)
        # One step ahead of the device.
        if ON_GPU and len(all_marks) > 1:
            all_marks[-2][2].event.synchronize()
    clock = clock_mhz()
    synchronize()
    return (median([m[0].until(m[1]) for m in all_marks]),
            median([m[1].until(m[2]) for m in all_marks]), clock)


def clock_mhz():
    if not ON_GPU:
        return 0
    try:
        return torch.cuda.clock_rate()
    except Exception:
        return 0


def kernels(run, inputs, parameters, note):
    """Seconds and number of kernels of a forward and of a backward; `note` is
    given each kernel's pass, name, number and seconds."""
    if not ON_GPU:
        return 0, 0, 0, 0
    from torch.profiler import ProfilerActivity, profile
    sums = []
    y = None
    for backward in (False, True):
        synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as prof:
            if backward:
                y.backward(GRADIENT[y.shape])
            else:
                y = run(*inputs)
            synchronize()
        events = [e for e in prof.events()
                  if e.device_type == torch.autograd.DeviceType.CUDA]
        sums.append((1e-6 * sum(e.device_time for e in events), len(events)))
        names = {}
        for e in events:
            count, seconds = names.get(e.name, (0, 0))
            names[e.name] = count + 1, seconds + 1e-6 * e.device_time
        for name, (count, seconds) in names.items():
            note('backward' if backward else 'forward', name, count, seconds)
    for parameter in parameters:
        parameter.grad = None
    inputs[0].grad = None
    (forward_s, forward), (backward_s, backward) = sums
    return forward_s, backward_s, forward, backward


def host(run, inputs, parameters):
    """Seconds of the host, with so few tokens that no kernel counts."""
    for _ in range(3):
        step(run, inputs, parameters)
    synchronize()
    forward, backward = [], []
    for _ in range(15):
        synchronize()
        start = time.perf_counter()
        y = run(*inputs)
        middle = time.perf_counter()
        g = GRADIENT.get(y.shape)
        synchronize()
        before = time.perf_counter()
        y.backward(g)
        end = time.perf_counter()
        forward.append(middle - start)
        backward.append(end - before)
        for parameter in parameters:
            parameter.grad = None
        inputs[0].grad = None
    return median(forward), median(backward)


def layers_of(make):
    return [make() for _ in range(LAYERS)]


class Cases:
    def __init__(self, path, limit_s):
        self.start, self.limit_s = time.time(), limit_s
        self.file = open(path, 'w')
        self.out = csv.writer(self.file, lineterminator='\n')
        self.out.writerow(COLUMNS)
        self.only = re.compile(sys.argv[3] if len(sys.argv) > 3 else '')
        self.kernel_file = open(path.removesuffix('.csv') + '_kernels.csv', 'w')
        self.kernel_out = csv.writer(self.kernel_file, lineterminator='\n')
        self.kernel_out.writerow(['case', 'launch', 'precision', 'tokens',
                                  'pass', 'kernel', 'count', 'seconds'])

    def measure(self, name, launch, precision, make, shape, hidden, head,
                few=True):
        """`make`: one layer; `shape`: microbatch and sequence."""
        if not self.only.search(f'{name} {launch} {precision}'):
            return
        if time.time() - self.start > self.limit_s:
            print('no time for', name, launch, precision, shape, flush=True)
            return
        try:
            began = time.time()
            layers = layers_of(make)
            parameters = [p for layer in layers for p in layer.parameters()]
            calls = layers
            if launch == 'compiled':
                calls = [torch.compile(layer, dynamic=False)
                         for layer in layers]

            def run(x, turns):
                for call in calls:
                    x = call(x, turns)
                return x

            def inputs(batch, sequence):
                x = torch.randn(batch, sequence, hidden, device=DEVICE,
                                dtype=TYPE, requires_grad=True)
                return x, turns_of(sequence, head)

            full = inputs(*shape)
            forward_s, backward_s, clock = lasting(run, full, parameters)
            size = f'{shape[0]}x{shape[1]}'

            def note(way, kernel, count, seconds):
                self.kernel_out.writerow(
                    [name, launch, precision, size, way, kernel[:150],
                     count / LAYERS, f'{seconds / LAYERS:.4g}'])

            parts = kernels(run, full, parameters, note)
            host_s = (0, 0)
            if few:
                host_s = host(run, inputs(1, 64), parameters)
            values = [forward_s, backward_s, *parts, *host_s]
            row = [f'{value / LAYERS:.6g}' for value in values]
            row = [name, launch, precision, size, *row, clock]
            self.out.writerow(row)
            self.file.flush()
            self.kernel_file.flush()
            print(*row, f'({time.time() - began:.1f} s)', flush=True)
        except Exception as error:
            print('failed', name, launch, precision, shape, repr(error)[:500],
                  flush=True)
        finally:
            layers = parameters = calls = full = run = None
            GRADIENT.clear()
            gc.collect()
            if ON_GPU:
                torch.cuda.empty_cache()
                if launch == 'compiled':
                    torch._dynamo.reset()


class Head(nn.Module):
    """The vocabulary's product and its loss in fp32."""

    def __init__(self, hidden, words):
        super().__init__()
        self.norm, self.words = Norm(hidden), Linear(hidden, words)
        self.count = words

    def forward(self, x, _):
        logits = self.words(self.norm(x)).flatten(0, 1).float()
        goal = torch.arange(logits.shape[0], device=DEVICE) % self.count
        loss = F.cross_entropy(logits, goal)
        return x * loss  # x's shape, as a layer gives


def main():
    global LAYERS
    cases = Cases(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 120)
    small = not ON_GPU

    def llama(hidden, heads, groups, width, tp=1, fp8=False):
        if small:
            hidden, heads, groups, width, tp = 64, 4, 2, 96, 1
        return (lambda: Layer(Attention(hidden, heads // tp,
                                        max(1, groups // tp),
                                        hidden // heads, fp8),
                              Mlp(hidden, width // tp, fp8), hidden),
                hidden, hidden // heads)

    def experts(hidden, heads, groups, head, width, local, count, chosen,
                grouped):
        if small:
            hidden, heads, groups, head, width, local, count, chosen = (
                64, 4, 2, 16, 32, 4, 8, 2)
        return (lambda: Layer(Attention(hidden, heads, groups, head, False,
                                        True),
                              Experts(hidden, width, local, count, chosen,
                                      grouped), hidden), hidden, head)

    def shape(batch, sequence):
        return (batch, 32) if small else (batch, sequence)

    def dense(name, launch, precision, size, *args, **options):
        make, hidden, head = llama(*args, fp8=precision == 'fp8', **options)
        cases.measure(name, launch, precision, make, shape(*size), hidden, head,
                      few=launch == 'eager')

    def expert(name, launch, size, *args):
        make, hidden, head = experts(*args)
        cases.measure(name, launch, 'bf16', make, shape(*size), hidden, head)

    llama8 = (4096, 32, 8, 14336)
    llama70 = (8192, 64, 8, 28672)
    qwen = (2048, 32, 4, 128, 768, 16, 128, 8)
    deepseek = (7168, 56, 56, 128, 2048, 8, 256, 8)
    compiled = [] if small else ['compiled']

    dense('llama3-8b', 'eager', 'bf16', (1, 8192), *llama8)
    expert('qwen3-30b-a3b ep8 loop', 'eager', (1, 4096), *qwen, False)
    for launch in compiled:
        dense('llama3-8b', launch, 'bf16', (2, 8192), *llama8)
        dense('llama3-8b', launch, 'fp8', (2, 8192), *llama8)
    dense('llama3-8b', 'eager', 'bf16', (2, 8192), *llama8)
    if ON_GPU:
        expert('qwen3-30b-a3b ep8 grouped', 'eager', (1, 4096), *qwen, True)
    expert('qwen3-30b-a3b ep8 loop', 'eager', (2, 4096), *qwen, False)
    dense('llama3-70b tp8', 'eager', 'bf16', (1, 8192), *llama70, tp=8)
    for launch in compiled:
        dense('llama3-70b tp8', launch, 'bf16', (4, 8192), *llama70, tp=8)
        dense('llama3-70b tp8', launch, 'fp8', (4, 8192), *llama70, tp=8)
    llama405 = (16384, 128, 8, 53248)
    for launch, precision in [('eager', 'bf16')] + [
            (launch, 'fp8') for launch in compiled]:
        dense('llama3-405b tp8', launch, precision, (2, 8192), *llama405, tp=8)
    dense('llama3-70b tp4', 'eager', 'bf16', (1, 8192), *llama70, tp=4)
    LAYERS = 1
    for launch in ['eager'] + compiled:
        make = lambda: Head(64 if small else 4096,  # noqa: E731
                            96 if small else 128256)
        cases.measure('llama3-8b head', launch, 'bf16', make, shape(2, 8192),
                      64 if small else 4096, 16, few=False)
    LAYERS = 4
    if ON_GPU:
        expert('wide experts, 8 of 256', 'eager', (1, 4096), *deepseek, True)
        dense('llama3-8b', 'compiled', 'bf16', (1, 8192), *llama8)


if __name__ == '__main__':
    with contextlib.suppress(BrokenPipeError):
        main()
