#!/usr/bin/env python3
"""Distils measured kernel times of others into the tables of this folder.

  distil.py --source DIR [--output DIR]

DIR holds `silicon/`, `sdpa/` and `norms/`: numbers of ai-dynamo/aiconfigurator
(Apache-2.0) and NVIDIA/cudnn-frontend (MIT), as NOTICE says. Nothing else below
DIR is opened; times of whole steps above all are not. The same source gives the
same bytes.

A table is a text file, packed with gzip:

  pipewright-silicon 1
  # comments
  table gemm bfloat16 TN
  m,n,k,us,error_percent
  ...

`us` is the time of one call in microseconds under burst clocks, the geometric
mean of the campaigns. `error_percent` is half a 90 % interval of what another
campaign would have measured: from the spread of the campaigns at this shape,
and no less than the median spread of the table. Interpolation adds its own
part where it is done (sim/cost/silicon.h).
"""
import argparse
import csv
import gzip
import io
import math
import os
import statistics
import sys

# Source name, name of the device here.
DEVICES = [("a100_sxm", "a100"), ("h100_sxm", "h100"), ("h200_sxm", "h200"),
           ("b200_sxm", "b200"), ("b300_sxm", "b300"), ("gb200", "gb200"),
           ("gb300", "gb300")]
GEMM_TYPES = ["bfloat16", "fp8", "fp8_block", "nvfp4"]

# Campaigns that are not used, with the reason.
#  - GB200, vllm: slower than trtllm by 27 % in the median and by 90 % at
#    8192^3, where B200 runs 1.6 times as fast: a throttled node.
#  - fp8_block, vllm: run without a CUDA graph, so with the host's launch time.
LEFT_OUT = {("gb200", "vllm-0.24.0", None), (None, "vllm-0.24.0", "fp8_block")}
# Above this work vllm's unfilled weights draw less power than data do.
UNFILLED_FLOP = 3e12

# Half of a 90 % interval over the difference of the logarithms of two
# campaigns: each is off by a normal error of the same size, sigma = |d| /
# sqrt(2) * 1.4826 * 0.6745 (median of |d| of two), and one more campaign
# against the mean of n has sigma * sqrt(1 + 1 / n).
NORMAL_90 = 1.6449


def rows_of(source, *path):
    name = os.path.join(source, *path)
    opener = gzip.open if name.endswith(".gz") else open
    with opener(name, "rt", newline="") as stream:
        yield from csv.DictReader(stream)


def is_left_out(device, campaign, kind):
    return ((device, campaign, None) in LEFT_OUT
            or (None, campaign, kind) in LEFT_OUT)


def four_digits(value):
    """At most four significant digits, without an exponent."""
    if value >= 1000:
        return "%d" % round(value)
    text = "%.*f" % (max(0, 3 - math.floor(math.log10(value))), value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def combine(shapes):
    """{shape: {campaign: seconds}} -> {shape: (seconds, error)}, sorted."""
    means, spreads = {}, []
    for shape, times in shapes.items():
        logs = [math.log(time) for time in times.values()]
        mean = math.fsum(logs) / len(logs)
        spread = max(logs) - min(logs) if len(logs) > 1 else None
        means[shape] = (mean, spread, len(logs))
        if spread is not None:
            spreads.append(spread)
    # Median of |x - y| for two normal errors is 0.6745 * sqrt(2) * sigma.
    typical = (statistics.median(spreads) / (0.6745 * math.sqrt(2))
               if spreads else 0.05)
    out = {}
    for shape in sorted(means):
        mean, spread, count = means[shape]
        own = 0 if spread is None else spread / math.sqrt(2)
        sigma = math.sqrt((own * own + 2 * typical * typical) / 3)
        error = NORMAL_90 * max(sigma, typical) * math.sqrt(1 + 1 / count)
        out[shape] = (math.exp(mean), error)
    return out


def table_text(words, columns, values):
    out = io.StringIO()
    out.write("table %s\n%s,us,error_percent\n" %
              (" ".join(words), ",".join(columns)))
    for shape, (seconds, error) in values.items():
        out.write("%s,%s,%d\n" % (",".join(str(part) for part in shape),
                                  four_digits(seconds * 1e6),
                                  max(1, round(100 * error))))
    return out.getvalue()


def pack(path, notes, tables):
    text = "pipewright-silicon 1\n"
    text += "".join("# %s\n" % note for note in notes) + "".join(tables)
    # No name and no time in the header: the same text, the same bytes.
    with open(path, "wb") as raw:
        with gzip.GzipFile(filename="", mode="wb", compresslevel=9,
                           fileobj=raw, mtime=0) as stream:
            stream.write(text.encode("ascii"))


CONFIGURATOR = "ai-dynamo/aiconfigurator 095f58a51c4c, Apache-2.0, distilled"
FRONTEND = "NVIDIA/cudnn-frontend 3929da2ef4c1, MIT, distilled"


def keeps_gemm(kind, m, n, k):
    """Sizes of training, not those of decoding. One row more than a multiple
    of the tile only for bfloat16 and large n and k: elsewhere a time between
    the neighbours must do."""
    if m % 2 == 1:
        return kind == "bfloat16" and min(m, n, k) >= 1024
    return m >= 16 and min(n, k) >= 128


def gemm(source, name, device):
    """{type: {shape: {campaign: seconds}}} of the shapes that are kept."""
    types = {}
    for row in rows_of(source, "silicon", name + "_gemm.csv.gz"):
        shape = (int(row["m"]), int(row["n"]), int(row["k"]))
        if not keeps_gemm(row["dtype"], *shape):
            continue
        if is_left_out(device, row["campaign"], row["dtype"]):
            continue
        shapes = types.setdefault(row["dtype"], {})
        times = shapes.setdefault(shape, {})
        # A shape that the source has twice: the geometric mean is taken.
        times.setdefault(row["campaign"], []).append(
            float(row["latency_ms"]) * 1e-3)
    for kind, shapes in types.items():
        for shape, times in shapes.items():
            for campaign in times:
                times[campaign] = math.exp(statistics.fmean(
                    math.log(time) for time in times[campaign]))
            flop = 2 * shape[0] * shape[1] * shape[2]
            if kind in ("bfloat16", "fp8") and flop > UNFILLED_FLOP \
                    and len(times) > 1:
                shapes[shape] = {campaign: time
                                 for campaign, time in times.items()
                                 if not campaign.startswith("vllm")}
    return types


def attention_forward(source, name, device):
    """{(batch * heads, seq): {campaign: seconds}} by head_dim: causal."""
    heads_of = {}
    for row in rows_of(source, "silicon", name + "_attn.csv.gz"):
        # trtllm's rows hold the rotary embedding and the split of q, k, v.
        if row["campaign"].startswith("trtllm") and device != "gb200":
            continue
        if is_left_out(device, row["campaign"], "attention"):
            continue
        if "decode" in row["kernel"]:
            continue
        head_dim, length = int(row["head_dim"]), int(row["isl"])
        if head_dim > 256 or length < 256:
            continue
        shape = (int(row["batch"]) * int(row["heads"]), length)
        shapes = heads_of.setdefault(head_dim, {})
        # Rows with other numbers of key heads stand for campaigns here: the
        # spread is theirs.
        key = (int(row["heads"]) // int(row["kv_heads"]), row["batch"])
        shapes.setdefault(shape, {})[key] = float(row["latency_ms"]) * 1e-3
    return heads_of


def thin(shapes, most_heads=2048):
    """Powers of two and of two times three are enough for attention."""
    def plain(value):
        while value % 2 == 0:
            value //= 2
        return value in (1, 3)
    return {shape: times for shape, times in shapes.items()
            if plain(shape[0]) and plain(shape[1]) and shape[0] <= most_heads}


def latent(source, name):
    """{(batch * heads, seq): {campaign: seconds}} of latent attention forward,
    causal, 192 wide queries and 128 wide values: a width of 160."""
    shapes = {}
    for row in rows_of(source, "silicon", name + "_mla.csv.gz"):
        length, heads = int(row["isl"]), int(row["heads"])
        # The other framework's kernels were replaced since.
        if length < 256 or not row["campaign"].startswith("trtllm"):
            continue
        shape = (int(row["batch"]) * heads, length)
        key = (row["campaign"], row["batch"], heads)
        shapes.setdefault(shape, {})[key] = float(row["latency_ms"]) * 1e-3
    return shapes


def windows(source):
    """{gpu: {(pass, head_dim): {(heads, seq, window): {row: seconds}}}}."""
    out = {}
    for number, row in enumerate(rows_of(source, "sdpa", "sdpa.csv")):
        if row["dtype"] != "bfloat16" or not row["window"]:
            continue
        if row["q_len"] != row["kv_len"] or row["deterministic"] == "1":
            continue
        key = (row["pass"], int(row["head_dim_qk"]))
        shape = (int(row["batch"]) * int(row["heads"]), int(row["q_len"]),
                 int(row["window"]))
        tables = out.setdefault(row["gpu"].lower(), {})
        tables.setdefault(key, {}).setdefault(shape, {})[number] = \
            float(row["time_ms"]) * 1e-3
    return out


EXPERT_TOKENS = (2048, 4096, 8192, 16384, 32768, 65536)


def experts(source, name):
    """{type: {(groups, rows, hidden, inner): {campaign: seconds}}} of whole
    gated layers of experts, by the fastest kernel of a campaign."""
    out = {}
    for row in rows_of(source, "silicon", name + "_moe.csv.gz"):
        kind, kernel = row["dtype"], row["kernel"]
        if kind not in ("bfloat16", "fp8") or row["moe_tp"] != "1":
            continue
        # Two matrices, or kernels for a handful of tokens.
        if "nongated" in kernel or "min_latency" in kernel:
            continue
        # Triton's kernels reach two thirds of the other campaign's.
        if "triton" in kernel or int(row["tokens"]) not in EXPERT_TOKENS:
            continue
        groups = int(row["experts"]) // int(row["moe_ep"])
        rows, rest = divmod(int(row["tokens"]) * int(row["topk"]),
                            int(row["experts"]))
        if rest or rows < 32 or groups < 1:
            continue
        shape = (groups, rows, int(row["hidden"]), int(row["inter"]))
        times = out.setdefault(kind, {}).setdefault(shape, {})
        seconds = float(row["latency_ms"]) * 1e-3
        campaign = row["campaign"]
        times[campaign] = min(seconds, times.get(campaign, seconds))
    return out


def skips_window(row):
    """Backward passes in 8 bit go over the whole sequence, with a window or
    without: 0.54, 6.2 and 90 ms at 2048, 8192 and 32768 tokens on GB200."""
    return row["dtype"] != "fp8" or row["pass"] != "bwd"


def sdpa(source):
    """{gpu: {(type, pass, mask, head_dim): {(heads, seq): {row: seconds}}}}."""
    out = {}
    for number, row in enumerate(rows_of(source, "sdpa", "sdpa.csv")):
        if row["dtype"] not in ("bfloat16", "fp8"):
            continue
        if row["window"] and skips_window(row):
            continue
        if row["q_len"] != row["kv_len"] or row["deterministic"] == "1":
            continue
        if float(row["time_ms"]) < 0.05:
            continue  # three decimals only
        mask = "causal" if row["mask"] == "top_left" else "full"
        head_dim = (int(row["head_dim_qk"]) + int(row["head_dim_v"])) // 2
        key = (row["dtype"], row["pass"], mask, head_dim)
        shape = (int(row["batch"]) * int(row["heads"]), int(row["q_len"]))
        tables = out.setdefault(row["gpu"].lower(), {})
        tables.setdefault(key, {}).setdefault(shape, {})[number] = \
            float(row["time_ms"]) * 1e-3
    return out


def norms(source):
    """{gpu: {(norm, pass): {(rows, cols): {backend: seconds}}}}."""
    out = {}
    for row in rows_of(source, "norms", "norms.csv"):
        # Eager PyTorch is several kernels; frameworks of training fuse.
        if row["backend"] == "pytorch" or float(row["time_ms"]) < 0.005:
            continue
        tables = out.setdefault(row["gpu"].lower(), {})
        shapes = tables.setdefault((row["norm"], row["pass"]), {})
        shape = (int(row["rows"]), int(row["cols"]))
        shapes.setdefault(shape, {})[row["backend"]] = \
            float(row["time_ms"]) * 1e-3
    return out


def casts(source, name):
    """{scale: {(rows, cols): {campaign: seconds}}} of bf16 to fp8. static: the
    scale is known; tensor and token: what the products of trtllm and of vllm
    have inside, with the search for the largest value. A few sizes are enough:
    only the elements matter."""
    out, parts = {}, {}
    for row in rows_of(source, "silicon", name + "_quant.csv.gz"):
        shape = (int(row["m"]), int(row["k"]))
        if shape[0] not in CAST_ROWS or shape[1] not in CAST_COLUMNS:
            continue
        parts[row["campaign"], row["what"], shape] = \
            float(row["latency_ms"]) * 1e-3
    for (campaign, what, shape), seconds in parts.items():
        if what != "cast" or seconds <= 0:
            continue
        out.setdefault("static", {}).setdefault(shape, {})[campaign] = seconds
        largest = parts.get((campaign, "amax", shape))
        if largest is None:
            continue
        scale = "tensor" if campaign.startswith("trtllm") else "token"
        out.setdefault(scale, {}).setdefault(shape, {})[campaign] = \
            seconds + largest
    return out


def newest(campaigns):
    return max(campaigns, key=lambda name: [int(part) for part in
                                            name.split("-")[1].split(".")])


def nccl(source, name):
    """{op: {(gpus, bytes): {campaign: seconds}}}; the newest version gives the
    time, older ones (they differ by more than noise) nothing."""
    rows = [row for row in rows_of(source, "silicon", name + "_nccl.csv.gz")
            if row["dtype"] == "half"]
    campaign = newest({row["campaign"] for row in rows})
    out = {}
    for row in rows:
        if row["campaign"] != campaign or float(row["latency_ms"]) <= 0:
            continue
        shapes = out.setdefault(row["op"], {})
        shapes.setdefault((int(row["gpus"]), int(row["bytes"])), {})[
            campaign] = float(row["latency_ms"]) * 1e-3
    return out


# Whose attention and norms another device takes: the same generation.
# Bandwidths (data sheets, TB/s) carry norms over.
SIBLING = {"h100": "h200", "b200": "gb200", "b300": "gb300"}
BANDWIDTH = {"h100": 3.35, "h200": 4.8, "b200": 8.0, "gb200": 8.0,
             "b300": 8.0, "gb300": 8.0}


CAST_ROWS = (1024, 4096, 8192, 16384, 32768)
CAST_COLUMNS = (1024, 2048, 4096, 8192, 16384)


def distil(source, output):
    os.makedirs(output, exist_ok=True)
    of_sdpa, of_norms = sdpa(source), norms(source)
    of_windows = windows(source)
    for name, device in DEVICES:
        types = gemm(source, name, device)
        for kind in GEMM_TYPES:
            if kind not in types:
                continue
            campaigns = sorted({campaign for times in types[kind].values()
                                for campaign in times})
            notes = [CONFIGURATOR, "campaigns: " + " ".join(campaigns)]
            pack(os.path.join(output, "%s_gemm_%s.csv.gz" % (device, kind)),
                 notes,
                 [table_text(["gemm", kind, "TN"], ["m", "n", "k"],
                             combine(types[kind]))])
        pack_attention(source, output, name, device, of_sdpa, of_windows)
        pack_norms(output, device, of_norms)
        pack_experts(source, output, name, device)
        if device != "a100":
            pack(os.path.join(output, device + "_cast.csv.gz"), [CONFIGURATOR],
                 [table_text(["cast", "fp8", scale], ["rows", "cols"],
                             combine(values))
                  for scale, values in sorted(casts(source, name).items())])
        tables = [table_text(["nccl", op, "bfloat16"], ["gpus", "bytes"],
                             combine(values))
                  for op, values in sorted(nccl(source, name).items())]
        pack(os.path.join(output, device + "_nccl.csv.gz"), [CONFIGURATOR],
             tables)


def pack_attention(source, output, name, device, of_sdpa, of_windows):
    notes, tables = [CONFIGURATOR + ": forward, causal"], []
    for head_dim, shapes in sorted(
            attention_forward(source, name, device).items()):
        tables.append(table_text(
            ["attention", "bfloat16", "fwd", "causal", str(head_dim)],
            ["heads", "seq"], combine(thin(shapes))))
    other = SIBLING.get(device, device)
    if other in of_sdpa:
        notes.append("%s, on %s: the rest" % (FRONTEND, other.upper()))
        for key, shapes in sorted(of_sdpa[other].items()):
            # Forward and causal the other source measured on the device.
            is_other = key[:3] == ("bfloat16", "fwd", "causal")
            if is_other and device != other:
                continue
            words = ["attention"] + [str(word) for word in key]
            values = combine(shapes)
            if is_other:
                # A file may have a table once: the other source's wins.
                if any(text.startswith("table " + " ".join(words) + "\n")
                       for text in tables):
                    continue
            tables.append(table_text(words, ["heads", "seq"], values))
    # Without the other source's forward, latent attention has its own.
    words = ["attention", "bfloat16", "fwd", "causal", "160"]
    if not any(text.startswith("table " + " ".join(words) + "\n")
               for text in tables):
        tables.append(table_text(words, ["heads", "seq"],
                                 combine(thin(latent(source, name)))))
    for (way, dim), shapes in sorted(of_windows.get(other, {}).items()):
        tables.append(table_text(["window", "bfloat16", way, str(dim)],
                                 ["heads", "seq", "window"],
                                 combine(shapes)))
    pack(os.path.join(output, device + "_attention.csv.gz"), notes, tables)


def pack_experts(source, output, name, device):
    if device == "a100":
        return
    pack(os.path.join(output, device + "_experts.csv.gz"), [CONFIGURATOR],
         [table_text(["experts", kind], ["groups", "rows", "hidden", "inner"],
                     combine(shapes))
          for kind, shapes in sorted(experts(source, name).items())])


def pack_norms(output, device, of_norms):
    other = SIBLING.get(device, device)
    if other not in of_norms:
        return
    scale = BANDWIDTH[other] / BANDWIDTH[device]
    tables = []
    for (norm, way), shapes in sorted(of_norms[other].items()):
        scaled = {shape: {backend: time * scale
                          for backend, time in times.items()}
                  for shape, times in shapes.items()}
        tables.append(table_text(["norm", norm, way], ["rows", "cols"],
                                 combine(scaled)))
    pack(os.path.join(output, device + "_norm.csv.gz"),
         ["%s, on %s, by the bandwidth" % (FRONTEND, other.upper())], tables)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source", required=True, metavar="DIR")
    parser.add_argument("--output", metavar="DIR",
                        default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--only", metavar="DEVICE", action="append",
                        help="these devices alone")
    args = parser.parse_args()
    if args.only:
        DEVICES[:] = [row for row in DEVICES if row[1] in args.only]
    if not os.path.isdir(os.path.join(args.source, "silicon")):
        sys.exit("distil.py: %s: has no folder silicon" % args.source)
    distil(args.source, args.output)


if __name__ == "__main__":
    main()
