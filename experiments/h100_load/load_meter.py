"""Rate, power and clock of work on a GPU: in a short run, and under a lasting
load. Needs PyTorch with CUDA and nvidia-ml-py; reads the card's counters and
changes none of its settings.
"""
import csv
import threading
import time

import pynvml
import torch

pynvml.nvmlInit()
CARD = pynvml.nvmlDeviceGetHandleByIndex(0)
COLUMNS = ['kind', 'type', 'layout', 'm', 'n', 'k', 'work', 'burst_us',
           'burst_mhz', 'lasting_us', 'watts', 'sm_mhz', 'mem_mhz', 'temp_c',
           'reasons', 'runs']
WARM_S, LASTING_S = 0.8, 1.3


def randn(*shape):
    return torch.randn(*shape, device='cuda', dtype=torch.bfloat16)


def median(values):
    values = sorted(values)
    return values[len(values) // 2] if values else 0


def events(count):
    return [torch.cuda.Event(enable_timing=True) for _ in range(count)]


class Sampler(threading.Thread):
    """Clocks and the reasons for their limits, every 20 ms."""

    def __init__(self):
        super().__init__()
        self.ends = False
        self.sm, self.memory, self.reasons = [], [], 0

    def run(self):
        while not self.ends:
            self.sm.append(pynvml.nvmlDeviceGetClockInfo(
                CARD, pynvml.NVML_CLOCK_SM))
            self.memory.append(pynvml.nvmlDeviceGetClockInfo(
                CARD, pynvml.NVML_CLOCK_MEM))
            self.reasons |= pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(
                CARD)
            time.sleep(0.02)


def joules():
    return 1e-3 * pynvml.nvmlDeviceGetTotalEnergyConsumption(CARD)


def idle_watts():
    """With a context and no kernel, for 1.5 s."""
    torch.zeros(1, device='cuda')
    torch.cuda.synchronize()
    time.sleep(1.0)
    before, start = joules(), time.time()
    time.sleep(1.5)
    return (joules() - before) / (time.time() - start)


class Meter:
    """Writes a row for each piece of work; none after `limit_s`."""

    def __init__(self, path, limit_s):
        self.start = time.time()
        self.limit_s = limit_s
        self.out = csv.writer(open(path, 'w'))
        self.out.writerow(COLUMNS)

    def burst(self, work, repeats=6):
        """Median seconds of one of three runs in a row, after a pause."""
        times, clocks = [], []
        for _ in range(repeats):
            time.sleep(0.06)
            work()
            marks = events(4)
            marks[0].record()
            for mark in marks[1:]:
                work()
                mark.record()
            torch.cuda.synchronize()
            clocks.append(pynvml.nvmlDeviceGetClockInfo(
                CARD, pynvml.NVML_CLOCK_SM))
            times += [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
        return 1e-3 * median(times), median(clocks)

    def lasting(self, work, burst_s):
        per = max(1, int(0.1 / burst_s))
        end = time.time() + WARM_S
        while time.time() < end:
            for _ in range(per):
                work()
            torch.cuda.synchronize()
        sampler = Sampler()
        sampler.start()
        first, last = events(2)
        before, start, runs, waiting = joules(), time.time(), 0, None
        first.record()
        while time.time() - start < LASTING_S:
            for _ in range(per):
                work()
            runs += per
            mark = torch.cuda.Event()
            mark.record()
            # One chunk ahead of the device, so that it never waits.
            if waiting is not None:
                waiting.synchronize()
            waiting = mark
        last.record()
        torch.cuda.synchronize()
        watts = (joules() - before) / (time.time() - start)
        sampler.ends = True
        sampler.join()
        return first.elapsed_time(last) / runs, watts, sampler, runs

    def measure(self, kind, type_, layout, shape, amount, work):
        """`amount` is what one run does: FLOPs, or bytes."""
        if time.time() - self.start > self.limit_s:
            return
        try:
            work()
            torch.cuda.synchronize()
            burst_s, burst_mhz = self.burst(work)
            lasting_ms, watts, sampler, runs = self.lasting(work, burst_s)
            row = [kind, type_, layout, *shape, f'{amount:.6g}',
                   f'{burst_s * 1e6:.2f}', burst_mhz,
                   f'{lasting_ms * 1e3:.2f}', f'{watts:.1f}',
                   median(sampler.sm), median(sampler.memory),
                   pynvml.nvmlDeviceGetTemperature(CARD, 0),
                   hex(sampler.reasons), runs]
            self.out.writerow(row)
            print(*row, flush=True)
        except Exception as error:
            print('failed', kind, type_, layout, shape, repr(error)[:300],
                  flush=True)

    def short(self, name, work, size=0):
        """A short run alone."""
        try:
            work()
            torch.cuda.synchronize()
            burst_s, burst_mhz = self.burst(work, 4)
            self.out.writerow(['short', name, '', size, 0, 0, 0,
                               f'{burst_s * 1e6:.2f}', burst_mhz] + [''] * 7)
            print('short', name, size, f'{burst_s * 1e6:.2f} us', flush=True)
        except Exception as error:
            print('failed', name, repr(error)[:300], flush=True)

    def product(self, type_, layout, shape, work):
        m, n, k = shape
        self.measure('gemm', type_, layout, shape, 2.0 * m * n * k, work)


def gemm(m, n, k, layout):
    """y[m, n] with inner size k. TN: x[m,k] w[n,k]^T; NN: dy[m,k] w[k,n];
    NT: a[k,m]^T b[k,n]."""
    y = randn(m, n)
    if layout == 'TN':
        x, w = randn(m, k), randn(n, k)
        return lambda: torch.mm(x, w.t(), out=y)
    if layout == 'NN':
        x, w = randn(m, k), randn(k, n)
        return lambda: torch.mm(x, w, out=y)
    a, b = randn(k, m), randn(k, n)
    return lambda: torch.mm(a.t(), b, out=y)


def fp8(m, n, k, fast):
    """e4m3, one scale a tensor; `fast`: sums stay in the tensor cores."""
    def operand(rows):
        values = (randn(rows, k) * 100).clamp(-448, 448)
        return values.to(torch.float8_e4m3fn)
    x, w = operand(m), operand(n)
    scale = torch.tensor(0.01, device='cuda')
    return lambda: torch._scaled_mm(x, w.t(), scale_a=scale, scale_b=scale,
                                    out_dtype=torch.bfloat16,
                                    use_fast_accum=fast)
