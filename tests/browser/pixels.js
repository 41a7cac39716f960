// Usage: pixels.js FOLDER...: replaces each picture and page in these folders by a
// checksum of what Chromium shows of it.
import {createHash} from 'node:crypto';
import {readdirSync, readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {pathToFileURL} from 'node:url';

import {chromium} from 'playwright-core';

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--no-sandbox'],
});
const page = await browser.newPage({viewport: {width: 1400, height: 1000}});
for (const folder of process.argv.slice(2)) {
  for (const entry of readdirSync(
      folder, {recursive: true, withFileTypes: true})) {
    const path = join(entry.path, entry.name);
    if (!entry.isFile()) continue;
    const text = readFileSync(path, 'utf8');
    if (/^\s*<!doctype html/i.test(text)) {
      await page.goto(pathToFileURL(path).href);
    } else if (/^\s*(<\?xml|<svg)/i.test(text)) {
      await page.setContent(`<body style="margin: 0">${text}`);
    } else {
      continue;
    }
    const image = await page.screenshot({fullPage: true, timeout: 120e3});
    const sum = createHash('sha256').update(image).digest('hex');
    writeFileSync(path, `pixels ${sum}\n`);
  }
}
await browser.close();
