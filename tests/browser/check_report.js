// Opens every page of a folder in Chromium and checks what only a browser can
// tell: nothing is loaded from elsewhere, the console is silent, the parts are
// visible and fit. A page with an overview is a gallery. Usage: check_report.js FOLDER; screenshots go there too.
import assert from "node:assert/strict";
import {readdirSync} from "node:fs";
import {join, resolve} from "node:path";
import {pathToFileURL} from "node:url";
import {chromium} from "playwright-core";

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
  const base = join(folder, `${file.split("/").pop()}.${view.name}`);
  if (await page.locator("#overview").count() > 0) {
    await checkGallery(page);
  } else {
    await checkReport(page);
  }
  const [scrollWidth, clientWidth] = await page.evaluate(
      () => [document.documentElement.scrollWidth,
             document.documentElement.clientWidth]);
  assert(scrollWidth <= clientWidth, "the page scrolls sideways");
  await page.screenshot({path: `${base}.png`, fullPage: true});
  assert.deepEqual(trouble, []);
  await context.close();
}

// All pictures have one time axis, and each row of the table leads to one.
async function checkGallery(page) {
  const links = page.locator("#overview tbody a");
  const pictures = page.locator(".grid svg");
  assert(await links.count() > 1, "schedules in the overview");
  assert.equal(await links.count(), await pictures.count(), "a grid for each");
  for (let row = 0; row < await links.count(); ++row) {
    const target = await links.nth(row).getAttribute("href");
    assert.equal(await page.locator(`${target} .grid svg`).count(), 1, target);
  }
  const headers = await page.locator("#overview thead th").allTextContents();
  const bubble = headers.indexOf("bubble fraction, global");
  assert(bubble >= 0, `a column of bubbles: ${headers}`);
  const fractions = await page
      .locator(`#overview tbody tr > :nth-child(${bubble + 1})`)
      .allTextContents();
  const sorted = fractions.map(parseFloat);
  assert.deepEqual(sorted, [...sorted].sort((one, other) => one - other),
                   "the smallest bubble first");
  const widths = () => page.evaluate(
      () => [...document.querySelectorAll(".grid svg")].map((svg) => {
        const ticks = [...svg.querySelectorAll("text")].filter(
            (text) => text.textContent === "0" || text.textContent === "5");
        return [Math.round(svg.getBoundingClientRect().width), ticks.length > 0];
      }));
  for (const fit of [true, false]) {
    await page.locator("#fit").setChecked(fit);
    const all = await widths();
    assert.equal(new Set(all.map(([width]) => width)).size, 1, "one width");
    assert(all.every(([, ticks]) => ticks), "an axis under each");
  }
  const frame = await page.evaluate(
      () => [...document.querySelectorAll(".grid.scroll")].every(
          (box) => box.getBoundingClientRect().right <=
              document.documentElement.clientWidth));
  assert(frame, "wide pictures scroll in their own frame");
  await page.locator("#fit").setChecked(true);
}

async function checkReport(page) {
  for (const part of ["h1", "#headline .figure", "#grid svg", "#memory svg",
                      "#ranks table", "#how-to-read dl", "footer"]) {
    assert(await page.locator(part).first().isVisible(), `${part} is hidden`);
  }
  // Reports of a run with a model have a picture of memory over time.
  for (const picture of await page.locator("#memory-bytes svg").all()) {
    assert(await picture.isVisible(), "the picture of memory is hidden");
    assert(await picture.locator("path[fill]").count() > 2, "areas");
  }
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

  // No number is wider than the box that it is in.
  const wide = await page.evaluate(() => {
    const boxes = [...document.querySelectorAll("#grid rect.op")].map(
        (box) => box.getBoundingClientRect());
    const numbers = [...document.querySelectorAll("#grid svg text[font-size]")]
                        .filter((text) => /^\d+$/.test(text.textContent));
    return numbers.filter((text) => {
      const inner = text.getBoundingClientRect();
      return !boxes.some(
          (box) => box.left <= inner.left && inner.right <= box.right &&
              box.top <= inner.bottom && inner.top <= box.bottom);
    }).length;
  });
  assert.equal(wide, 0, "numbers that stick out of their boxes");

  await page.locator("#fit").check();
  const [grid, frame] = await page.evaluate(
      () => [document.querySelector("#grid svg").getBoundingClientRect().width,
             document.querySelector("#grid .scroll").clientWidth]);
  assert(grid <= frame + 1, "the grid does not fit when asked to");
}

const folder = resolve(process.argv[2]);
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
