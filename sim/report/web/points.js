// What charts know of numbers of a report: units, what is better, the Pareto
// front (the runs that no other is better than in both), marks.
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

// As ParetoFront in sim/analysis/plot/figure.cc. `rows`: those that count.
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

// A mark of its own for each series, so that grey print tells them apart.
PW.mark = (pen, x, y, series, size) => {
  pen.fillStyle = PW.SERIES[series % PW.SERIES.length];
  pen.beginPath();
  switch (series % 5) {
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
    case 3:
      pen.moveTo(x, y - 1.4 * size);
      pen.lineTo(x + 1.4 * size, y);
      pen.lineTo(x, y + 1.4 * size);
      pen.lineTo(x - 1.4 * size, y);
      break;
    default:
      pen.moveTo(x, y + 1.3 * size);
      pen.lineTo(x + 1.2 * size, y - size);
      pen.lineTo(x - 1.2 * size, y - size);
  }
  pen.fill();
};
