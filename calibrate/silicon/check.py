#!/usr/bin/env python3
"""How far off the tables of this folder are, and the fit of the clock.

  check.py --source DIR [--device NAME]... [--part PART]...

PART: campaigns, left-out, fp8, experts, clock; all unless told otherwise.

It interpolates by itself, as sim/cost/silicon_grid.cc does: the mean of time
over work and time over a model of tiles, linear in logarithms. DIR is that of
distil.py; of `training_kernels/` only `gemm.csv` is opened.
"""
import argparse
import bisect
import math
import os
import statistics
import sys
import zlib

import distil

# Peak, part of it, bytes a second, multiprocessors: devices/*.textproto.
SHEETS = {
    "a100": (312e12 * 0.75, 2.039e12 * 0.88, 108),
    "h100": (989.4e12 * 0.82, 3.35e12 * 0.896, 132),
    "h200": (989.4e12 * 0.82, 4.8e12 * 0.896, 132),
    "b200": (2250e12 * 0.82, 8e12 * 0.896, 148),
    "b300": (2250e12 * 0.82, 8e12 * 0.896, 148),
    "gb200": (2500e12 * 0.82, 8e12 * 0.896, 152),
    "gb300": (2500e12 * 0.82, 8e12 * 0.896, 152),
}
TILES = [(256, 128, 1), (128, 256, 1), (192, 128, .98), (128, 192, .98),
         (128, 128, .95), (128, 64, .8), (64, 128, .8), (64, 64, .65)]
GAP = 2e-6


class Model:
    """sim/cost/kernel_time.cc, GemmSeconds, of bf16."""

    def __init__(self, device):
        self.peak, self.bandwidth, self.sms = SHEETS[device]
        self.known = {}

    def __call__(self, shape):
        if shape not in self.known:
            m, n, k = shape
            best = math.inf
            for rows, columns, part in TILES:
                tiles = math.ceil(m / rows) * math.ceil(n / columns)
                for cut in range(1, min(8, max(1, int(k // 2048))) + 1):
                    waves = math.ceil(tiles * cut / self.sms)
                    flop = 2 * rows * columns * (k / cut + 128)
                    best = min(best, waves * flop * self.sms /
                               (self.peak * part))
            bytes_moved = 2 * (m * n + n * k + m * k)
            self.known[shape] = max(best, bytes_moved / self.bandwidth) + GAP
        return self.known[shape]


class Grid:
    def __init__(self, times, model):
        self.model = model
        self.axes = [sorted({shape[axis] for shape in times})
                     for axis in range(3)]
        self.logs = {shape: math.log(time) for shape, time in times.items()}
        self.holes = {}

    def log_at(self, shape):
        """Measured, or filled from the neighbours along each axis."""
        if shape in self.logs:
            return self.logs[shape]
        if shape not in self.holes:
            total = weights = 0
            beside = None
            for axis in range(3):
                sizes = self.axes[axis]
                at = bisect.bisect_left(sizes, shape[axis])

                def near(places):
                    for place in places:
                        other = (shape[:axis] + (sizes[place],)
                                 + shape[axis + 1:])
                        if (other in self.logs
                                and sizes[place] % 2 == shape[axis] % 2):
                            return sizes[place], self.logs[other]
                    return None
                low = near(range(at - 1, -1, -1))
                high = near(range(at + 1, len(sizes)))
                for one in (low, high):
                    if one is None:
                        continue
                    away = abs(math.log(one[0] / shape[axis]))
                    if beside is None or away < beside[0]:
                        beside = (away, one[1] + math.log(
                            shape[axis] / one[0]))
                if low is None or high is None:
                    continue
                span = math.log(high[0] / low[0])
                part = math.log(shape[axis] / low[0]) / span
                value = ((1 - part) * (low[1] - math.log(low[0]))
                         + part * (high[1] - math.log(high[0]))
                         + math.log(shape[axis]))
                weight = 1 / (span + 0.05) ** 2
                total += weight * value
                weights += weight
            # At an edge: as the nearest one, by the work.
            self.holes[shape] = (total / weights if weights else
                                 beside[1] if beside else None)
        return self.holes[shape]

    def __call__(self, shape):
        places, inside = [], []
        for axis in range(3):
            sizes = self.axes[axis]
            size = min(max(shape[axis], sizes[0]), sizes[-1])
            inside.append(size)
            high = bisect.bisect_left(sizes, size)
            low = high if sizes[high] == size else high - 1
            if low < high and shape[axis] % 2 == 0:
                # Kernels for an odd number of rows are others.
                even = [place for place in range(len(sizes))
                        if sizes[place] % 2 == 0]
                below = [place for place in even if place <= low]
                above = [place for place in even if place >= high]
                if below and above:
                    low, high = below[-1], above[0]
            part = (0 if low == high else
                    math.log(size / sizes[low])
                    / math.log(sizes[high] / sizes[low]))
            places.append((sizes[low], sizes[high], part))
        by_work = by_model = weights = 0
        for corner in range(8):
            weight, cell = 1, []
            for axis in range(3):
                low, high, part = places[axis]
                weight *= part if corner >> axis & 1 else 1 - part
                cell.append(high if corner >> axis & 1 else low)
            if weight == 0:
                continue
            cell = tuple(cell)
            log = self.log_at(cell)
            if log is None:
                continue
            weights += weight
            by_work += weight * (log - math.log(math.prod(cell)))
            by_model += weight * (log - math.log(self.model(cell)))
        inside = tuple(inside)
        if not weights:
            return None
        time = math.exp(
            0.5 * (by_work / weights + math.log(math.prod(inside)))
            + 0.5 * (by_model / weights + math.log(self.model(inside))))
        if inside != tuple(shape):
            time *= self.model(tuple(shape)) / self.model(inside)
        return time


def describe(errors):
    size = sorted(abs(math.exp(error) - 1) for error in errors)
    count = len(size)
    return ("%5d shapes, median %4.1f %%, 90 %% within %4.1f %%, within 10 %%: "
            "%3.0f %%, within 25 %%: %3.0f %%, bias %+5.1f %%" %
            (count, 100 * size[count // 2], 100 * size[int(.9 * count)],
             100 * sum(x <= .10 for x in size) / count,
             100 * sum(x <= .25 for x in size) / count,
             100 * (math.exp(statistics.median(errors)) - 1)))


def raw(source, name, kind):
    """{campaign: {shape: seconds}}, every shape of the source."""
    out = {}
    for row in distil.rows_of(source, "silicon", name + "_gemm.csv.gz"):
        if row["dtype"] == kind:
            shape = (int(row["m"]), int(row["n"]), int(row["k"]))
            out.setdefault(row["campaign"], {})[shape] = \
                float(row["latency_ms"]) * 1e-3
    return out


def kept(times, kind):
    return {shape: time for shape, time in times.items()
            if distil.keeps_gemm(kind, *shape)}


def large(times, least=1024):
    return [shape for shape in times if min(shape) >= least]


def check_campaigns(source, name, device, kind, label):
    campaigns = raw(source, name, kind)
    model = Model(device)
    for table in sorted(campaigns):
        grid = Grid(kept(campaigns[table], kind), model)
        for other in sorted(campaigns):
            if other == table:
                continue
            errors = [math.log(grid(shape) / campaigns[other][shape])
                      for shape in large(campaigns[other])]
            print("%s %s, table %s against %s: %s" %
                  (label, device, table, other, describe(errors)), flush=True)


def shipped(source, name, device, kind):
    values = distil.combine(distil.gemm(source, name, device)[kind])
    return {shape: time for shape, (time, _) in values.items()}


def check_left_out(source, name, device):
    """One shape of eight is left out of the table and estimated."""
    times = shipped(source, name, device, "bfloat16")

    def is_out(shape):
        return zlib.crc32(b"%d,%d,%d" % shape) % 8 == 0
    grid = Grid({shape: time for shape, time in times.items()
                 if not is_out(shape)}, Model(device))
    errors = [math.log(grid(shape) / times[shape]) for shape in large(times)
              if is_out(shape)]
    print("left out %s: %s" % (device, describe(errors)), flush=True)


def check_experts(source, name, device):
    """One layer of experts of eight is left out of the table and estimated, as
    sim/cost/silicon.cc does, by its two products."""
    grid = Grid(shipped(source, name, device, "bfloat16"), Model(device))
    bandwidth = SHEETS[device][1]
    known = {}

    def product(groups, rows, n, k):
        shape = (groups * rows, n, k)
        if shape not in known:
            known[shape] = grid(shape)
        traffic = 2 * (groups * n * k + groups * rows * (k + n))
        return max(known[shape], traffic / bandwidth)

    def reference(shape):
        groups, rows, hidden, inner = shape
        return (product(groups, rows, 2 * inner, hidden)
                + product(groups, rows, hidden, inner))
    times = {shape: time for shape, (time, _) in distil.combine(
        distil.experts(source, name)["bfloat16"]).items()}

    def is_out(shape):
        return zlib.crc32(b"%d,%d,%d,%d" % shape) % 8 == 0
    ratios = {shape: math.log(time / reference(shape))
              for shape, time in times.items() if not is_out(shape)}
    errors = []
    for shape in times:
        if not is_out(shape):
            continue
        near = sorted((sum(math.log2(other[axis] / shape[axis]) ** 2
                           for axis in range(4)), ratio)
                      for other, ratio in ratios.items())[:4]
        weights = [1 / (square + 0.01) for square, _ in near]
        log = sum(weight * ratio for weight, (_, ratio) in zip(weights, near))
        errors.append(log / sum(weights)
                      + math.log(reference(shape) / times[shape]))
    print("experts, left out %s: %s" % (device, describe(errors)), flush=True)


# Watts of the board and idle; of the joules of bf16 on B200, the part that
# another process and clock make (devices/*.textproto).
BOARDS = {"b200_sxm": ("b200_sxm", "b200", 1000, 140, 1.0),
          "a100_pcie": ("a100_sxm", "a100", 300, 50,
                        1.743 * (1.4102 / 1.8557) ** 2)}


def pairs(source, card):
    """(rate of a short run, lasting time over short, layout) by product."""
    name, device = BOARDS[card][:2]
    grid = Grid(shipped(source, name, device, "bfloat16"), Model(device))
    for row in distil.rows_of(source, "training_kernels", "gemm.csv"):
        if row["device"] != card:
            continue
        shape = (int(row["m"]), int(row["n"]), int(row["k"]))
        short = grid(shape)
        yield (2 * math.prod(shape) / short,
               float(row["time_ms"]) * 1e-3 / short, row["layout"])


def slower(card, joules, rate, power):
    _, _, board, idle, part = BOARDS[card]
    return max(1, (joules * part * rate / (board - idle)) ** (1 / power))


def check_clock(source):
    measured = list(pairs(source, "b200_sxm"))
    other = list(pairs(source, "a100_pcie"))
    for power in (1, 2, 3):
        def errors(card, rows, joules):
            return [math.log(slower(card, joules, rate, power) / ratio)
                    for rate, ratio, _ in rows]
        joules = min((step * 1e-14 for step in range(30, 400)),
                     key=lambda value: abs(statistics.median(
                         errors("b200_sxm", measured, value))))
        print("clock, power of rate %d: %.2f pJ/FLOP; B200 fitted: %s" %
              (power, joules * 1e12,
               describe(errors("b200_sxm", measured, joules))))
        print("clock, power of rate %d: A100 PCIe, not fitted: %s" %
              (power, describe(errors("a100_pcie", other, joules))))
        for layout in ("TN", "NN", "NT"):
            rows = [row for row in measured if row[2] == layout]
            print("clock, power of rate %d: B200 %s: %s" %
                  (power, layout,
                   describe(errors("b200_sxm", rows, joules))), flush=True)
    none = [math.log(1 / ratio) for _, ratio, _ in other]
    print("clock, none: A100 PCIe: %s" % describe(none))


# Sums of gradients (sim/cost/op_time.h): the part of their traffic that W does
# not hide, measured on an H100; bytes a second of a stream (devices).
SUM_PART = 0.54
STREAMS = {"b200_sxm": 8e12 * 0.896, "a100_pcie": 1.935e12 * 0.896}
JOULES = 1.50e-12


def check_sums(source):
    """Lasting products of W that add to a sum, against the table, the clock and
    the sum's part; nothing here was fitted to these. The other layouts, which
    add to nothing, are the control."""
    for card in ("b200_sxm", "a100_pcie"):
        name, device = BOARDS[card][:2]
        grid = Grid(shipped(source, name, device, "bfloat16"), Model(device))
        errors = {}
        for row in distil.rows_of(source, "training_kernels", "gemm.csv"):
            if row["device"] != card:
                continue
            shape = (int(row["m"]), int(row["n"]), int(row["k"]))
            short = grid(shape)
            lasting = short * slower(card, JOULES, 2 * math.prod(shape) / short,
                                     3)
            moved = 0
            if row["accumulate"] == "1":
                wide = 4 if row["out_dtype"] == "fp32" else 2
                moved = (2 * wide - 2) * shape[0] * shape[1] / STREAMS[card]
            key = (row["layout"], row["out_dtype"])
            for part in (0, SUM_PART, 1):
                errors.setdefault((key, part), []).append(
                    math.log((lasting + part * moved)
                             / (float(row["time_ms"]) * 1e-3)))
        for (key, part), logs in sorted(errors.items()):
            if part > 0 and key[0] != "NT":
                continue
            print("sums: %s %s, %g of their traffic: median %+.3f, %s" %
                  (card, " ".join(key), part, statistics.median(logs),
                   describe(logs)), flush=True)


PARTS = ["campaigns", "left-out", "fp8", "experts", "clock", "sums"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source", required=True, metavar="DIR")
    parser.add_argument("--device", action="append", metavar="NAME")
    parser.add_argument("--part", action="append",
                        choices=PARTS)
    args = parser.parse_args()
    parts = args.part or PARTS
    if not os.path.isdir(os.path.join(args.source, "silicon")):
        sys.exit("check.py: %s: has no folder silicon" % args.source)
    for name, device in distil.DEVICES:
        if args.device and device not in args.device:
            continue
        if "campaigns" in parts:
            check_campaigns(args.source, name, device, "bfloat16", "bf16")
        if "left-out" in parts:
            check_left_out(args.source, name, device)
        if "fp8" in parts and device != "a100":
            check_campaigns(args.source, name, device, "fp8", "fp8")
        if "experts" in parts and device != "a100":
            check_experts(args.source, name, device)
    if "clock" in parts:
        check_clock(args.source)
    if "sums" in parts:
        check_sums(args.source)


if __name__ == "__main__":
    main()
