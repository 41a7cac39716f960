// Checks of the charts of a page; as check_page.js.
import assert from 'node:assert/strict';

// A chart of uPlot: a rectangle zooms and a double click shows all again,
// hovering names the run, keys go along the front, error bars are where runs
// have a range.
export async function checkChart(page) {
  const over = page.locator('#scatter .u-over').first();
  await over.scrollIntoViewIfNeeded();
  const box = await over.boundingBox();
  const width = () => page.evaluate(() => {
    const {min, max} = PW.scatters[0].chart.scales.x;
    return max - min;
  });
  const whole = await width();
  await page.mouse.move(box.x + 0.2 * box.width, box.y + 0.2 * box.height);
  await page.mouse.down();
  await page.mouse.move(
      box.x + 0.6 * box.width, box.y + 0.8 * box.height, {steps: 4});
  await page.mouse.up();
  await page.waitForFunction(
      (all) => {
        const {min, max} = PW.scatters[0].chart.scales.x;
        return Math.abs((max - min) / all - 0.4) < 0.02;
      },
      whole, {timeout: 5000});
  await over.dblclick({position: {x: 5, y: 5}});
  await page.waitForFunction(
      (all) => {
        const {min, max} = PW.scatters[0].chart.scales.x;
        return Math.abs((max - min) / all - 1) < 1e-9;
      },
      whole, {timeout: 5000});
  // A run that no other is near to, so that the place tells which it is.
  const {row, x, y, name} = await page.evaluate(() => {
    const chart = PW.scatters[0];
    const away = (one, other) => Math.hypot(
        ...chart.at(one).map((place, axis) => place - chart.at(other)[axis]));
    const row = chart.usable.find(
        (one) => chart.usable.every(
            (other) => other === one || away(one, other) > 3));
    const [x, y] = chart.at(row);
    return {row, x, y, name: chart.data.names[row]};
  });
  const now = await page.locator('#scatter .u-over').first().boundingBox();
  await page.mouse.move(now.x + x, now.y + y);
  const tip = page.locator('#scatter .tip').first();
  assert(await tip.isVisible(), 'a tip');
  assert.equal(await tip.locator('b').textContent(), name, `run ${row}`);
  await checkErrorBars(page);
  await checkChartKeys(page);
}

// What the chart puts on its canvas, against the numbers that
// tests/analysis/plot/figure_test.cc wrote: every third of eight runs has a range, from
// 0.9 to 1.2 times its bubble; that of the first is 0.3.
async function checkErrorBars(page) {
  const {bars, own, other} = await page.evaluate(async () => {
    const {chart} = PW.scatters[0];
    const lines = [];
    const pen = chart.ctx;
    let from = null;
    pen.moveTo = (...place) => {
      from = place;
      CanvasRenderingContext2D.prototype.moveTo.apply(pen, place);
    };
    pen.lineTo = (...place) => {
      if (from !== null) lines.push([...from, ...place]);
      from = place;
      CanvasRenderingContext2D.prototype.lineTo.apply(pen, place);
    };
    chart.redraw(false, false);
    await new Promise(requestAnimationFrame);
    delete pen.moveTo;
    delete pen.lineTo;
    const row = PW.scatters[0].data.names.findIndex(
        (name) => name.endsWith('>0'));
    const x = chart.valToPos(PW.scatters[0].value(PW.scatters[0].x, row), 'x',
                             true);
    const at = (percent) => chart.valToPos(percent, 'y', true);
    const has = (low, high) => lines.filter(
        ([x1, y1, x2, y2]) => [x1 - x, x2 - x, y1 - at(low), y2 - at(high)]
                                  .every((off) => Math.abs(off) < 0.01)).length;
    return {
      bars: PW.scatters[0].bars,
      own: has(0.9 * 30, 1.2 * 30),
      other: has(0.9 * 30, 1.1 * 30)
    };
  });
  assert.equal(bars, 3, 'error bars');
  assert.equal(own, 1, 'the bar of the first run');
  assert.equal(other, 0, 'a bar that is not there');
}

// 0 shows all and leaves the focus in the chart, so that the arrow keys go on.
async function checkChartKeys(page) {
  const chosen = () => page.evaluate(
      () => [PW.scatters[0].chosen, PW.scatters[0].front[0]]);
  await page.locator('#scatter canvas').first().focus();
  await page.keyboard.press('0');
  assert(
      await page.evaluate(
          () => document.activeElement === PW.scatters[0].chart.ctx.canvas),
      '0 loses the focus');
  await page.keyboard.press('ArrowRight');
  const [row, first] = await chosen();
  assert.equal(row, first, '0, then ArrowRight chooses a point');
  await page.evaluate(() => {
    PW.scatters[0].choose(-1);
    PW.scatters[0].tip.hidden = true;
  });
}

// Without uPlot the static figure stands where the charts would.
export async function checkWithoutCharts(page) {
  assert(!await page.locator('#charts').isVisible(), 'empty charts');
  assert(await page.locator('#figure svg').isVisible(), 'no static figure');
  assert(await page.locator('#runs-table').isVisible(), 'the table of runs');
}
