#!/usr/bin/env python3
"""docs/dev/scale.svg: CPU time of W1 over devices, from results of BM_W1.

pipewright_bench --benchmark_filter=BM_W1 --benchmark_out=w1.json
plot.py w1.json > docs/dev/scale.svg
"""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 400, 64, 40, 150, 48
SERIES = [("", "lock-step", "#1f77b4"), (", jitter", "jitter", "#d62728")]


def points(results, suffix):
    """(devices, seconds) of the labels that are a number and `suffix`."""
    found = []
    for row in results["benchmarks"]:
        label = row.get("label", "").replace(" devices", "")
        number = label[: len(label) - len(suffix)] if suffix else label
        if label.endswith(suffix) and number.isdigit():
            found.append((int(number), 1e-3 * row["cpu_ms"]))
    return sorted(found)


def main():
    with open(sys.argv[1]) as file:
        results = json.load(file)
    series = [(name, colour, points(results, suffix))
              for suffix, name, colour in SERIES]
    every = [point for _, _, line in series for point in line]
    if not every:
        sys.exit("no results of BM_W1 in " + sys.argv[1])
    low_x = min(x for x, _ in every)
    high_x = max(x for x, _ in every)
    low_y = math.floor(math.log10(min(y for _, y in every)))
    high_y = math.ceil(math.log10(max(y for _, y in every)))

    def place_x(devices):
        part = math.log(devices / low_x) / math.log(high_x / low_x)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def place_y(seconds):
        part = (math.log10(seconds) - low_y) / (high_y - low_y)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} '
        f'{HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-size="15">CPU time of one step of W1, '
        "no device folded into another</text>",
    ]

    def line(x1, y1, x2, y2, style):
        out.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" '
                   f'y2="{y2:.1f}" {style}/>')

    def text(x, y, words, anchor, fill="#222"):
        out.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" '
                   f'text-anchor="{anchor}">{words}</text>')

    right = WIDTH - RIGHT
    for power in range(low_y, high_y + 1):
        height = place_y(10.0 ** power)
        line(LEFT, height, right, height, 'stroke="#ddd"')
        text(LEFT - 8, height + 4, f"{10.0 ** power:g} s", "end")
    for devices in sorted({x for x, _ in every}):
        across = place_x(devices)
        line(across, TOP, across, HEIGHT - BOTTOM, 'stroke="#eee"')
        text(across, HEIGHT - BOTTOM + 18, devices, "middle")
    text((LEFT + right) / 2, HEIGHT - 8, "devices", "middle")
    for name, colour, found in series:
        if not found:
            continue
        joined = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}"
                          for x, y in found)
        out.append(f'<polyline points="{joined}" fill="none" '
                   f'stroke="{colour}" stroke-width="2"/>')
        for x, y in found:
            out.append(f'<circle cx="{place_x(x):.1f}" cy="{place_y(y):.1f}" '
                       f'r="3" fill="{colour}"/>')
        text(right + 8, place_y(found[-1][1]) + 4, name, "start", colour)
        # In proportion to the devices, from the first point on.
        first_x, first_y = found[0]
        line(place_x(first_x), place_y(first_y), place_x(found[-1][0]),
             place_y(first_y * found[-1][0] / first_x),
             f'stroke="{colour}" stroke-dasharray="3 4"')
    text(right + 8, HEIGHT - BOTTOM, "dotted: in proportion", "start", "#666")
    out.append("</svg>")
    print("\n".join(out))


if __name__ == "__main__":
    main()
