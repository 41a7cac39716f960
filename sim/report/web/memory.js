// Memory of one rank over the time of a timeline, by what it is used for.
PW.Memory = class {
  constructor(root, memory, axis) {
    this.memory = memory;
    this.axis = axis;
    this.rank = memory.worst;
    const choice = PW.element('select', {
      id: 'memory-rank',
      onchange: (event) => {
        this.rank = Number(event.target.value);
        this.draw();
      }
    });
    memory.ranks.forEach(
        (rank, index) => choice.append(PW.element(
            'option', {value: index, selected: index === this.rank},
            `rank ${index}, peak ${PW.bytes(rank.peak)}`)));
    this.note = PW.element(
        'span', {class: 'quiet', hidden: true},
        ' The picture is of the times as run.');
    this.canvas = PW.element('canvas', {
      tabindex: 0,
      role: 'application',
      'aria-label': 'memory of a rank over time, by use'
    });
    this.tip = PW.element('div', {class: 'tip', hidden: true});
    this.legend = PW.element('p', {class: 'legend-line'});
    root.append(
        PW.element(
            'p', {class: 'tools'},
            PW.element(
                'label',
                {for: 'memory-rank'
                },
                'Memory of '),
            choice, this.note),
        this.legend, PW.element('div', {class: 'plot'}, this.canvas, this.tip));
    memory.kinds.forEach(
        (kind) => this.legend.append(PW.swatch(kind.colour), `${kind.name} `));
    this.pen = this.canvas.getContext('2d', {alpha: false});
    PW.steer(this.canvas, axis, PW.LEFT, () => this.plotWidth, this);
    axis.listeners.push(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
    this.draw();
  }

  stale(on) {
    this.note.hidden = !on;
  }

  // The sample that holds at a time; -1 before the first.
  sampleAt(time) {
    const {time: times} = this.memory.ranks[this.rank];
    return PW.search(0, times.length, (index) => times[index] <= time) - 1;
  }

  draw() {
    const {pen, axis, memory} = this;
    const ratio = window.devicePixelRatio || 1;
    const width = Math.max(200, this.canvas.parentElement.clientWidth);
    const height = 250;
    const [top, bottom] = [14, height - 40];
    this.plotWidth = width - PW.LEFT - PW.RIGHT;
    if (this.canvas.width !== Math.round(width * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.height = `${height}px`;
    }
    const colours = {
      ink: PW.cssColour('--ink'),
      rule: PW.cssColour('--rule'),
      bad: PW.cssColour('--bad')
    };
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = PW.cssColour('--card');
    pen.fillRect(0, 0, width, height);
    const rank = memory.ranks[this.rank];
    const most = Math.max(memory.highest, memory.limit ?? 0) * 1.02;
    const [unit, size] = most >= 2 ** 30 ? ['GiB', 2 ** 30] :
        most >= 2 ** 20                  ? ['MiB', 2 ** 20] :
                                           ['KiB', 1024];
    const y = (bytes) => bottom - (bottom - top) * bytes / most;
    const step = PW.tickStep(most / size / 5);
    pen.font = '12px system-ui, sans-serif';
    pen.textAlign = 'right';
    pen.textBaseline = 'middle';
    pen.lineWidth = 1;
    for (let tick = 0; tick * step * size <= most; ++tick) {
      const at = y(tick * step * size);
      pen.strokeStyle = colours.rule;
      pen.beginPath();
      pen.moveTo(PW.LEFT, at);
      pen.lineTo(PW.LEFT + this.plotWidth, at);
      pen.stroke();
      pen.fillStyle = colours.ink;
      pen.fillText(PW.number(tick * step, 6), PW.LEFT - 6, at);
    }
    pen.save();
    pen.translate(13, (top + bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = 'center';
    pen.fillText(`memory (${unit})`, 0, 0);
    pen.restore();
    // The highest sample of every pixel.
    const columns = Math.round(this.plotWidth);
    const scale = (axis.end - axis.start) / columns;
    const chosen = new Int32Array(columns).fill(-1);
    let sample = this.sampleAt(axis.start);
    for (let column = 0; column < columns; ++column) {
      const until = axis.start + (column + 1) * scale;
      let best = sample;
      while (sample + 1 < rank.time.length && rank.time[sample + 1] < until) {
        ++sample;
        if (best < 0 || rank.total[sample] > rank.total[best]) best = sample;
      }
      chosen[column] = axis.start + column * scale > memory.end ? -1 : best;
    }
    const base = new Float64Array(columns);
    memory.kinds.forEach((kind, index) => {
      pen.fillStyle = kind.colour;
      const values = rank.of[index];
      for (let column = 0; column < columns;) {
        const at = chosen[column];
        let next = column + 1;
        while (next < columns && chosen[next] === at) ++next;
        if (at >= 0 && values[at] > 0) {
          const upper = y(base[column] + values[at]);
          pen.fillRect(
              PW.LEFT + column, upper, next - column, y(base[column]) - upper);
          base.fill(base[column] + values[at], column, next);
        }
        column = next;
      }
    });
    if (memory.limit !== undefined) {
      pen.strokeStyle = colours.bad;
      pen.setLineDash([6, 4]);
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(PW.LEFT, y(memory.limit));
      pen.lineTo(PW.LEFT + this.plotWidth, y(memory.limit));
      pen.stroke();
      pen.setLineDash([]);
    }
    PW.paintAxis(pen, axis, PW.LEFT, this.plotWidth, bottom, 40, colours);
  }

  hover(x, y) {
    const time = this.axis.start +
        (x - PW.LEFT) / this.plotWidth * (this.axis.end - this.axis.start);
    const at = this.sampleAt(time);
    this.tip.hidden = at < 0 || x < PW.LEFT || x > PW.LEFT + this.plotWidth ||
        time > this.memory.end;
    if (this.tip.hidden) return;
    const rank = this.memory.ranks[this.rank];
    this.tip.replaceChildren(
        PW.element(
            'div', {},
            `rank ${this.rank} at ${PW.seconds(time)}: ${
                PW.bytes(rank.total[at])}`),
        ...this.memory.kinds.map((kind, index) => [kind, rank.of[index][at]])
            .filter(([, bytes]) => bytes > 0)
            .reverse()
            .map(
                ([kind, bytes]) => PW.element(
                    'div', {}, PW.swatch(kind.colour),
                    `${kind.name} ${PW.bytes(bytes)}`)));
    const wide = this.tip.offsetWidth;
    this.tip.style.left = `${
        x + 14 + wide > this.canvas.clientWidth ? Math.max(0, x - 14 - wide) :
                                                  x + 14}px`;
    this.tip.style.top = `${y + 14}px`;
  }

  leave() {
    this.tip.hidden = true;
  }
};

PW.swatch = (colour) => {
  const node = PW.element('span', {class: 'swatch'});
  node.style.background = colour;
  return node;
};
