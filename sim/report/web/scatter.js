// One number of many runs against another, with the Pareto front: the runs
// that no other is better than in both.
PW.SERIES = [
  '#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#8c8c8c'
];

PW.moreIsBetter = (name) =>
    /tokens_per_s|tflops|mfu|microbatches_per_s/.test(name);

PW.unitOfPath = (name, largest) => {
  if (/_s(\.|$)/.test(name) && !/per_s/.test(name)) return PW.unitFor(largest);
  if (name.includes('bytes')) {
    for (const [unit, size] of [
             ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 1024]]) {
      if (largest >= size) return [unit, size];
    }
    return ['B', 1];
  }
  if (name.includes('bubble_') || name.endsWith('mfu')) return ['%', 0.01];
  return ['', 1];
};

// As ParetoFront in sim/plot/figure_parts.cc. `rows`: those that count.
PW.paretoFront = (rows, x, y, moreX, moreY) => {
  const signX = moreX ? -1 : 1;
  const signY = moreY ? -1 : 1;
  const order = [...rows].sort(
      (one, other) => x[one] !== x[other] ?
          signX * (x[one] - x[other]) :
          signY * (y[one] - y[other]) || one - other);
  const front = [];
  let best = Infinity;
  for (const row of order) {
    if (signY * y[row] >= best) continue;
    best = signY * y[row];
    front.push(row);
  }
  return moreX ? front.reverse() : front;
};

PW.Scatter = class {
  // `data`: {columns: [{name, values}], count, series, names}.
  constructor(root, data, x, y, options = {}) {
    this.data = data;
    this.options = {front: true, ...options};
    this.rows = null;
    this.chosen = -1;
    this.numeric = data.columns.map((column, index) => index)
                       .filter((index) => !data.columns[index].text);
    this.x = this.column(x);
    this.y = this.column(y);
    const select = (axis) => {
      const id = `${options.id ?? 'scatter'}-${axis}`;
      const node = PW.element('select', {
        id,
        onchange: () => {
          this[axis] = Number(node.value);
          this.draw();
        }
      });
      for (const index of this.numeric) {
        node.append(PW.element(
            'option', {value: index, selected: index === this[axis]},
            data.columns[index].name));
      }
      return [
        PW.element(
            'label',
            {for: id
            },
            ` ${axis} `),
        node
      ];
    };
    this.canvas = PW.element('canvas', {tabindex: 0, role: 'img'});
    this.tip = PW.element('div', {class: 'tip', hidden: true});
    root.append(
        PW.element('p', {class: 'tools'}, ...select('y'), ...select('x')),
        PW.element('div', {class: 'plot'}, this.canvas, this.tip));
    this.legend = PW.element('p', {class: 'legend-line'});
    root.append(this.legend);
    this.pen = this.canvas.getContext('2d', {alpha: false});
    this.canvas.addEventListener('pointermove', (event) => this.hover(event));
    this.canvas.addEventListener('pointerleave', () => {
      this.tip.hidden = true;
    });
    this.canvas.addEventListener(
        'click', (event) => this.options.picked?.(this.nearest(event)));
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
    this.draw();
  }

  column(name) {
    return Math.max(
        0, this.data.columns.findIndex((column) => column.name === name));
  }

  // `rows`: a set of those that are drawn, or null for all.
  show(rows) {
    this.rows = rows;
    this.draw();
  }

  choose(row) {
    this.chosen = row;
    this.draw();
  }

  // Arrow keys go along the front.
  key(event) {
    const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (by === undefined || this.front.length === 0) return;
    event.preventDefault();
    const at = this.front.indexOf(this.chosen);
    this.chosen =
        this.front[Math.min(this.front.length - 1, Math.max(0, at + by))];
    this.options.picked?.(this.chosen);
    this.draw();
    const [x, y] = this.at(this.chosen);
    this.showTip(this.chosen, x, y);
  }

  scaleOf(values, rows, name, ticks) {
    let low = Infinity;
    let high = -Infinity;
    for (const row of rows) {
      low = Math.min(low, values[row]);
      high = Math.max(high, values[row]);
    }
    const [unit, size] =
        PW.unitOfPath(name, Math.max(Math.abs(low), Math.abs(high)));
    low /= size;
    high /= size;
    if (!(high - low > 1e-12 * Math.abs(high))) {
      const half = high === 0 ? 1 : 0.05 * Math.abs(high);
      low -= half;
      high += half;
    }
    if (low > 0 && low < 0.3 * high) low = 0;
    const step = PW.tickStep((high - low) / ticks);
    return {
      unit,
      size,
      step,
      low: Math.floor(low / step + 1e-9) * step,
      high: Math.ceil(high / step - 1e-9) * step
    };
  }

  at(row) {
    const {columns} = this.data;
    return [
      this.toX(columns[this.x].values[row]),
      this.toY(columns[this.y].values[row])
    ];
  }

  draw() {
    const {pen, data} = this;
    const ratio = window.devicePixelRatio || 1;
    const width = Math.max(220, this.canvas.parentElement.clientWidth);
    const height = Math.round(Math.min(420, Math.max(260, width * 0.5)));
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const colours = {
      ink: PW.cssColour('--ink'),
      rule: PW.cssColour('--rule'),
      card: PW.cssColour('--card'),
      quiet: PW.cssColour('--quiet')
    };
    pen.fillStyle = colours.card;
    pen.fillRect(0, 0, width, height);
    const [xs, ys] = [data.columns[this.x].values, data.columns[this.y].values];
    const usable = [];
    for (let row = 0; row < data.count; ++row) {
      if (this.rows !== null && !this.rows.has(row)) continue;
      if (Number.isFinite(xs[row]) && Number.isFinite(ys[row]) &&
          xs[row] !== null && ys[row] !== null)
        usable.push(row);
    }
    this.usable = usable;
    const names = [data.columns[this.x].name, data.columns[this.y].name];
    this.canvas.setAttribute(
        'aria-label', `${names[1]} against ${names[0]}, ${usable.length} runs`);
    this.front = [];
    pen.font = '12px system-ui, sans-serif';
    pen.fillStyle = colours.ink;
    if (usable.length === 0) {
      pen.textAlign = 'center';
      pen.fillText('no run has both numbers', width / 2, height / 2);
      return;
    }
    const [left, right, top, bottom] = [72, width - 16, 12, height - 46];
    const sx =
        this.scaleOf(xs, usable, names[0], Math.max(2, (right - left) / 90));
    const sy =
        this.scaleOf(ys, usable, names[1], Math.max(2, (bottom - top) / 50));
    this.toX = (value) =>
        left + (right - left) * (value / sx.size - sx.low) / (sx.high - sx.low);
    this.toY = (value) => bottom -
        (bottom - top) * (value / sy.size - sy.low) / (sy.high - sy.low);
    pen.strokeStyle = colours.rule;
    pen.lineWidth = 1;
    pen.textBaseline = 'top';
    pen.textAlign = 'center';
    for (let tick = sx.low; tick <= sx.high + sx.step / 2; tick += sx.step) {
      const x = this.toX(tick * sx.size);
      this.line(x, top, x, bottom);
      pen.fillText(
          PW.number(Math.abs(tick) < 1e-9 * sx.step ? 0 : tick), x, bottom + 6);
    }
    pen.textBaseline = 'middle';
    pen.textAlign = 'right';
    for (let tick = sy.low; tick <= sy.high + sy.step / 2; tick += sy.step) {
      const y = this.toY(tick * sy.size);
      this.line(left, y, right, y);
      pen.fillText(
          PW.number(Math.abs(tick) < 1e-9 * sy.step ? 0 : tick), left - 7, y);
    }
    const title = (name, scale) =>
        scale.unit === '' ? name : `${name} (${scale.unit})`;
    pen.textAlign = 'center';
    pen.fillText(title(names[0], sx), (left + right) / 2, height - 14);
    pen.save();
    pen.translate(14, (top + bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(title(names[1], sy), 0, 0);
    pen.restore();
    if (this.options.front) this.drawFront(usable, xs, ys, names, colours);
    const small = usable.length > 2000;
    for (const row of usable) {
      this.mark(
          this.toX(xs[row]), this.toY(ys[row]), data.series?.codes[row] ?? 0,
          small ? 2.2 : 4);
    }
    if (this.chosen >= 0 && usable.includes(this.chosen)) {
      const [x, y] = this.at(this.chosen);
      pen.strokeStyle = colours.ink;
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(x, y, 9, 0, 2 * Math.PI);
      pen.stroke();
    }
    this.drawLegend();
  }

  line(x, y, toX, toY) {
    this.pen.beginPath();
    this.pen.moveTo(x, y);
    this.pen.lineTo(toX, toY);
    this.pen.stroke();
  }

  drawFront(usable, xs, ys, names, colours) {
    const moreX = PW.moreIsBetter(names[0]);
    this.front =
        PW.paretoFront(usable, xs, ys, moreX, PW.moreIsBetter(names[1]));
    const {pen} = this;
    pen.strokeStyle = colours.quiet;
    pen.lineWidth = 1.5;
    pen.setLineDash([5, 3]);
    pen.beginPath();
    this.frontLine(moreX).forEach((place, index) => {
      if (index === 0)
        pen.moveTo(...place);
      else
        pen.lineTo(...place);
    });
    pen.stroke();
    pen.setLineDash([]);
  }

  // Steps, as FigureSvg draws them: between two points of the front nothing
  // better is known than what one of them has.
  frontLine(moreX) {
    const line = [];
    for (const row of this.front) {
      const [x, y] = this.at(row);
      const last = line.at(-1);
      if (last !== undefined) line.push(moreX ? [last[0], y] : [x, last[1]]);
      line.push([x, y]);
    }
    return line;
  }

  // A mark of its own for each series, so that grey print tells them apart.
  mark(x, y, series, size) {
    const {pen} = this;
    pen.fillStyle = PW.SERIES[series % PW.SERIES.length];
    pen.beginPath();
    switch (series % 4) {
      case 0:
        pen.arc(x, y, size, 0, 2 * Math.PI);
        break;
      case 1:
        pen.rect(x - size, y - size, 2 * size, 2 * size);
        break;
      case 2:
        pen.moveTo(x, y - 1.3 * size);
        pen.lineTo(x + 1.2 * size, y + size);
        pen.lineTo(x - 1.2 * size, y + size);
        break;
      default:
        pen.moveTo(x, y - 1.4 * size);
        pen.lineTo(x + 1.4 * size, y);
        pen.lineTo(x, y + 1.4 * size);
        pen.lineTo(x - 1.4 * size, y);
    }
    pen.fill();
  }

  drawLegend() {
    const names = this.data.series?.names ?? [];
    this.legend.replaceChildren();
    if (names.length > 1) {
      names.slice(0, 24).forEach((name, series) => {
        const sign = PW.element('span', {class: 'sign'}, '●■▲◆'[series % 4]);
        sign.style.color = PW.SERIES[series % PW.SERIES.length];
        this.legend.append(sign, `${name} `);
      });
      if (names.length > 24)
        this.legend.append(`and ${names.length - 24} more`);
    }
    if (this.options.front) {
      this.legend.append(PW.element(
          'span', {class: 'quiet'},
          `dashed: Pareto front, ${this.front.length} of ${
              this.usable.length} runs`));
    }
  }

  nearest(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = -1;
    let distance = 15 ** 2;
    for (const row of this.usable ?? []) {
      const [px, py] = this.at(row);
      const away = (px - x) ** 2 + (py - y) ** 2;
      if (away < distance) {
        distance = away;
        best = row;
      }
    }
    return best;
  }

  hover(event) {
    const row = this.nearest(event);
    this.tip.hidden = row < 0;
    if (row < 0) return;
    const box = this.canvas.getBoundingClientRect();
    this.showTip(row, event.clientX - box.left, event.clientY - box.top);
  }

  showTip(row, x, y) {
    const line = (index) => {
      const {name, values} = this.data.columns[index];
      const [unit, size] = PW.unitOfPath(name, Math.abs(values[row]));
      return PW.element(
          'div', {}, `${name}: ${PW.number(values[row] / size)} ${unit}`);
    };
    this.tip.replaceChildren(
        PW.element('div', {}, PW.element('b', {}, this.data.names[row])),
        line(this.y), line(this.x));
    this.tip.hidden = false;
    const wide = this.tip.offsetWidth;
    const left = x + 14 + wide > this.canvas.clientWidth ?
        Math.max(0, x - 14 - wide) :
        x + 14;
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${y + 14}px`;
  }
};
