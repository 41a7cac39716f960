// Draws rows of a run into a rectangle. Few operations become boxes with
// numbers; many become pixels, each in the mean colour of what it covers.
PW.MOST_BOXES = 9000;

// Later chunks are lighter, as in sim/report/palette.cc.
PW.Palette = class {
  constructor(styles, vpp) {
    this.base = styles.map((style) => PW.rgb(style.colour));
    this.vpp = vpp;
    this.cache = new Map();
  }

  // [css colour, css colour of text on it]
  of(style, chunk) {
    const key = style * 4096 + chunk;
    let entry = this.cache.get(key);
    if (entry !== undefined) return entry;
    const white = this.vpp <= 1 ?
        0 :
        0.58 * Math.min(chunk, this.vpp - 1) / (this.vpp - 1);
    const rgb = this.base[style].map(
        (value) => Math.round(value + white * (255 - value)));
    const linear = rgb.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 :
                                ((share + 0.055) / 1.055) ** 2.4;
    });
    const luminance =
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    entry = [`rgb(${rgb})`, luminance + 0.05 >= 0.2291 ? '#000' : '#fff'];
    this.cache.set(key, entry);
    return entry;
  }
};

// The operations of a track that touch [start, end]: [first, behind the last].
// Such operations may overlap on streams other than compute, so the first one
// is looked for a little earlier.
PW.visible = (run, track, start, end) => {
  const starts = run.op.start;
  const behind = PW.search(track.first, track.last, (op) => starts[op] < end);
  let first = PW.search(track.first, behind, (op) => starts[op] < start);
  for (let back = 0; back < 16 && first > track.first; ++back) {
    --first;
  }
  while (first < behind && run.end_(first) <= start) ++first;
  return [first, behind];
};

// One line of `width` pixels: 0xAABBGGRR each, 0 where nothing runs. With
// `mark` only what is marked has its colour.
PW.pixelLine = (run, palette, track, start, end, width, mark, out) => {
  const scale = (end - start) / width;
  const {start: starts, style: styleOf} = run.op;
  if (mark === null && track.count > 4 * width) {
    return PW.sumLine(run, palette, track, start, scale, width, out);
  }
  const [first, behind] = PW.visible(run, track, start, end);
  const share = new Float32Array(width * 4);  // red, green, blue, covered
  for (let op = first; op < behind; ++op) {
    const left = Math.max(0, (starts[op] - start) / scale);
    const right = Math.min(width, (run.end_(op) - start) / scale);
    const [red, green, blue] = mark !== null && !mark[op] ?
        [150, 150, 150] :
        palette.base[styleOf[op]];
    const weight =
        (mark !== null && !mark[op] ? 0.25 : 1) * (run.half[op] ? 0.5 : 1);
    for (let pixel = Math.floor(left); pixel < right; ++pixel) {
      const part =
          weight * (Math.min(right, pixel + 1) - Math.max(left, pixel));
      const at = pixel * 4;
      share[at] += part * red;
      share[at + 1] += part * green;
      share[at + 2] += part * blue;
      share[at + 3] += part;
    }
  }
  for (let pixel = 0; pixel < width; ++pixel) {
    const at = pixel * 4;
    const covered = share[at + 3];
    out[pixel] = PW.mixed(
        share[at], share[at + 1], share[at + 2], covered, palette.idle);
  }
};

PW.mixed = (red, green, blue, covered, idle) => {
  if (covered <= 0.004) return 0;
  const scale = covered > 1 ? 1 / covered : 1;
  const rest = covered > 1 ? 0 : 1 - covered;
  return (255 << 24 | (blue * scale + rest * idle[2] & 255) << 16 |
          (green * scale + rest * idle[1] & 255) << 8 |
          (red * scale + rest * idle[0] & 255)) >>>
      0;
};

// The same from sums: work per pixel, not per operation.
PW.sumLine = (run, palette, track, start, scale, width, out) => {
  const sums = run.sumsOf(track);
  const {values, width: styles} = sums;
  const starts = run.op.start;
  const before = new Float64Array(styles);
  const after = new Float64Array(styles);
  let op = track.first;  // the last one that has begun, or the first
  const take = (time, into) => {
    // Operations begin in order: look ahead in growing steps, then halve.
    let step = 1;
    let high = op;
    while (high + step < track.last && starts[high + step] <= time) {
      high += step;
      step *= 2;
    }
    op = PW.search(
             high, Math.min(track.last, high + step + 1),
             (each) => starts[each] <= time) -
        1;
    if (op < track.first) op = track.first;
    const from = (op - track.first) * styles;
    for (let each = 0; each < styles; ++each) into[each] = values[from + each];
    const part = Math.min(time - starts[op], run.op.seconds[op]);
    if (part > 0) into[sums.slot[run.op.style[op]]] += part;
  };
  take(start, before);
  for (let pixel = 0; pixel < width; ++pixel) {
    take(start + (pixel + 1) * scale, after);
    let red = 0;
    let green = 0;
    let blue = 0;
    let covered = 0;
    for (let each = 0; each < styles; ++each) {
      const part = (after[each] - before[each]) / scale;
      const base = palette.base[sums.styles[each]];
      red += part * base[0];
      green += part * base[1];
      blue += part * base[2];
      covered += part;
      before[each] = after[each];
    }
    out[pixel] = PW.mixed(red, green, blue, covered, palette.idle);
  }
};

// Boxes of one row with numbers where they fit.
PW.paintBoxes = (pen, run, palette, track, axis, box, font, mark) => {
  const {left, top, width, height} = box;
  const scale = width / (axis.end - axis.start);
  const [first, behind] = PW.visible(run, track, axis.start, axis.end);
  const labels = track.stream === 0 && height >= 9;
  for (let op = first; op < behind; ++op) {
    const x = Math.max(left, left + (run.op.start[op] - axis.start) * scale);
    const right =
        Math.min(left + width, left + (run.end_(op) - axis.start) * scale);
    const wide = right - x;
    const gap = wide >= 3 ? 0.5 : 0;
    const half = run.half[op];
    const y = half === 2 ? top + height / 2 : top;
    const high = half ? height / 2 : height;
    const [colour, ink] =
        palette.of(run.op.style[op], run.isPass(op) ? run.chunk(op) : 0);
    pen.globalAlpha = mark !== null && !mark[op] ? 0.15 : 1;
    pen.fillStyle = colour;
    pen.fillRect(x + gap, y, Math.max(wide - 2 * gap, 0.3), high);
    if (run.direction(op) && run.isPass(op)) {
      pen.fillStyle = palette.hatch;
      pen.fillRect(x + gap, y, Math.max(wide - 2 * gap, 0.3), high);
    }
    if (!labels || wide < 9) continue;
    const label = run.label(op);
    const size = Math.min(font, high * 0.72);
    if (label === '' || size < 8 || wide < label.length * size * 0.62 + 3)
      continue;
    if (run.direction(op)) {
      pen.fillStyle = colour;
      const patch = label.length * size * 0.62 + 3;
      pen.fillRect((x + right - patch) / 2, y + (high - size) / 2, patch, size);
    }
    pen.fillStyle = ink;
    pen.font = `${size}px system-ui, sans-serif`;
    pen.fillText(label, (x + right) / 2, y + high / 2 + 0.5);
  }
  pen.globalAlpha = 1;
};

PW.hatch = (pen) => {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 6;
  const each = tile.getContext('2d');
  each.strokeStyle = 'rgba(0,0,0,.55)';
  each.lineWidth = 1.3;
  each.beginPath();
  for (const by of [-6, 0, 6]) {
    each.moveTo(by, 6);
    each.lineTo(by + 6, 0);
  }
  each.stroke();
  return pen.createPattern(tile, 'repeat');
};

// The axis below a plot.
PW.paintAxis = (pen, axis, left, width, y, height, colours) => {
  const {unit, ticks} = axis.ticks(width);
  pen.strokeStyle = colours.ink;
  pen.fillStyle = colours.ink;
  pen.lineWidth = 1;
  pen.font = '12px system-ui, sans-serif';
  pen.textBaseline = 'top';
  pen.beginPath();
  pen.moveTo(left, y + 0.5);
  pen.lineTo(left + width, y + 0.5);
  for (const [time] of ticks) {
    const x = left + (time - axis.start) / (axis.end - axis.start) * width;
    pen.moveTo(x, y);
    pen.lineTo(x, y + 5);
  }
  pen.stroke();
  for (const [time, label] of ticks) {
    const x = left + (time - axis.start) / (axis.end - axis.start) * width;
    const half = pen.measureText(label).width / 2;
    pen.textAlign = 'center';
    pen.fillText(
        label, Math.min(Math.max(x, left + half - 10), left + width - half),
        y + 7);
  }
  if (height < 36) return;
  pen.textAlign = 'center';
  pen.fillText(`time (${unit})`, left + width / 2, y + 22);
};
