// The run again with other times: the longest path through what every
// operation has waited for (sim/analysis/explain/dependency_graph.h). It changes no
// order and no dependency.
PW.CLASS = {
  NONE: 0,
  F: 1,
  B: 2,
  W: 3,
  BW: 4,
  R: 5,
  HOP: 6
};

// The same rule as IsSteady in sim/engine/engine.cc.
PW.periodOf = (ends, untilSteady) => {
  if (ends.length === 1)
    return {iteration_s: ends[0], iterations: 1, steady: true};
  for (let count = 3; untilSteady && count <= ends.length; ++count) {
    const last = ends[count - 1] - ends[count - 2];
    const before = ends[count - 2] - ends[count - 3];
    if (Math.abs(last - before) <= 1e-9 * Math.abs(last)) {
      return {iteration_s: last, iterations: count, steady: true};
    }
  }
  const count = ends.length;
  return {
    iteration_s: ends[count - 1] - ends[count - 2],
    iterations: count,
    steady: !untilSteady
  };
};

PW.Replay = class {
  constructor(data) {
    Object.assign(this, data);
    this.count = this.seconds.length;
    this.start = new Float64Array(this.count);
    this.end = new Float64Array(this.count);
  }

  // `factors`: {F, B, W, hop}. Returns the numbers of the report.
  run(factors) {
    const of = [
      1, factors.F, factors.B, factors.W, 0, this.recompute ? factors.F : 1,
      factors.hop
    ];
    const {start, end, seconds, first, from, kind, part} = this;
    for (let node = 0; node < this.count; ++node) {
      let begin = 0;
      for (let edge = first[node]; edge < first[node + 1]; ++edge) {
        const before = end[from[edge]];
        if (before > begin) begin = before;
      }
      const factor = kind[node] === PW.CLASS.BW ?
          part[node] * factors.B + (1 - part[node]) * factors.W :
          of[kind[node]];
      start[node] = begin;
      end[node] = begin + seconds[node] * factor;
    }
    return this.measure();
  }

  measure() {
    const {start, end, rank, iteration} = this;
    const ends = new Array(this.iterations).fill(0);
    const ranks = Array.from(
        {length: this.ranks},
        () => ({low: Infinity, high: -Infinity, busy: 0}));
    for (let node = 0; node < this.count; ++node) {
      if (this.compute[node] & 2) {
        ends[iteration[node]] = Math.max(ends[iteration[node]], end[node]);
      }
      if (iteration[node] !== 0 || !(this.compute[node] & 1)) continue;
      const own = ranks[rank[node]];
      own.low = Math.min(own.low, start[node]);
      own.high = Math.max(own.high, end[node]);
      own.busy += end[node] - start[node];
    }
    for (let index = 1; index < ends.length; ++index) {
      ends[index] = Math.max(ends[index], ends[index - 1]);
    }
    const busy = Math.max(...ranks.map((own) => own.busy));
    const global = Math.max(...ranks.map((own) => own.high)) -
        Math.min(...ranks.map((own) => own.low));
    const perRank = Math.max(...ranks.map((own) => own.high - own.low));
    const period = PW.periodOf(ends, this.untilSteady);
    const share = (span) => span > 0 ? Math.max(0, span - busy) / span : 0;
    return {
      ...period,
      busy_s: busy,
      span_global_s: global,
      span_per_rank_s: perRank,
      bubble_global: share(global),
      bubble_per_rank: share(perRank),
    };
  }

  // The chain of what ended last before each, back from the last end of the
  // first iteration: [{rank, start, end}], by time.
  criticalPath() {
    let node = -1;
    for (let each = 0; each < this.count; ++each) {
      if (this.iteration[each] !== 0 || !(this.compute[each] & 2)) continue;
      if (node < 0 || this.end[each] > this.end[node]) node = each;
    }
    const pieces = [];
    while (node >= 0) {
      pieces.push({
        rank: this.rank[node],
        start: this.start[node],
        end: this.end[node]
      });
      let before = -1;
      for (let edge = this.first[node]; edge < this.first[node + 1]; ++edge) {
        const each = this.from[edge];
        if (before < 0 || this.end[each] > this.end[before] ||
            (this.end[each] === this.end[before] &&
             this.rank[each] === this.rank[node])) {
          before = each;
        }
      }
      node = before;
    }
    return pieces.reverse();
  }

  // Moves the operations of a run to the times of the replay.
  apply(run) {
    const starts = run.op.start;
    const seconds = run.op.seconds;
    let last = 0;
    for (let node = 0; node < this.count; ++node) {
      const op = this.op[node];
      if (op < 0) continue;
      starts[op] = this.start[node];
      seconds[op] = this.end[node] - this.start[node];
      last = Math.max(last, this.end[node]);
    }
    run.end = last;
    run.moved();
  }
};

// Do two reports say the same?
PW.sameReport =
    (one,
     other) => ['iteration_s', 'span_global_s', 'span_per_rank_s', 'busy_s']
                   .every(
                       (key) => Math.abs(one[key] - other[key]) <=
                           1e-9 * Math.abs(other[key]));
