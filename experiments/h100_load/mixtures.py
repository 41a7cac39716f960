"""Does the clock follow the mean power of what runs in turn? Layers of products,
attention, copies and waiting; products with gaps; and what PyTorch runs without
fusion: python3 mixtures.py OUT.csv [SECONDS]

`layout` of a mixture: FLOPs of attention forward / backward / bytes of copies."""
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from load_meter import Meter, fp8, gemm, idle_watts, randn

torch.manual_seed(2)
meter = Meter(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 120)
print('idle watts', idle_watts())

TOKENS = 8192
DENSE = [(TOKENS, 6144, 4096), (TOKENS, 4096, 4096), (TOKENS, 28672, 4096),
         (TOKENS, 4096, 14336)]


def passes(m, n, k):
    return ((m, n, k), 'TN'), ((m, k, n), 'NN'), ((n, k, m), 'NT')


PRODUCTS = [gemm(*shape, layout) for dense in DENSE
            for shape, layout in passes(*dense)]
NARROW = [fp8(*shape, at == 0) for dense in DENSE
          for at, (shape, _) in enumerate(passes(*dense))]
FLOPS = 3 * sum(2.0 * m * n * k for m, n, k in DENSE)
ATTENTION = 4.0 * 32 * TOKENS * TOKENS * 128 / 2

q, k, v = (torch.randn(1, 32, TOKENS, 128, device='cuda', dtype=torch.bfloat16,
                       requires_grad=True) for _ in range(3))
with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
g = torch.randn_like(o)


def forward():
    with torch.no_grad(), sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
        F.scaled_dot_product_attention(q, k, v, is_causal=True)


def backward():
    torch.autograd.grad(o, (q, k, v), g, retain_graph=True)


wide, other = randn(TOKENS, 28672), randn(TOKENS, 28672)
COPIED = 2.0 * 2 * TOKENS * 28672
CYCLES = 2_000_000


def copies(count):
    def run():
        for _ in range(count):
            other.copy_(wide)
    return run


def wait(cycles=CYCLES):
    torch.cuda._sleep(cycles)


def mixture(name, works, forward_flops=0.0, copied=0.0, type_='bf16'):
    def run():
        for work in works:
            work()
    parts = f'{forward_flops:.6g}/{2.5 * forward_flops:.6g}/{copied:.6g}'
    meter.measure(name, type_, parts, (TOKENS, 0, 0), FLOPS, run)


both = [forward, backward]
# The parts first: their short runs are what a prediction starts from.
meter.measure('attention', 'bf16', 'forward', (1, TOKENS, 32), ATTENTION,
              forward)
meter.measure('attention', 'bf16', 'backward', (1, TOKENS, 32),
              2.5 * ATTENTION, backward)
meter.measure('copy', 'bf16', '', (0, 0, 0), COPIED, copies(1))
mixture('products', PRODUCTS)
mixture('products, attention', PRODUCTS + both, ATTENTION)
for count in (2, 6, 12):
    half = count // 2
    mixture(f'layer, {count} copies',
            PRODUCTS[:6] + [forward, copies(half)] + PRODUCTS[6:] +
            [backward, copies(count - half)], ATTENTION, count * COPIED)
mixture('layer, 2 copies, 2 waits',
        PRODUCTS + both + [copies(2), wait, wait], ATTENTION, 2 * COPIED)
mixture('layer, 2 copies, 6 waits',
        PRODUCTS + both + [copies(2)] + 6 * [wait], ATTENTION, 2 * COPIED)
mixture('products', NARROW, type_='fp8')
mixture('layer, 4 copies', NARROW + both + [copies(4)], ATTENTION, 4 * COPIED,
        type_='fp8')

# How the energy of a product follows the clock: gaps between them.
one = gemm(8192, 8192, 8192, 'TN')
for share in (0.05, 0.1, 0.2, 0.35, 0.5):
    cycles = int(1.6e6 * 1.75 * share / (1 - share))

    def gapped(cycles=cycles):
        one()
        wait(cycles)
    meter.measure(f'product, gaps {share:.2f}', 'bf16', str(cycles),
                  (8192, 8192, 8192), 2.0 * 8192**3, gapped)
meter.measure('wait', '', '', (CYCLES, 0, 0), 1, wait)
for _ in range(400):
    one()
print(subprocess.run(['nvidia-smi', '-q', '-d', 'VOLTAGE'], capture_output=True,
                     text=True).stdout[-200:])
torch.cuda.synchronize()
del PRODUCTS, NARROW, one, q, k, v, o, g

for length in (2048, 4096, 8192):
    batch = 2 * TOKENS // length
    for backend, name in ((SDPBackend.FLASH_ATTENTION, 'flash'),
                          (SDPBackend.CUDNN_ATTENTION, 'cudnn')):
        q, k, v = (torch.randn(batch, 32, length, 128, device='cuda',
                               dtype=torch.bfloat16, requires_grad=True)
                   for _ in range(3))
        with sdpa_kernel([backend]):
            with torch.no_grad():
                meter.short(f'sdpa {name} forward',
                            lambda: F.scaled_dot_product_attention(
                                q, k, v, is_causal=True), length)
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            g = torch.randn_like(o)
            meter.short(f'sdpa {name} backward',
                        lambda: torch.autograd.grad(o, (q, k, v), g,
                                                    retain_graph=True), length)
        del q, k, v, o, g


def both_ways(name, make, *shapes):
    inputs = [torch.randn(*shape, device='cuda', dtype=torch.bfloat16,
                          requires_grad=True) for shape in shapes]
    with torch.no_grad():
        meter.short(f'{name} forward', lambda: make(*inputs))
    y = make(*inputs)
    gradient = torch.randn_like(y)
    meter.short(f'{name} backward', lambda: torch.autograd.grad(
        y, inputs, gradient, retain_graph=True))


def eager_norm(x, w):
    z = x.float()
    z = z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-5)
    return z.type_as(x) * w


ROTATIONS = torch.polar(torch.ones(8192, 64, device='cuda'),
                        torch.randn(8192, 64, device='cuda'))


def rotary(x):
    z = torch.view_as_complex(x.float().reshape(2, 8192, 40, 64, 2))
    return torch.view_as_real(
        z * ROTATIONS.view(1, 8192, 1, 64)).flatten(3).type_as(x)


ROWS = 2 * TOKENS
both_ways('rms_norm eager', eager_norm, (ROWS, 4096), (4096,))
both_ways('rms_norm fused', lambda x, w: F.rms_norm(x, (4096,), w),
          (ROWS, 4096), (4096,))
both_ways('swiglu eager', lambda a, b: F.silu(a) * b, (ROWS, 14336),
          (ROWS, 14336))
both_ways('add', lambda a, b: a + b, (ROWS, 4096), (ROWS, 4096))
both_ways('rotary complex', rotary, (2, 8192, 40, 128))
both_ways('repeat_kv', lambda x: x[:, :, :, None, :].expand(
    2, 8192, 8, 4, 128).reshape(2, 8192, 32, 128), (2, 8192, 8, 128))
labels = torch.randint(0, 128256, (ROWS,), device='cuda')
both_ways('cross_entropy fp32',
          lambda x: F.cross_entropy(x.float(), labels), (ROWS, 128256))
