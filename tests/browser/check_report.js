// Opens every page of a folder in Chromium and checks what only a browser can
// tell: nothing is loaded from elsewhere, the console is silent, the parts are
// visible and fit, hover, zoom, keys, search, sliders and filters do what they
// say. A page with an overview is a gallery, one with a table of runs is of
// `plot`; beside a page with sliders NAME.json has what they must show. Usage:
// check_report.js FOLDER; screenshots go there too.
import assert from "node:assert/strict";
import {
  existsSync, readFileSync, readdirSync, writeFileSync,
} from "node:fs";
import {join, resolve} from "node:path";
import {pathToFileURL} from "node:url";
import {chromium} from "playwright-core";

import {checkWithoutCharts} from "./check_charts.js";
import {
  checkHover, checkKeys, checkRuns, checkSearch, checkSliders, checkStreams, checkSweep,
  checkTable, ready,
} from "./check_page.js";

const ARGUMENTS = [
  "--no-sandbox", "--disable-gpu", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--no-first-run",
];

const VIEWS = [
  {name: "light", colorScheme: "light", width: 1400, height: 900},
  {name: "dark", colorScheme: "dark", width: 1400, height: 900},
  {name: "phone", colorScheme: "light", width: 390, height: 844},
];

// WCAG 2.1 contrast of two "rgb(r, g, b)" texts.
function contrast(one, other) {
  const luminance = (text) => {
    const [red, green, blue] = text.match(/[\d.]+/g).map((value) => {
      const share = Number(value) / 255;
      return share <= 0.04045 ? share / 12.92
                              : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const [dark, light] = [luminance(one), luminance(other)].sort(
      (left, right) => left - right);
  return (light + 0.05) / (dark + 0.05);
}

async function checkPage(browser, file, view, folder) {
  const context = await browser.newContext({
    colorScheme: view.colorScheme,
    viewport: {width: view.width, height: view.height},
  });
  const page = await context.newPage();
  const url = pathToFileURL(file).href;
  const trouble = [];
  page.on("console", (message) => trouble.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => trouble.push(`error: ${error.message}`));
  page.on("request", (request) => {
    const wanted = request.url();
    if (wanted !== url && !wanted.startsWith("data:")) {
      trouble.push(`request: ${wanted}`);
    }
  });
  await page.goto(url);
  await ready(page);
  const base = join(folder, `${file.split("/").pop()}.${view.name}`);
  if (await page.locator("#overview").count() > 0) {
    await checkGallery(page);
  } else if (await page.locator("#runs-data").count() > 0) {
    if (await page.locator("#uplot").count() > 0) {
      await (file.endsWith("sweep.html") ? checkSweep : checkRuns)(page);
    } else {
      await checkWithoutCharts(page);
    }
  } else {
    await checkReport(page);
    const expected = file.replace(/\.html$/, ".json");
    if (existsSync(expected)) {
      await checkSliders(page, JSON.parse(readFileSync(expected, "utf8")));
    }
  }
  // No text of a user has become a part of the page.
  assert.equal(await page.locator("warning, run, b.injected").count(), 0);
  // A page that has just been in print is laid out again first.
  const [scrollWidth, clientWidth] = await page.evaluate(async () => {
    scrollTo(0, 0);
    for (let frame = 0; frame < 3; ++frame) {
      await new Promise(requestAnimationFrame);
    }
    return [document.documentElement.scrollWidth,
            document.documentElement.clientWidth];
  });
  const wide = await page.evaluate(
      () => [...document.querySelectorAll("body *")]
          .filter((each) => each.closest(".scroll") === null &&
              each.getBoundingClientRect().right >
                  document.documentElement.clientWidth + 0.5)
          .map((each) => `${each.tagName}#${each.id}.${each.className}`));
  assert(scrollWidth <= clientWidth, `the page scrolls sideways: ${scrollWidth} of ${clientWidth}, ${wide}`);
  await page.screenshot({path: `${base}.png`, fullPage: true});
  assert.deepEqual(trouble, []);
  await context.close();
}

// All timelines have one axis, and each row of the table leads to one.
async function checkGallery(page) {
  const links = page.locator("#overview tbody a");
  assert(await links.count() > 1, "schedules in the overview");
  assert.equal(await links.count(),
               await page.evaluate(() => PW.timelines.length), "a timeline for each");
  for (let row = 0; row < await links.count(); ++row) {
    const target = await links.nth(row).getAttribute("href");
    assert.equal(await page.locator(`${target} canvas`).count(), 1, target);
    assert.equal(await page.locator(`${target} .grid svg`).count(), 1, target);
  }
  const headers = await page.locator("#overview thead th").allTextContents();
  const time = headers.findIndex((head) => head.startsWith("iteration"));
  assert(time >= 0, `a column of times: ${headers}`);
  const times = (await page
      .locator(`#overview tbody tr > :nth-child(${time + 1})`)
      .allTextContents()).map(parseFloat);
  assert.deepEqual(times, [...times].sort((one, other) => one - other),
                   "the fastest first");
  await checkTable(page, "#overview");
  const live = await page.locator("#uplot").count() > 0;
  assert.equal(await page.evaluate(() => PW.scatters.length), live ? 2 : 0);
  assert.equal(await page.locator("#trade .chart canvas").count(), live ? 2 : 0);
  assert.equal(await page.locator("#trade").isVisible(), live, "charts");
  assert.equal(await page.locator("#trade-figure svg").count(), 2);
  assert.equal(await page.locator("#trade-figure svg").first().isVisible(), !live,
               "the static figure");
  await checkStreams(page);
  await checkSearch(page);
  // One axis moves all.
  await page.evaluate(() => PW.axis.zoom(0.5));
  const widths = await page.evaluate(() => PW.timelines.map(
      (each) => [each.plotWidth, each.axis === PW.axis]));
  assert.equal(new Set(widths.map(String)).size, 1, "one width, one axis");
  await page.evaluate(() => PW.axis.fit());
  await checkStatic(page);
}

// In print there are the static pictures, whole, and labels that can be read.
async function checkStatic(page) {
  await page.emulateMedia({media: "print"});
  const pictures = await page.evaluate(
      () => [...document.querySelectorAll(".grid svg")].map((svg) => {
        const box = svg.getBoundingClientRect();
        const texts = [...svg.querySelectorAll("text")].map(
            (text) => text.getBoundingClientRect());
        return {
          width: box.width,
          right: Math.max(box.right, ...texts.map((text) => text.right)),
          page: document.documentElement.clientWidth,
        };
      }));
  assert(pictures.length > 0, "pictures");
  for (const {width, right, page: most} of pictures) {
    assert(width > 100, "hidden in print");
    assert(right <= most + 1, `cut on the right: ${right} of ${most}`);
  }
  assert.equal(await page.locator("canvas:visible").count(), 0, "canvases");
  await page.emulateMedia({media: "screen"});
}

async function checkReport(page) {
  for (const part of ["h1", "#headline .figure", "#timeline canvas",
                      "#memory svg", "#ranks table", "#how-to-read dl",
                      "footer"]) {
    assert(await page.locator(part).first().isVisible(), `${part} is hidden`);
  }
  assert(!await page.locator("#grid").isVisible(), "two pictures of one run");
  // Reports of a run with a model have memory over time.
  if (await page.locator("#memory-bytes").count() > 0) {
    assert(await page.locator("#memory-chart canvas").isVisible(), "memory");
    const colours = await page.evaluate(() => {
      const {canvas} = PW.memory;
      const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return new Set(new Uint32Array(data.buffer)).size;
    });
    assert(colours > 3, "areas");
  }
  await checkHover(page);
  await checkKeys(page);
  await checkSearch(page);
  await checkStreams(page);
  await checkTable(page, "#ranks table");
  await checkStatic(page);
  await checkPicture(page);
}

// The static picture, as it stands in print.
async function checkPicture(page) {
  await page.emulateMedia({media: "print"});
  const ranks = await page.locator("#ranks tbody tr").count();
  const labels = await page.locator("#grid svg text", {hasText: /^rank \d+$/})
                     .count();
  assert.equal(labels, ranks, "a row of the grid for each row of the table");
  assert(await page.locator("#grid rect.op").count() > 0, "boxes");

  const [ink, paper] = await page.evaluate(() => [
    getComputedStyle(document.querySelector("#grid svg text.ink")).fill,
    getComputedStyle(document.querySelector("#grid")).backgroundColor,
  ]);
  assert(contrast(ink, paper) >= 7, `labels ${ink} on ${paper}`);

  // No number is wider than the box that it is in, and no label of the legend
  // touches the next one.
  const [wide, touching] = await page.evaluate(() => {
    const boxes = [...document.querySelectorAll("#grid rect.op")].map(
        (box) => box.getBoundingClientRect());
    const numbers = [...document.querySelectorAll("#grid svg text[font-size]")]
                        .filter((text) => /^\d+$/.test(text.textContent));
    const items = [...document.querySelectorAll("#grid .legend > g")].map(
        (item) => item.getBoundingClientRect());
    return [
      numbers.filter((text) => {
        const inner = text.getBoundingClientRect();
        return !boxes.some(
            (box) => box.left <= inner.left + 0.1 && inner.right <= box.right + 0.1 &&
                box.top <= inner.bottom && inner.top <= box.bottom);
      }).length,
      items.filter((item, index) => index > 0 && item.top < items[index - 1].bottom &&
          item.left < items[index - 1].right + 4).length,
    ];
  });
  assert.equal(wide, 0, "numbers that stick out of their boxes");
  assert.equal(touching, 0, "labels of the legend that touch");
  await page.emulateMedia({media: "screen"});
}

const folder = resolve(process.argv[2]);
// What a build without npm writes: the same pages without uPlot.
for (const name of readdirSync(folder)) {
  if (!name.endsWith(".html")) continue;
  const page = readFileSync(join(folder, name), "utf8");
  const bare = page.replace(/<script id="uplot">[^]*?<\/script>\n/, "");
  if (bare === page) continue;
  writeFileSync(join(folder, name.replace(/html$/, "bare.html")), bare);
}
const pages = readdirSync(folder).filter((name) => name.endsWith(".html"));
assert(pages.length > 0, `no pages in ${folder}`);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  args: ARGUMENTS,
});
try {
  for (const name of pages) {
    for (const view of VIEWS) {
      await checkPage(browser, join(folder, name), view, folder);
      console.log(`ok ${name} ${view.name}`);
    }
  }
} finally {
  await browser.close();
}
