// One number of many runs against another, with the Pareto front and error
// bars.
PW.Scatter = class {
  // `data`: {columns: [{name, values, low, high}], count, series, names}; low
  // and high where a column has error bars. uPlot draws axes and zooms; marks,
  // front and error bars are drawn here.
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
            PW.titleOf(data.columns[index])));
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
    this.tip = PW.element('div', {class: 'tip', hidden: true});
    this.plot = PW.element('div', {class: 'plot'});
    this.legend = PW.element('p', {class: 'legend-line'});
    root.append(
        PW.element('p', {class: 'tools'}, ...select('y'), ...select('x')),
        this.plot, this.legend);
    new ResizeObserver(() => this.resize()).observe(this.plot);
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
    this.chart?.redraw(false, false);
  }

  // Arrow keys go along the front; 0 shows all.
  key(event) {
    if (event.key === '0') {
      this.draw();
      // It has made a new canvas.
      this.chart?.ctx.canvas.focus({preventScroll: true});
      return;
    }
    const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (by === undefined || this.front.length === 0) return;
    event.preventDefault();
    const at = this.front.indexOf(this.chosen);
    this.chosen =
        this.front[Math.min(this.front.length - 1, Math.max(0, at + by))];
    this.options.picked?.(this.chosen);
    this.choose(this.chosen);
    this.showTip(this.chosen, ...this.at(this.chosen));
  }

  // In the unit of the axis; with the ends of error bars.
  scaleOf(index, rows) {
    const {name, values, low, high} = this.data.columns[index];
    let [least, most] = [Infinity, -Infinity];
    for (const row of rows) {
      for (const value of [values[row], low?.[row], high?.[row]]) {
        if (!Number.isFinite(value)) continue;
        least = Math.min(least, value);
        most = Math.max(most, value);
      }
    }
    const [unit, size] =
        PW.unitOfPath(name, Math.max(Math.abs(least), Math.abs(most)));
    least /= size;
    most /= size;
    if (!(most - least > 1e-12 * Math.abs(most))) {
      const half = most === 0 ? 1 : 0.05 * Math.abs(most);
      least -= half;
      most += half;
    }
    const margin = 0.04 * (most - least);
    const from = least > 0 && least < 0.3 * most ? 0 : least - margin;
    return {unit, size, low: from, high: most + margin};
  }

  // A place in the plot, in pixels from its corner.
  at(row) {
    return [
      this.chart.valToPos(this.value(this.x, row), 'x'),
      this.chart.valToPos(this.value(this.y, row), 'y')
    ];
  }

  value(index, row) {
    return this.data.columns[index].values[row] / this.scales[index].size;
  }

  size() {
    const width = Math.max(220, this.plot.clientWidth);
    const height = Math.round(Math.min(420, Math.max(260, width * 0.5)));
    return {width, height};
  }

  resize() {
    const {width, height} = this.size();
    if (this.chart === undefined || this.chart === null) return;
    if (this.chart.width !== width) this.chart.setSize({width, height});
  }

  draw() {
    const {data} = this;
    const [xs, ys] = [data.columns[this.x].values, data.columns[this.y].values];
    const usable = [];
    for (let row = 0; row < data.count; ++row) {
      if (this.rows !== null && !this.rows.has(row)) continue;
      if (Number.isFinite(xs[row]) && Number.isFinite(ys[row])) usable.push(row);
    }
    this.usable = usable;
    this.front = [];
    this.chart?.destroy();
    this.chart = null;
    this.tip.hidden = true;
    if (usable.length === 0) {
      this.plot.replaceChildren(
          PW.element('p', {class: 'quiet'}, 'no run has both numbers'));
      this.drawLegend();
      return;
    }
    this.plot.replaceChildren();
    const names = [data.columns[this.x].name, data.columns[this.y].name];
    const titles =
        [this.x, this.y].map((index) => PW.titleOf(data.columns[index]));
    if (this.options.front) {
      this.front = PW.paretoFront(
          usable, xs, ys, PW.moreIsBetter(names[0]), PW.moreIsBetter(names[1]));
    }
    this.scales = {
      [this.x]: this.scaleOf(this.x, usable),
      [this.y]: this.scaleOf(this.y, usable)
    };
    const axis = (index) => {
      const {unit} = this.scales[index];
      return {
        label: PW.titleOf(data.columns[index], unit),
        stroke: PW.cssColour('--ink'),
        grid: {stroke: PW.cssColour('--rule'), width: 1},
        ticks: {stroke: PW.cssColour('--rule'), width: 1},
        font: '12px system-ui, sans-serif',
        labelFont: '12px system-ui, sans-serif',
        values: (chart, ticks) => ticks.map((tick) => PW.grouped(tick))
      };
    };
    const scale = (index) => {
      const {low, high} = this.scales[index];
      return {
        time: false,
        auto: false,
        min: low,
        max: high,
        range: (chart, from, to) => [from ?? low, to ?? high]
      };
    };
    const column = (index) => usable.map((row) => this.value(index, row));
    const facets = [{scale: 'x', auto: false}, {scale: 'y', auto: false}];
    this.chart = new uPlot(
        {
          ...this.size(),
          mode: 2,
          legend: {show: false},
          cursor: {
            points: {show: false},
            drag: {x: true, y: true, uni: 30},
            // A double click shows all again.
            bind: {dblclick: () => () => this.draw()}
          },
          scales: {x: scale(this.x), y: scale(this.y)},
          axes: [axis(this.x), {...axis(this.y), size: 76}],
          series: [null, {facets, paths: (chart) => this.marks(chart)}],
        },
        [null, [column(this.x), column(this.y)]], this.plot);
    const {canvas} = this.chart.ctx;
    canvas.tabIndex = 0;
    canvas.setAttribute('role', 'img');
    canvas.setAttribute(
        'aria-label', `${titles[1]} against ${titles[0]}, ${usable.length} runs`);
    canvas.addEventListener('keydown', (event) => this.key(event));
    const {over} = this.chart;
    over.append(this.tip);
    over.addEventListener('pointermove', (event) => this.hover(event));
    over.addEventListener('pointerleave', () => {
      this.tip.hidden = true;
    });
    over.addEventListener('click', (event) => {
      canvas.focus({preventScroll: true});
      this.options.picked?.(this.nearest(event));
    });
    this.drawLegend();
  }

  // What stands in the plot: front, error bars, marks.
  marks(chart) {
    const {data} = this;
    const pen = chart.ctx;
    const ratio = uPlot.pxRatio;
    const {left, top, width, height} = chart.bbox;
    const at = (row) => [
      chart.valToPos(this.value(this.x, row), 'x', true),
      chart.valToPos(this.value(this.y, row), 'y', true)
    ];
    pen.save();
    pen.beginPath();
    pen.rect(left, top, width, height);
    pen.clip();
    pen.strokeStyle = PW.cssColour('--quiet');
    pen.lineWidth = 1.5 * ratio;
    pen.setLineDash([5 * ratio, 3 * ratio]);
    pen.beginPath();
    this.frontLine(PW.moreIsBetter(data.columns[this.x].name), at)
        .forEach(([x, y], index) => {
          if (index === 0)
            pen.moveTo(x, y);
          else
            pen.lineTo(x, y);
        });
    pen.stroke();
    pen.setLineDash([]);
    this.errorBars(chart, pen, at, ratio);
    const size = (this.usable.length > 2000 ? 2.2 : 4) * ratio;
    for (const row of this.usable) {
      PW.mark(pen, ...at(row), data.series?.codes[row] ?? 0, size);
    }
    if (this.chosen >= 0 && this.usable.includes(this.chosen)) {
      pen.strokeStyle = PW.cssColour('--ink');
      pen.lineWidth = 2 * ratio;
      pen.beginPath();
      pen.arc(...at(this.chosen), 9 * ratio, 0, 2 * Math.PI);
      pen.stroke();
    }
    pen.restore();
    return null;
  }

  errorBars(chart, pen, at, ratio) {
    pen.strokeStyle = PW.cssColour('--ink');
    pen.lineWidth = ratio;
    this.bars = 0;
    pen.beginPath();
    for (const [scale, index] of [['x', this.x], ['y', this.y]]) {
      const {low, high} = this.data.columns[index];
      if (low === undefined) continue;
      const end = (values, row) => chart.valToPos(
          values[row] / this.scales[index].size, scale, true);
      for (const row of this.usable) {
        if (!Number.isFinite(low[row]) || !Number.isFinite(high[row])) continue;
        const [x, y] = at(row);
        const ends = [end(low, row), end(high, row)];
        pen.moveTo(...(scale === 'x' ? [ends[0], y] : [x, ends[0]]));
        pen.lineTo(...(scale === 'x' ? [ends[1], y] : [x, ends[1]]));
        ++this.bars;
      }
    }
    pen.stroke();
  }

  // Steps, as FigureSvg draws them: between two points of the front nothing
  // better is known than what one of them has.
  frontLine(moreX, at = (row) => this.at(row)) {
    const line = [];
    for (const row of this.front) {
      const [x, y] = at(row);
      const last = line.at(-1);
      if (last !== undefined) line.push(moreX ? [last[0], y] : [x, last[1]]);
      line.push([x, y]);
    }
    return line;
  }

  drawLegend() {
    const names = this.data.series?.names ?? [];
    this.legend.replaceChildren();
    if (names.length > 1) {
      this.legend.append(
          PW.element('b', {}, `${this.data.series.title ?? 'Series'}: `));
      names.slice(0, 32).forEach((name, series) => {
        const sign = PW.element('span', {class: 'sign'}, '●■▲◆▼'[series % 5]);
        sign.style.color = PW.SERIES[series % PW.SERIES.length];
        this.legend.append(
            PW.element('span', {class: 'switch'}, sign, name), ' ');
      });
      if (names.length > 32)
        this.legend.append(`and ${names.length - 32} more `);
    }
    if (this.front.length > 0) {
      this.legend.append(PW.element(
          'span', {class: 'quiet'},
          `dashed: Pareto front, ${this.front.length} of ${
              this.usable.length} runs`));
    }
  }

  nearest(event) {
    const box = this.chart.over.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = -1;
    let distance = 15 ** 2;
    for (const row of this.usable) {
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
    const box = this.chart.over.getBoundingClientRect();
    this.showTip(row, event.clientX - box.left, event.clientY - box.top);
  }

  showTip(row, x, y) {
    const line = (index) => {
      const column = this.data.columns[index];
      const {name, values, low, high} = column;
      const [unit, size] = PW.unitOfPath(name, Math.abs(values[row]));
      const text = (value) => PW.grouped(value / size);
      const range = Number.isFinite(low?.[row]) ?
          ` (${text(low[row])} to ${text(high[row])})` :
          '';
      return PW.element(
          'div', {}, `${PW.titleOf(column)}: ${text(values[row])}${range} ${unit}`);
    };
    this.tip.replaceChildren(
        PW.element('div', {}, PW.element('b', {}, this.data.names[row])),
        line(this.y), line(this.x));
    this.tip.hidden = false;
    const wide = this.tip.offsetWidth;
    const left = x + 14 + wide > this.chart.over.clientWidth ?
        Math.max(0, x - 14 - wide) :
        x + 14;
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${y + 14}px`;
  }
};
