// The data of a page: one JSON object, and beside it one packed block of
// columns, which sim/report/page_data.h describes.
'use strict';
const PW = {};

PW.WIDTHS = {
  f64: 8,
  u32: 4,
  i32: 4,
  u16: 2,
  u8: 1
};
PW.TYPES = {
  f64: Float64Array,
  u32: Uint32Array,
  i32: Int32Array,
  u16: Uint16Array,
  u8: Uint8Array,
};

// Reads a column. The lowest bytes of all values come first, then the next
// ones: that is what makes it small when packed.
PW.column = (block, ref) => {
  const width = PW.WIDTHS[ref.t];
  const out = new Uint8Array(ref.n * width);
  for (let byte = 0; byte < width; ++byte) {
    const from = ref.at + byte * ref.n;
    for (let index = 0, to = byte; index < ref.n; ++index, to += width) {
      out[to] = block[from + index];
    }
  }
  const values = new PW.TYPES[ref.t](out.buffer);
  if (ref.d) {  // differences of neighbours, modulo the type
    for (let index = 1; index < ref.n; ++index)
      values[index] += values[index - 1];
  }
  return values;
};

// Replaces every reference to a column by the column.
PW.resolve = (block, value) => {
  if (Array.isArray(value)) return value.map((each) => PW.resolve(block, each));
  if (value === null || typeof value !== 'object') return value;
  if (typeof value.t === 'string' && typeof value.at === 'number' &&
      value.t in PW.WIDTHS) {
    return PW.column(block, value);
  }
  return Object.fromEntries(Object.entries(value).map(
      ([key, each]) => [key, PW.resolve(block, each)]));
};

PW.load = async () => {
  const json = document.getElementById('pw-data');
  if (json === null) return null;
  const text = atob(document.getElementById('pw-block').textContent);
  const packed = new Uint8Array(text.length);
  for (let index = 0; index < text.length; ++index) {
    packed[index] = text.charCodeAt(index);
  }
  let block = packed;
  if (packed.length > 0) {
    const stream = new Blob([packed]).stream().pipeThrough(
        new DecompressionStream('gzip'));
    block = new Uint8Array(await new Response(stream).arrayBuffer());
  }
  const data = JSON.parse(json.textContent);
  PW.inUnits = data.inUnits === true;
  return PW.resolve(block, data);
};

// Words and numbers.

// Times are units of a pass that nobody has given a time.
PW.inUnits = false;

PW.unitFor = (seconds) => {
  if (PW.inUnits) return ['units', 1];
  const size = Math.abs(seconds);
  if (size === 0 || size >= 1) return ['s', 1];
  if (size >= 1e-3) return ['ms', 1e-3];
  if (size >= 1e-6) return ['us', 1e-6];
  return ['ns', 1e-9];
};

PW.number = (value, digits = 6) => {
  const text = Number(value).toPrecision(digits);
  return text.includes('e') ? text :
      text.includes('.')    ? text.replace(/\.?0+$/, '') :
                              text;
};

// As WithSeparators: "268,319".
PW.grouped = (value) => Math.abs(value) < 1e4 || Math.abs(value) >= 1e15 ?
    PW.number(value) :
    Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ',');

// What a column is called: "Peak memory, GiB".
PW.titleOf = (column, unit = '') => {
  const words = column.title ?? column.name;
  return unit === '' ? words : `${words}, ${unit}`;
};

PW.seconds = (value, digits = 6) => {
  const [name, size] = PW.unitFor(value);
  return `${PW.number(value / size, digits)} ${name}`;
};

PW.bytes = (value) => {
  for (const [name, size] of [
           ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 1024]]) {
    if (Math.abs(value) >= size) return `${PW.number(value / size, 4)} ${name}`;
  }
  return `${PW.number(value, 4)} B`;
};

PW.percent = (value) => `${(100 * value).toFixed(2)} %`;

// A step of 1, 2 or 5 times a power of ten.
PW.tickStep = (wanted) => {
  const power = 10 ** Math.floor(Math.log10(wanted));
  for (const factor of [1, 2, 5]) {
    if (factor * power >= wanted * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
};

PW.element = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on'))
      node.addEventListener(key.slice(2), value);
    else if (value !== false && value !== null)
      node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children);
  return node;
};

PW.cssColour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();

PW.rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// The first index from `low` on where `before` no longer holds.
PW.search = (low, high, before) => {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (before(middle))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
};
