// The operations of one run: names, rows, what is at a place, what a search
// finds. No pixels.
PW.PASS_KINDS = ['F', 'B', 'W', 'BW', 'R', 'O', 'L', 'SYNC', 'FREE'];

PW.Run = class {
  constructor(run, page) {
    Object.assign(this, run);
    this.page = page;
    const {lo, hi} = this.op;
    this.count = lo.length;
    this.kindOf = (op) => lo[op] & 15;
    this.direction = (op) => lo[op] >>> 4 & 1;
    this.chunk = (op) => lo[op] >>> 5 & 2047;
    this.slice = (op) => lo[op] >>> 17 & 16383;
    this.microbatch = (op) => hi[op];
    this.end_ = (op) => this.op.start[op] + this.op.seconds[op];
    this.tracks = run.tracks.map(
        ([rank, stream, first, count]) =>
            ({rank, stream, first, count, last: first + count}));
    this.trackOf = (op) => this.tracks[PW.search(
        0, this.tracks.length, (index) => this.tracks[index].last <= op)];
    this.findPairs();
    this.sums = new Map();
  }

  // Passes of an overlapped pair that have one time share the height: 1 is the
  // upper half, 2 the lower.
  findPairs() {
    this.half = new Uint8Array(this.count);
    this.pairs = 0;
    for (const track of this.tracks) {
      if (track.stream !== 0) continue;
      for (let op = track.first; op + 1 < track.last; ++op) {
        if (!(this.op.flags[op] & 1)) continue;
        const end = this.end_(op);
        if (!(this.op.flags[op + 1] & 1) ||
            this.op.start[op + 1] > end + 1e-9 * Math.abs(end))
          continue;
        ++this.pairs;
        if (this.op.start[op + 1] < end - 1e-9 * Math.abs(end)) {
          this.half[op] = 1;
          this.half[op + 1] = 2;
        }
        ++op;
      }
    }
  }

  isPass(op) {
    return this.op.kind[op] === 0;
  }
  hasPass(op) {
    return this.op.flags[op] & 2;
  }

  passName(op) {
    return (this.directions > 1 ? 'ab'[this.direction(op)] : '') +
        PW.PASS_KINDS[this.kindOf(op)] + this.microbatch(op) +
        (this.vpp > 1 ? `.${this.chunk(op)}` : '') +
        (this.slices > 1 ? `s${this.slice(op)}` : '');
  }

  nameOf(op) {
    const kind = this.page.kinds[this.op.kind[op]];
    if (this.isPass(op) || (this.hasPass(op) && this.kindOf(op) > 4))
      return this.passName(op);
    return this.hasPass(op) ? `${kind} ${this.passName(op)}` : kind;
  }

  label(op) {
    if (!this.isPass(op)) return '';
    return this.slices > 1 ? `${this.microbatch(op)}s${this.slice(op)}` :
                             `${this.microbatch(op)}`;
  }

  describe(op) {
    const track = this.trackOf(op);
    const lines = [`${this.nameOf(op)} on rank ${track.rank}`];
    if (track.stream !== 0)
      lines[0] += `, stream ${this.page.streams[track.stream]}`;
    lines.push(`${PW.seconds(this.op.start[op], 9)} to ${
        PW.seconds(
            this.end_(op), 9)}, takes ${PW.seconds(this.op.seconds[op])}`);
    if (this.isPass(op)) {
      lines.push(
          `microbatch ${this.microbatch(op)}` +
          (this.vpp > 1 ? `, chunk ${this.chunk(op)}` : '') +
          (this.slices > 1 ? `, slice ${this.slice(op)}` : '') +
          `, ${this.page.styles[this.op.style[op]].label}`);
    }
    if (this.op.to[op] >= 0) lines.push(`to rank ${this.op.to[op]}`);
    if (this.op.bytes[op] > 0) lines.push(PW.bytes(this.op.bytes[op]));
    return lines;
  }

  // The operation of a track at a time; -1 where it is idle. `lower`: of a
  // pair that shares the height.
  at(track, time, lower) {
    const {start} = this.op;
    const behind =
        PW.search(track.first, track.last, (op) => start[op] <= time);
    let found = -1;
    for (let op = behind - 1; op >= track.first && op >= behind - 64; --op) {
      if (this.end_(op) < time) continue;
      if (this.half[op] && (this.half[op] === 2) !== lower) continue;
      found = op;
      break;
    }
    return found;
  }

  // A predicate over operations; null where the text says nothing.
  matcher(text) {
    const tests = [];
    let rest =
        text.trim()
            .toLowerCase()
            .replace(
                /\b(rank|stage|microbatch|mb|chunk|slice)\s*=?\s*(\d+)/g,
                (whole, word, digits) => {
                  const wanted = Number(digits);
                  if (word === 'rank')
                    tests.push((op, track) => track.rank === wanted);
                  else if (word === 'stage')
                    tests.push((op) => this.op.stage[op] === wanted);
                  else if (word === 'chunk')
                    tests.push(
                        (op) => this.hasPass(op) && this.chunk(op) === wanted);
                  else if (word === 'slice')
                    tests.push(
                        (op) => this.hasPass(op) && this.slice(op) === wanted);
                  else
                    tests.push(
                        (op) =>
                            this.hasPass(op) && this.microbatch(op) === wanted);
                  return ' ';
                })
            .trim();
    for (const word of rest.split(/[\s,]+/).filter((each) => each !== '')) {
      const pass =
          /^([ab](?=[fbwrol]))?(f|bw|b|w|r|o|l)?(\d+)?(?:\.(\d+))?(?:s(\d+))?$/
              .exec(word);
      if (pass !== null) {
        const [, side, kind, microbatch, chunk, slice] = pass;
        const index =
            kind === undefined ? -1 : PW.PASS_KINDS.indexOf(kind.toUpperCase());
        tests.push(
            (op) => this.hasPass(op) &&
                (index < 0 || this.kindOf(op) === index) &&
                (side === undefined ||
                 this.direction(op) === (side === 'b' ? 1 : 0)) &&
                (microbatch === undefined ||
                 this.microbatch(op) === Number(microbatch)) &&
                (chunk === undefined || this.chunk(op) === Number(chunk)) &&
                (slice === undefined || this.slice(op) === Number(slice)));
        continue;
      }
      const kinds = this.page.kinds.map((kind) => kind.includes(word));
      const styles = this.page.styles.map(
          (style) => style.label.toLowerCase().includes(word));
      tests.push((op) => kinds[this.op.kind[op]] || styles[this.op.style[op]]);
    }
    if (tests.length === 0) return null;
    return (op, track) => tests.every((test) => test(op, track));
  }

  // Marks what a search finds, on the tracks that are shown: {mark, found}.
  find(text, shown) {
    const matches = this.matcher(text);
    if (matches === null) return null;
    const mark = new Uint8Array(this.count);
    const found = [];
    for (const track of this.tracks) {
      if (!shown(track)) continue;
      for (let op = track.first; op < track.last; ++op) {
        if (!matches(op, track)) continue;
        mark[op] = 1;
        found.push(op);
      }
    }
    found.sort((one, other) => this.op.start[one] - this.op.start[other]);
    return {mark, found};
  }

  // Time of each style from the beginning of a track to each of its
  // operations: what lets a pixel that covers many be drawn at once.
  sumsOf(track) {
    let sums = this.sums.get(track);
    if (sums !== undefined) return sums;
    const styles = [];
    const slot = new Int8Array(this.page.styles.length).fill(-1);
    for (let op = track.first; op < track.last; ++op) {
      const style = this.op.style[op];
      if (slot[style] < 0) {
        slot[style] = styles.length;
        styles.push(style);
      }
    }
    const width = styles.length;
    const values = new Float64Array((track.count + 1) * width);
    for (let index = 0; index < track.count; ++index) {
      const op = track.first + index;
      const from = index * width;
      for (let each = 0; each < width; ++each)
        values[from + width + each] = values[from + each];
      values[from + width + slot[this.op.style[op]]] += this.op.seconds[op];
    }
    sums = {styles, slot, values, width};
    this.sums.set(track, sums);
    return sums;
  }

  // Starts and lengths have changed.
  moved() {
    this.sums.clear();
  }
};
