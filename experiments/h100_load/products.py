"""Products of a Llama layer and of larger ones, attention, a copy and a norm,
each alone: python3 products.py OUT.csv [SECONDS]"""
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from load_meter import Meter, fp8, gemm, idle_watts, randn

SHAPES = [(8192, 8192, 8192), (8192, 6144, 4096), (8192, 4096, 4096),
          (8192, 28672, 4096), (8192, 4096, 14336), (8192, 2560, 8192),
          (8192, 14336, 8192), (8192, 8192, 7168), (4096, 13312, 16384),
          (4096, 16384, 6656)]

torch.manual_seed(1)
meter = Meter(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 120)
print('idle watts', idle_watts())
for shape in SHAPES:
    meter.product('bf16', 'TN', shape, gemm(*shape, 'TN'))
for shape in SHAPES:
    meter.product('fp8', 'TN', shape, fp8(*shape, True))
big = torch.randn(2**29, device='cuda')
other = torch.empty_like(big)
meter.measure('copy', 'fp32', '', (2**29, 0, 0), 2 * 4 * 2.0**29,
              lambda: other.copy_(big))
del big, other
q, k, v = (torch.randn(1, 32, 8192, 128, device='cuda', dtype=torch.bfloat16,
                       requires_grad=True) for _ in range(3))
flops = 4.0 * 32 * 8192 * 8192 * 128 / 2
with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
    with torch.no_grad():
        meter.measure('attention', 'bf16', 'forward', (1, 8192, 32), flops,
                      lambda: F.scaled_dot_product_attention(
                          q, k, v, is_causal=True))
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    g = torch.randn_like(o)
    meter.measure('attention', 'bf16', 'backward', (1, 8192, 32), 2.5 * flops,
                  lambda: torch.autograd.grad(o, (q, k, v), g,
                                              retain_graph=True))
del q, k, v, o, g
for m, n, k in [SHAPES[at] for at in (0, 3, 4, 6)]:
    meter.product('bf16', 'NN', (m, k, n), gemm(m, k, n, 'NN'))
    meter.product('bf16', 'NT', (n, k, m), gemm(n, k, m, 'NT'))
x, w = randn(16384, 8192), randn(8192)
meter.measure('rms_norm', 'bf16', '', (16384, 8192, 0), 2 * 2.0 * 16384 * 8192,
              lambda: F.rms_norm(x, (8192,), w))
for shape in [SHAPES[at] for at in (0, 3, 6)]:
    meter.product('fp8-exact', 'TN', shape, fp8(*shape, False))
