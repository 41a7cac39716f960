// A timeline of all ranks on a canvas.
PW.LEFT = 66;  // pixels, for the names of ranks
PW.RIGHT = 12;

PW.Timeline = class {
  // `options`: {rowPx, mostPx, axisPx, name}
  constructor(root, run, axis, options = {}) {
    this.run = run;
    this.axis = axis;
    this.options =
        {rowPx: 26, mostPx: 620, axisPx: 40, name: run.name, ...options};
    this.streams = false;
    this.path = null;  // [{rank, start, end}], by time
    this.showPath = false;
    this.found = null;
    this.foundAt = -1;
    this.selected = -1;
    this.palette = new PW.Palette(run.page.styles, run.vpp);
    this.canvas = PW.element('canvas', {
      tabindex: 0,
      role: 'application',
      'aria-label': `timeline of ${this.options.name}: ${run.ranks} ranks, ${
          run.count} operations; keys: arrows, + - 0, n, Escape`,
    });
    this.tip = PW.element('div', {class: 'tip', hidden: true});
    this.status =
        PW.element('p', {class: 'quiet status', 'aria-live': 'polite'});
    root.append(
        PW.element('div', {class: 'plot'}, this.canvas, this.tip), this.status);
    this.pen = this.canvas.getContext('2d', {alpha: false});
    PW.steer(this.canvas, axis, PW.LEFT, () => this.plotWidth, this);
    axis.listeners.push(() => this.draw());
    new ResizeObserver(() => this.resize()).observe(this.canvas.parentElement);
    this.resize();
  }

  shows(track) {
    return track.stream === 0 || this.streams;
  }

  // Rows from the top: {track, rank, top, height}.
  layout() {
    const ranks = this.run.ranks;
    const lanes = this.streams ?
        [...new Set(this.run.tracks.map((track) => track.stream))]
            .filter((stream) => stream !== 0)
            .sort((a, b) => a - b) :
        [];
    const lane = ranks * lanes.length * 8 <= this.options.mostPx ? 8 : 4;
    const gap = ranks > 48 ? 1 : 4;
    const height = Math.min(
        this.options.rowPx,
        Math.max(
            4,
            Math.floor(this.options.mostPx / ranks) - gap -
                lane * lanes.length));
    const byPlace = new Map(this.run.tracks.map(
        (track) => [track.rank * 64 + track.stream, track]));
    this.rows = [];
    let top = 4;
    this.tops = [];
    for (let rank = 0; rank < ranks; ++rank) {
      this.tops.push(top);
      this.rows.push(
          {rank, stream: 0, track: byPlace.get(rank * 64), top, height});
      let under = top + height + 1;
      for (const stream of lanes) {
        this.rows.push({
          rank,
          stream,
          track: byPlace.get(rank * 64 + stream),
          top: under,
          height: lane - 1
        });
        under += lane;
      }
      top = under + gap;
    }
    this.rowHeight = height;
    this.pitch = (top - 4) / Math.max(1, ranks);
    this.bottom = top;
    this.height = top + this.options.axisPx;
  }

  resize() {
    this.layout();
    const width = Math.max(200, this.canvas.parentElement.clientWidth);
    const ratio = window.devicePixelRatio || 1;
    this.width = width;
    this.plotWidth = width - PW.LEFT - PW.RIGHT;
    this.ratio = ratio;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.height = `${this.height}px`;
    this.draw();
  }

  colours() {
    const colours = {};
    for (const name
             of ['card', 'ink', 'quiet', 'idle', 'lane', 'accent', 'bad']) {
      colours[name] = PW.cssColour(`--${name}`);
    }
    this.palette.idle = PW.rgb(colours.idle);
    this.palette.hatch ??= PW.hatch(this.pen);
    return colours;
  }

  draw() {
    const began = performance.now();
    const {pen, axis, run} = this;
    const colours = this.colours();
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.fillStyle = colours.card;
    pen.fillRect(0, 0, this.width, this.height);
    let boxes = 0;
    for (const row of this.rows) {
      if (row.track === undefined) continue;
      const [first, behind] = PW.visible(run, row.track, axis.start, axis.end);
      boxes += behind - first;
    }
    this.asBoxes = boxes <= PW.MOST_BOXES;
    const scale = this.plotWidth / (axis.end - axis.start);
    const idleLeft = PW.LEFT + Math.max(0, (run.start - axis.start) * scale);
    const idleRight =
        PW.LEFT + Math.min(this.plotWidth, (run.end - axis.start) * scale);
    for (const row of this.rows) {
      pen.fillStyle = row.stream === 0 ? colours.idle : colours.lane;
      if (idleRight > idleLeft)
        pen.fillRect(idleLeft, row.top, idleRight - idleLeft, row.height);
    }
    const mark = this.found?.mark ?? null;
    if (this.asBoxes) {
      pen.textAlign = 'center';
      pen.textBaseline = 'middle';
      for (const row of this.rows) {
        if (row.track === undefined) continue;
        PW.paintBoxes(
            pen, run, this.palette, row.track, axis, {
              left: PW.LEFT,
              top: row.top,
              width: this.plotWidth,
              height: row.height
            },
            12, mark);
      }
    } else {
      this.drawPixels(mark);
    }
    this.drawNames(colours);
    if (this.showPath) this.drawPath(colours);
    if (this.selected >= 0) this.outline(this.selected, colours.ink);
    PW.paintAxis(
        pen, axis, PW.LEFT, this.plotWidth, this.bottom, this.options.axisPx,
        colours);
    this.drawMs = performance.now() - began;
  }

  drawPixels(mark) {
    const width = Math.round(this.plotWidth * this.ratio);
    const line = new Uint32Array(width);
    for (const row of this.rows) {
      if (row.track === undefined) continue;
      PW.pixelLine(
          this.run, this.palette, row.track, this.axis.start, this.axis.end,
          width, mark, line);
      const top = Math.round(row.top * this.ratio);
      const height =
          Math.max(1, Math.round((row.top + row.height) * this.ratio) - top);
      const image = this.pen.createImageData(width, height);
      const pixels = new Uint32Array(image.data.buffer);
      const [red, green, blue] = this.palette.idle;
      const idle = (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
      const paper = PW.rgb(PW.cssColour('--card'));
      const none =
          (255 << 24 | paper[2] << 16 | paper[1] << 8 | paper[0]) >>> 0;
      const from = (this.run.start - this.axis.start) /
          (this.axis.end - this.axis.start) * width;
      const to = (this.run.end - this.axis.start) /
          (this.axis.end - this.axis.start) * width;
      for (let pixel = 0; pixel < width; ++pixel) {
        if (line[pixel] === 0)
          line[pixel] = pixel >= from && pixel <= to ? idle : none;
      }
      for (let at = 0; at < height; ++at) pixels.set(line, at * width);
      this.pen.putImageData(image, Math.round(PW.LEFT * this.ratio), top);
    }
  }

  drawNames(colours) {
    const {pen} = this;
    let every = 1;
    while (every * this.pitch < 13) every *= 2;
    pen.fillStyle = colours.ink;
    pen.textAlign = 'right';
    pen.textBaseline = 'middle';
    pen.font = '12px system-ui, sans-serif';
    for (let rank = 0; rank < this.run.ranks; rank += every) {
      pen.fillText(
          `rank ${rank}`, PW.LEFT - 8,
          this.tops[rank] + Math.max(this.rowHeight, 6) / 2);
    }
  }

  place(piece) {
    const scale = this.plotWidth / (this.axis.end - this.axis.start);
    return [
      PW.LEFT + (piece.start - this.axis.start) * scale,
      PW.LEFT + (piece.end - this.axis.start) * scale
    ];
  }

  drawPath(colours) {
    const {pen} = this;
    if (this.path === null) return;
    pen.save();
    pen.beginPath();
    pen.rect(PW.LEFT, 0, this.plotWidth, this.bottom);
    pen.clip();
    const trace = new Path2D();
    let last = null;
    for (const piece of this.path) {
      const [left, right] = this.place(piece);
      const y = this.tops[piece.rank] +
          Math.max(this.rowHeight - 2.5, this.rowHeight / 2);
      if (last === null)
        trace.moveTo(left, y);
      else if (right < PW.LEFT - 50 && last[0] < PW.LEFT - 50) {
        trace.moveTo(right, y);
        last = [right, y];
        continue;
      } else if (left > this.width + 50)
        break;
      else if (Math.abs(left - last[0]) > 0.3 || y !== last[1])
        trace.lineTo(left, y);
      if (right - left > 0.2) trace.lineTo(right, y);
      last = [right, y];
    }
    pen.lineJoin = 'round';
    pen.strokeStyle = colours.card;
    pen.lineWidth = 4.4;
    pen.stroke(trace);
    pen.strokeStyle = colours.bad;
    pen.lineWidth = 2.2;
    pen.stroke(trace);
    pen.restore();
  }

  outline(op, colour) {
    const track = this.run.trackOf(op);
    const row = this.rows.find((each) => each.track === track);
    if (row === undefined) return;
    const [left, right] =
        this.place({start: this.run.op.start[op], end: this.run.end_(op)});
    if (right < PW.LEFT || left > PW.LEFT + this.plotWidth) return;
    const from = Math.max(PW.LEFT, left);
    const to = Math.min(PW.LEFT + this.plotWidth, Math.max(right, left + 2));
    this.pen.strokeStyle = colour;
    this.pen.lineWidth = 2;
    this.pen.strokeRect(from, row.top - 1, to - from, row.height + 2);
  }

  // The operation at a place of the canvas; -1: none.
  opAt(x, y) {
    if (x < PW.LEFT || x > PW.LEFT + this.plotWidth) return -1;
    const time = this.axis.start +
        (x - PW.LEFT) / this.plotWidth * (this.axis.end - this.axis.start);
    let row = this.rows.find(
        (each) => y >= each.top - 1 && y < each.top + each.height + 1);
    if (row?.track === undefined) return -1;
    return this.run.at(row.track, time, y >= row.top + row.height / 2);
  }

  hover(x, y) {
    const op = this.opAt(x, y);
    this.hovered = op;
    this.tip.hidden = op < 0;
    if (op < 0) return;
    this.showTip(op, x, y);
  }

  showTip(op, x, y) {
    this.tip.replaceChildren(
        ...this.run.describe(op).map((line) => PW.element('div', {}, line)));
    this.tip.hidden = false;
    const wide = this.tip.offsetWidth;
    const left =
        x + 14 + wide > this.width ? Math.max(0, x - 14 - wide) : x + 14;
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${y + 16}px`;
  }

  leave(all = false) {
    this.tip.hidden = true;
    if (!all) return;
    this.selected = -1;
    this.status.textContent = '';
    this.draw();
  }

  pick(x, y) {
    this.select(this.opAt(x, y));
  }

  select(op, center = false) {
    this.selected = op;
    this.status.textContent = op < 0 ? '' : this.run.describe(op).join(' · ');
    if (op >= 0) {
      const [start, end] = [this.run.op.start[op], this.run.end_(op)];
      if (center || end < this.axis.start || start > this.axis.end) {
        const length = Math.min(
            this.axis.end - this.axis.start,
            Math.max(
                (end - start) * 60, (this.axis.high - this.axis.low) * 1e-7));
        this.axis.set((start + end - length) / 2, (start + end + length) / 2);
      }
    }
    this.draw();
  }

  // The operation before or behind the selected one on its row.
  step(by) {
    if (this.selected < 0) return undefined;
    const track = this.run.trackOf(this.selected);
    this.select(
        Math.min(track.last - 1, Math.max(track.first, this.selected + by)));
    return true;
  }

  row(by) {
    const rows = this.rows.filter((row) => row.track !== undefined);
    if (rows.length === 0) return;
    if (this.selected < 0) {
      this.select(PW.visible(
          this.run, rows[0].track, this.axis.start, this.axis.end)[0]);
      return;
    }
    const track = this.run.trackOf(this.selected);
    const index = rows.findIndex((row) => row.track === track);
    const other =
        rows[Math.min(rows.length - 1, Math.max(0, index + by))].track;
    const starts = this.run.op.start;
    const behind = PW.search(
        other.first, other.last, (op) => starts[op] <= starts[this.selected]);
    this.select(Math.max(other.first, behind - 1));
  }

  // Returns how many it finds; null for an empty text.
  search(text) {
    this.found = this.run.find(text, (track) => this.shows(track));
    this.foundAt = -1;
    this.draw();
    return this.found === null ? null : this.found.found.length;
  }

  next(by) {
    const found = this.found?.found ?? [];
    if (found.length === 0) return;
    this.foundAt = (this.foundAt + by + found.length) % found.length;
    if (this.foundAt < 0) this.foundAt = found.length - 1;
    this.select(found[this.foundAt], true);
  }

  setStreams(on) {
    this.streams = on;
    this.resize();
  }

  setPath(on) {
    this.showPath = on;
    this.draw();
  }
};
