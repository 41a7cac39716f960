// Checks of what the script of a page draws: timelines, sliders, tables; charts
// are check_charts.js's. Each takes a page that is ready, and fails with an
// AssertionError.
import assert from 'node:assert/strict';

import {checkChart} from './check_charts.js';

export async function ready(page) {
  await page.waitForFunction(
      () => document.documentElement.dataset.ready === '1');
}

// A place of a canvas in the window, of an operation of a timeline.
async function placeOf(page, timeline, op) {
  return page.evaluate(([timeline, op]) => {
    const own = PW.timelines[timeline];
    own.canvas.scrollIntoView({block: 'center'});
    const box = own.canvas.getBoundingClientRect();
    const track = own.run.trackOf(op);
    const row = own.rows.find((each) => each.track === track);
    const [left, right] =
        own.place({start: own.run.op.start[op], end: own.run.end_(op)});
    const half = own.run.half[op];
    const y = row.top +
        row.height *
            (half === 1     ? 0.25 :
                 half === 2 ? 0.75 :
                              0.5);
    return [box.left + (left + right) / 2, box.top + y];
  }, [timeline, op]);
}

// Pointing at a pass names it, before and after a zoom around it. The name is
// made here from the columns, not by the page.
export async function checkHover(page) {
  const wanted = await page.evaluate(() => {
    const run = PW.runs[0];
    const track = run.tracks.find(
        (each) => each.stream === 0 && each.rank === run.ranks - 1);
    return [track.first, track.first + Math.floor(track.count / 2)].map(
        (op) => ({
          op,
          rank: track.rank,
          kind: run.op.lo[op] & 15,
          microbatch: run.op.hi[op],
          chunk: run.op.lo[op] >>> 5 & 2047,
          vpp: run.vpp,
          directions: run.directions,
          slices: run.slices,
        }));
  });
  for (const {op, rank, kind, microbatch, chunk, vpp, directions, slices} of
           wanted) {
    if (directions > 1 || slices > 1) continue;
    const name = ['F', 'B', 'W', 'BW', 'R'][kind] + microbatch +
        (vpp > 1 ? `.${chunk}` : '');
    for (const zoomed of [false, true]) {
      if (zoomed) {
        await page.mouse.move(...await placeOf(page, 0, op));
        await page.keyboard.down('Control');
        for (let turn = 0; turn < 4; ++turn) await page.mouse.wheel(0, -200);
        await page.keyboard.up('Control');
        await page.waitForFunction(
            () => PW.axis.end - PW.axis.start <
                0.5 * (PW.axis.high - PW.axis.low));
      }
      await page.mouse.move(2, 2);
      await page.mouse.move(...await placeOf(page, 0, op));
      const tip = page.locator('#timeline-0 .tip');
      assert(await tip.isVisible(), `${name}: no tip`);
      const text = await tip.locator('div').first().textContent();
      assert.equal(
          text, `${name} on rank ${rank}`, zoomed ? 'zoomed' : 'whole');
    }
    await page.evaluate(() => PW.axis.fit());
  }
}

// Keys zoom, move, select and go from pass to pass.
export async function checkKeys(page) {
  await page.locator('#timeline-0 canvas').focus();
  const length = () => page.evaluate(
      () => (PW.axis.end - PW.axis.start) / (PW.axis.high - PW.axis.low));
  await page.keyboard.press('+');
  assert(Math.abs(await length() - 0.5) < 1e-9, '+ halves');
  await page.keyboard.press('0');
  assert.equal(await length(), 1, '0 shows all');
  await page.keyboard.press('ArrowDown');
  const first = await page.evaluate(() => PW.timelines[0].selected);
  await page.keyboard.press('ArrowRight');
  assert.equal(await page.evaluate(() => PW.timelines[0].selected), first + 1);
  assert.match(
      await page.locator('#timeline-0 .status').textContent(),
      /on rank 0 · .* takes /);
  await page.keyboard.press('Escape');
  assert.equal(await page.evaluate(() => PW.timelines[0].selected), -1);
}

// A search finds as many as there are, counted here from the columns.
export async function checkSearch(page) {
  const expected = await page.evaluate(() => {
    let count = 0;
    for (const run of PW.runs) {
      for (const track of run.tracks) {
        if (track.stream !== 0) continue;
        for (let op = track.first; op < track.last; ++op) {
          if (run.op.kind[op] === 0 && run.op.hi[op] === 3 &&
              (run.op.lo[op] & 15) === 0) {
            ++count;
          }
        }
      }
    }
    return count;
  });
  await page.locator('#search').fill('F3');
  assert.equal(
      (await page.locator('#found').textContent()).trim(), `${expected} found`);
  await page.locator('#search').press('Enter');
  assert.match(await page.locator('#timeline-0 .status').textContent(), /^[ab]?F3/);
  await page.locator('#search').fill('zzz');
  assert.equal((await page.locator('#found').textContent()).trim(), '0 found');
  await page.locator('#search').fill('');
  await page.evaluate(() => {
    PW.axis.fit();
    PW.timelines[0].leave(true);
  });
}

// Streams add rows; the picture is not empty.
export async function checkStreams(page) {
  const colours = () => page.evaluate(() => {
    const {canvas} = PW.timelines[0];
    const {data} =
        canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
  });
  assert(await colours() > 4, 'the timeline is empty');
  if (await page.locator('#streams').count() === 0) return;
  const rows = () => page.evaluate(() => PW.timelines[0].rows.length);
  const before = await rows();
  await page.locator('#streams').check();
  assert(await rows() > before, 'rows of streams');
  await page.locator('#streams').uncheck();
  assert.equal(await rows(), before);
}

// The sliders reach the numbers of simulate: `rows` of factors and results.
export async function checkSliders(page, rows) {
  await page.locator('#what-if summary').click();
  assert(await page.locator('#what-if-table').isVisible(), 'no sliders');
  for (const row of rows) {
    for (const [key, factor] of Object.entries(row.factors)) {
      const box = page.locator(`#factor-${key}-number`);
      if (await box.count() > 0)
        await box.fill(String(factor));
      else
        assert.equal(key, 'W', `no slider for ${key}`);
    }
    const now = await page.evaluate(() => PW.whatIfNow);
    for (const key
             of ['iteration_s', 'span_global_s', 'span_per_rank_s',
                 'bubble_global', 'bubble_per_rank']) {
      assert(
          Math.abs(now[key] - row[key]) <=
              1e-9 * Math.max(Math.abs(row[key]), 1e-3),
          `${JSON.stringify(row.factors)}: ${key} ${now[key]}, simulate has ${
              row[key]}`);
    }
    // What is drawn has moved with it.
    const last = await page.evaluate(() => {
      const run = PW.runs[0];
      let end = 0;
      let first = Infinity;
      for (let op = 0; op < run.count; ++op) {
        if (run.op.kind[op] !== 0) continue;
        end = Math.max(end, run.end_(op));
        first = Math.min(first, run.op.start[op]);
      }
      return end - first;
    });
    assert(
        Math.abs(last - row.span_global_s) <= 1e-9 * row.span_global_s,
        'the picture has not moved');
  }
  assert(
      rows.some(
          (row) =>
              Math.abs(row.span_global_s / rows[0].span_global_s - 1) > 0.1),
      'factors without effect');
  await page.getByRole('button', {name: 'all × 1'}).click();
  await checkLeast(page);
}

// Only the slider of a network does not take 0, as simulate refuses it.
async function checkLeast(page) {
  const sliders = await page.evaluate(
      () => PW.replay.sliders.map(({key, name}) => ({key, name})));
  for (const {key, name} of sliders) {
    const least = name.startsWith('network') ? 0.01 : 0;
    const range = page.locator(`#factor-${key}`);
    const number = page.locator(`#factor-${key}-number`);
    for (const input of [range, number])
      assert.equal(Number(await input.getAttribute('min')), least, name);
    await number.fill('0');
    assert.equal(
        Number(await range.inputValue()), least > 0 ? 1 : 0,
        `${name}: the factor after 0`);
    await number.fill('0.01');
    assert.equal(Number(await range.inputValue()), 0.01, name);
    await page.getByRole('button', {name: 'all × 1'}).click();
  }
}

// Heads sort and filters leave what they say; `key`: a column of numbers.
export async function checkRuns(page) {
  const table = page.locator('#runs-table');
  assert(await table.isVisible(), 'the table of runs');
  const heads = await table.locator('th').allTextContents();
  const numeric = heads.findIndex((head) => head.startsWith('Bubble fraction'));
  assert(numeric >= 0, `a column of bubbles: ${heads}`);
  const column = async () =>
      (await table.locator(`tbody tr > :nth-child(${numeric + 1})`)
           .allTextContents())
          .map(Number);
  const before = await column();
  assert(before.length > 3);
  await table.locator('th').nth(numeric).locator('button').click();
  assert.deepEqual(
      await column(), [...before].sort((one, other) => one - other),
      'ascending');
  await table.locator('th').nth(numeric).locator('button').click();
  assert.deepEqual(
      await column(), [...before].sort((one, other) => other - one),
      'descending');
  const limit = [...before].sort(
      (one, other) => one - other)[Math.floor(before.length / 2)];
  await page.locator('#filter-runs').fill(`bubble<${limit}`);
  const left = await column();
  assert(
      left.length > 0 && left.length < before.length &&
          left.every((value) => value < limit),
      'the filter');
  assert.equal(
      await page.evaluate(() => PW.scatters[0].usable.length), left.length,
      'the chart has other runs');
  await page.locator('#filter-runs').fill('');
  await checkChart(page);
  assert.equal(
      await page.evaluate(
          () => PW.columnNamed('pp', ['strategy.vpp', 'strategy.pp'])),
      1, 'the last word of a path');
  assert.equal(
      await page.evaluate(() => PW.rowFilter('a<10', ['a'])([''])), false,
      'an empty cell is below no number');
  // The front, found here by asking every pair.
  const [front, expected] = await page.evaluate(() => {
    const chart = PW.scatters[0];
    const [x, y] = [
      chart.data.columns[chart.x].values, chart.data.columns[chart.y].values
    ];
    const rows = chart.usable;
    const best = rows.filter(
        (row) => !rows.some(
            (other) => x[other] <= x[row] && y[other] <= y[row] &&
                (x[other] < x[row] || y[other] < y[row])));
    return [
      chart.front.map((row) => [x[row], y[row]]),
      best.map((row) => [x[row], y[row]])
    ];
  });
  const places = (list) => [...new Set(list.map(String))].sort();
  assert.deepEqual(places(front), places(expected), 'the Pareto front');
  // Both axes are better where they are less; a picture's y grows downwards.
  const [line, points] = await page.evaluate(() => {
    const chart = PW.scatters[0];
    return [chart.frontLine(false), chart.front.map((row) => chart.at(row))];
  });
  assert(points.length > 1, 'a front of several points');
  assert.equal(line.length, 2 * points.length - 1, 'a corner between points');
  for (let index = 0; index + 1 < points.length; ++index) {
    const [one, other] = [points[index], points[index + 1]];
    assert.deepEqual(
        line[2 * index + 1],
        [Math.max(one[0], other[0]), Math.min(one[1], other[1])],
        'a corner of the front is no better than its points');
  }
}

// The page of a sweep: many points are there at once, and a click on a point
// or a row shows its own command.
export async function checkSweep(page) {
  const points = await page.evaluate(() => PW.scatters[0].data.count);
  assert.equal(points, 10000, 'points');
  // Not a time on a clock: what is drawn grows with the page, not the points.
  assert.equal(
      await page.locator('#runs-table tbody tr').count(), 200,
      'rows are nodes before they are looked at');
  assert.match(await page.locator('#verdict').textContent(), /Fastest/);
  assert.equal(await page.locator('#command').count(), 0);
  await page.locator('#runs-table tbody tr').nth(3).click();
  const shown = () => page.locator('#command').textContent();
  assert.equal(
      await shown(),
      'pipewright simulate --set strategy.pp=4 --set run=3 --html run.html');
  const {row, x, y} = await page.evaluate(() => {
    const chart = PW.scatters[0];
    const row = chart.front[0];
    const [x, y] = chart.at(row);
    return {row, x, y};
  });
  const over = page.locator('#scatter .u-over').first();
  await over.scrollIntoViewIfNeeded();
  await over.click({position: {x, y}});
  assert.equal(
      await shown(),
      `pipewright simulate --set strategy.pp=4 --set run=${row} --html run.html`);
  // Axes are chosen by their words.
  await page.locator('#scatter-0-x').selectOption({label: 'Tensor-parallel size'});
  assert.equal(
      await page.evaluate(() => PW.scatters[0].chart.axes[0].label),
      'Tensor-parallel size');
  const head = page.locator('#runs-table th', {hasText: 'Throughput'}).locator('button');
  await head.click();
  await head.click();
  const first = await page.locator('#runs-table tbody tr').first().getAttribute('data-row');
  assert.equal(
      Number(first), await page.evaluate(() => {
        const {values} = PW.scatters[0].data.columns.find(
            (column) => column.name === 'tokens_per_s');
        return values.indexOf(Math.max(...values));
      }),
      'the fastest first');
  assert.equal(
      await page.locator('#runs-table tbody tr').first().getByText('209,999').count(), 1,
      'separators');
}

// Any table that stands in the page.
export async function checkTable(page, selector) {
  const heads = page.locator(`${selector} thead th`);
  const last = await heads.count() - 1;
  const column = async () =>
      (await page.locator(`${selector} tbody tr > :nth-child(${last + 1})`)
           .allTextContents())
          .map(parseFloat);
  const before = await column();
  await heads.nth(last).locator('button').click();
  assert.deepEqual(
      await column(), [...before].sort((one, other) => one - other),
      `${selector} does not sort`);
}
