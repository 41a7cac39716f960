"""Training steps of PyTorch's FSDP2 on one GPU, as torchtitan makes them, and
kernels of such a step that no layer has:

    python3 steps.py OUT.csv [SECONDS]

Blocks of llama3-8b with 2 sequences of 8192: parameters in fp32, gathered in
bf16, gradients reduced in fp32, selective recomputation (every second product
of a layer again), FlashAttention. A group of one sends nothing, but copies. A
step is measured with 2 and with 6 layers under a load that lasts; a quarter of
the difference is a layer with all that comes with it. OUT_kernels.csv has the
kernels of a step of 6. One GPU; without one nothing runs.

Rows of OUT.csv: what, case, seconds, and bytes or FLOPs where they are known.
"""
import contextlib
import csv
import functools
import gc
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import layers as torch_layers

HIDDEN, HEADS, GROUPS, WIDTH, WORDS = 4096, 32, 8, 14336, 16384
TOKENS = (2, 8192)
WARM_S, LASTING_S = 1.0, 1.5


def lasting(run, warm_s=0.15, lasting_s=0.3):
    """Median seconds of a run, two of them ahead of the device."""
    def once():
        first = torch.cuda.Event(enable_timing=True)
        last = torch.cuda.Event(enable_timing=True)
        first.record()
        run()
        last.record()
        return first, last

    end, pending = time.time() + warm_s, []
    while time.time() < end:
        pending.append(once())
        if len(pending) > 2:
            pending.pop(0)[1].synchronize()
    marks, end = [], time.time() + lasting_s
    while time.time() < end or len(marks) < 3:
        marks.append(once())
        pending.append(marks[-1])
        if len(pending) > 2:
            pending.pop(0)[1].synchronize()
    torch.cuda.synchronize()
    return torch_layers.median([1e-3 * a.elapsed_time(b) for a, b in marks])


def selective():
    """Saves what torchtitan saves: attention, and every second product."""
    from torch.utils.checkpoint import (CheckpointPolicy,
                                        create_selective_checkpoint_contexts)
    ops = torch.ops.aten
    products = {ops.mm.default, ops._scaled_mm.default}
    saved = {ops._scaled_dot_product_flash_attention.default,
             ops._scaled_dot_product_efficient_attention.default,
             ops._scaled_dot_product_cudnn_attention.default,
             ops.abs.default, ops.max.default}
    counts = {True: 0, False: 0}

    def policy(context, op, *args, **options):
        keeps = op in saved
        if op in products:
            counts[context.is_recompute] += 1
            keeps = counts[context.is_recompute] % 2 == 1
        return (CheckpointPolicy.MUST_SAVE if keeps
                else CheckpointPolicy.PREFER_RECOMPUTE)

    return create_selective_checkpoint_contexts(policy)


class Model(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, HIDDEN, device='cuda')
        self.layers = nn.ModuleList(layers)
        self.norm = torch_layers.Norm(HIDDEN)
        self.words = torch_layers.Linear(HIDDEN, WORDS)

    def forward(self, tokens, turns):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, turns)
        return self.words(self.norm(x))


def sharded(count, launch, fp8, recomputed):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        checkpoint_wrapper)
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    torch_layers.TYPE = torch.float32
    head = HIDDEN // HEADS
    made = [torch_layers.Layer(
        torch_layers.Attention(HIDDEN, HEADS, GROUPS, head, fp8),
        torch_layers.Mlp(HIDDEN, WIDTH, fp8), HIDDEN) for _ in range(count)]
    if recomputed:
        made = [checkpoint_wrapper(layer, preserve_rng_state=False,
                                   context_fn=selective) for layer in made]
    if launch == 'compiled':
        made = [torch.compile(layer) for layer in made]
    model = Model(made)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                  reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy, reshard_after_forward=True)
    fully_shard(model, mp_policy=policy)
    torch_layers.TYPE = torch.bfloat16
    return model


def step_of(model, fused):
    head = HIDDEN // HEADS
    tokens = torch.randint(0, WORDS, TOKENS, device='cuda')
    turns = torch_layers.turns_of(TOKENS[1], head)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=fused,
                             foreach=not fused)

    def step():
        adam.zero_grad()
        logits = model(tokens, turns)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        adam.step()
    return step


def steps(table, deadline):
    import torch.distributed as dist
    from torch.nn.attention import SDPBackend, sdpa_kernel
    os.environ.setdefault('MASTER_ADDR', '127.0.0.1')
    os.environ.setdefault('MASTER_PORT', '29541')
    dist.init_process_group('nccl', rank=0, world_size=1)
    kernel_file = open(sys.argv[1].removesuffix('.csv') + '_kernels.csv', 'w')
    kernel_table = csv.writer(kernel_file, lineterminator='\n')
    kernel_table.writerow(['case', 'kernel', 'count', 'seconds'])
    cases = [('compiled', False, True, True), ('compiled', True, True, True),
             ('eager', False, True, True), ('compiled', False, False, True),
             ('compiled', False, True, False)]
    for launch, fp8, recomputed, flash in cases:
        name = ', '.join([launch, 'fp8' if fp8 else 'bf16',
                          'recomputed' if recomputed else 'kept',
                          'flash' if flash else 'default attention'])
        took = {}
        for count in (2, 6):
            if time.time() > deadline:
                print('no time for', name, count, flush=True)
                continue
            model = step = None
            try:
                with contextlib.ExitStack() as stack:
                    if flash:
                        stack.enter_context(
                            sdpa_kernel(SDPBackend.FLASH_ATTENTION))
                    model = sharded(count, launch, fp8, recomputed)
                    step = step_of(model, True)
                    took[count] = lasting(step, WARM_S, LASTING_S)
                    peak = torch.cuda.max_memory_allocated()
                    table(['step', f'{name}, {count} layers',
                           f'{took[count]:.6g}', peak])
                    if count == 6:
                        kernels(kernel_table, name, step)
                        kernel_file.flush()
            except Exception as error:
                print('failed', name, count, repr(error)[:1500], flush=True)
            model = step = None
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            torch._dynamo.reset()
        if len(took) == 2:
            table(['layer', name, f'{(took[6] - took[2]) / 4:.6g}', ''])
    dist.destroy_process_group()


def kernels(table, name, step):
    from torch.profiler import ProfilerActivity, profile
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        step()
        torch.cuda.synchronize()
    sums = {}
    for event in prof.events():
        if event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        count, seconds = sums.get(event.name, (0, 0))
        sums[event.name] = count + 1, seconds + 1e-6 * event.device_time
    for kernel, (count, seconds) in sums.items():
        table.writerow([name, kernel[:150], count, f'{seconds:.4g}'])


def weight_gradients(table, deadline):
    """bf16 result; fp32 result; added to what fp32 holds (Megatron's sums)."""
    shapes = [('llama3-8b gate-up', 28672, 4096), ('llama3-8b qkv', 6144, 4096),
              ('llama3-8b down', 4096, 14336), ('llama3-8b o', 4096, 4096),
              ('llama3-70b tp4 gate-up', 14336, 8192),
              ('llama3-70b tp4 qkv', 2560, 8192),
              ('llama3-70b tp4 down', 8192, 7168),
              ('llama3-70b tp4 o', 8192, 2048),
              ('llama3-405b tp8 gate-up', 13312, 16384),
              ('llama3-405b tp8 down', 16384, 6656)]
    for tokens in (2048, 4096, 8192):
        for name, n, k in shapes:
            if time.time() > deadline:
                print('no time for', name, tokens, flush=True)
                return
            g = torch.randn(tokens, n, device='cuda', dtype=torch.bfloat16)
            x = torch.randn(tokens, k, device='cuda', dtype=torch.bfloat16)
            wide = torch.zeros(n, k, device='cuda')
            narrow = torch.zeros(n, k, device='cuda', dtype=torch.bfloat16)
            ways = {
                'bf16': lambda: torch.mm(g.t(), x, out=narrow),
                'fp32': lambda: torch.mm(g.t(), x, out_dtype=torch.float32),
                'added in fp32': lambda: torch.addmm(
                    wide, g.t(), x, out_dtype=torch.float32, out=wide),
                'added in fp32 to another': lambda: torch.addmm(
                    wide, g.t(), x, out_dtype=torch.float32),
                'forward, bf16': lambda: torch.mm(x, narrow.t())}
            for way, call in ways.items():
                try:
                    seconds = lasting(call, 0.08, 0.15)
                    table(['weight gradient', f'{name} {n} x {k} x {tokens}, '
                           f'{way}', f'{seconds:.5g}', 2.0 * n * k * tokens])
                except Exception as error:
                    print('failed', name, way, repr(error)[:200], flush=True)


def copies(table):
    """FSDP2's copies out of a gathered layer and into what is reduced, and
    AdamW, of one layer of llama3-8b: bytes read and written."""
    sizes = [4096 * 4096, 1024 * 4096, 1024 * 4096, 4096 * 4096, 14336 * 4096,
             14336 * 4096, 14336 * 4096, 4096, 4096]
    total = sum(sizes)
    for world in (8, 128):
        gathered = torch.randn(total, device='cuda', dtype=torch.bfloat16)
        parts = [size // world for size in sizes]
        out = [torch.empty(world, part, device='cuda', dtype=torch.bfloat16)
               for part in parts]
        seconds = lasting(lambda: torch.split_with_sizes_copy(
            gathered.view(world, -1), parts, dim=1, out=out))
        table(['copy out of gathered', f'world {world}', f'{seconds:.5g}',
               4 * total])
        for kind, width in ((torch.bfloat16, 2), (torch.float32, 4)):
            gradients = [torch.randn(size // 4096, 4096, device='cuda',
                                     dtype=kind) for size in sizes]
            into = torch.empty(world, sum(
                -(-(size // 4096) // world) * 4096 for size in sizes),
                device='cuda')
            seconds = lasting(lambda: torch._chunk_cat(
                gradients, dim=0, num_chunks=world, out=into))
            table(['copy into the reduction', f'world {world}, from {width} '
                   'bytes', f'{seconds:.5g}', (width + 4) * total])
    for fused in (True, False):
        parameters = [torch.randn(size // 4, device='cuda', requires_grad=True)
                      for size in sizes * 8]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        adam = torch.optim.AdamW(parameters, lr=1e-5, fused=fused,
                                 foreach=not fused)
        seconds = lasting(adam.step)
        table(['AdamW', 'fused' if fused else 'foreach', f'{seconds:.5g}',
               28 * sum(p.numel() for p in parameters)])
        clip = functools.partial(torch.nn.utils.clip_grad_norm_, parameters,
                                 1.0, foreach=True)
        if not fused:
            table(['clipping', 'foreach', f'{lasting(clip):.5g}',
                   12 * sum(p.numel() for p in parameters)])


def main():
    if not torch.cuda.is_available():
        print('no GPU: nothing is measured')
        return
    start = time.time()
    limit_s = float(sys.argv[2]) if len(sys.argv) > 2 else 150
    file = open(sys.argv[1], 'w')
    out = csv.writer(file, lineterminator='\n')
    out.writerow(['what', 'case', 'seconds', 'bytes_or_flops'])

    def table(row):
        out.writerow(row)
        file.flush()
        print(*row, flush=True)

    for part in (functools.partial(weight_gradients, table, start + 35),
                 functools.partial(copies, table),
                 functools.partial(steps, table, start + limit_s)):
        try:
            part()
        except Exception as error:
            print('failed', repr(error)[:1500], flush=True)
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == '__main__':
    main()
