// How fast a page with a large timeline is: node bench_timeline.js PAGE.html
// prints the size of the file, the time until the first picture, and the time
// of a frame while it zooms and moves. A benchmark, not a test
// (docs/dev/benchmarks.md, Pages).
import {statSync} from 'node:fs';
import {resolve} from 'node:path';
import {pathToFileURL} from 'node:url';
import {chromium} from 'playwright-core';

const file = resolve(process.argv[2]);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  headless: true,
  args: ['--no-sandbox', '--disable-gpu'],
});
const page = await browser.newPage({viewport: {width: 1400, height: 900}});
page.setDefaultTimeout(180000);
page.on('console', (message) => console.log(`console: ${message.text()}`));
page.on('pageerror', (error) => console.log(`error: ${error.message}`));
await page.goto(pathToFileURL(file).href);
await page.waitForFunction(
    () => document.documentElement.dataset.ready === '1');
const result = await page.evaluate(async () => {
  const axis = PW.axis;
  const timeline = PW.timelines[0];
  const frames = [];
  const step = async (action) => {
    action();
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    frames.push(timeline.drawMs);
  };
  const middle = axis.low + 0.4 * (axis.high - axis.low);
  for (let turn = 0; turn < 30; ++turn)
    await step(() => axis.zoom(0.7, middle));
  for (let turn = 0; turn < 20; ++turn) await step(() => axis.pan(0.1));
  for (let turn = 0; turn < 30; ++turn)
    await step(() => axis.zoom(1 / 0.7, middle));
  frames.sort((one, other) => one - other);
  return {
    operations: PW.runs[0].count,
    first_picture_ms: Math.round(PW.readyMs),
    median_frame_ms: Math.round(10 * frames[frames.length >> 1]) / 10,
    longest_frame_ms: Math.round(10 * frames.at(-1)) / 10,
  };
});
console.log(JSON.stringify(
    {megabytes: Math.round(statSync(file).size / 1e5) / 10, ...result}));
await browser.close();
