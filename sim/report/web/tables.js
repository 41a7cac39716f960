// Tables that sort by a click on a head and filter by a text.

// "18.5 ms" and "3 GiB" by size; what is no number by its letters.
PW.sortKey = (text) => {
  const match = /^[−+-]?[\d.]+(?:e[+-]?\d+)?/i.exec(text.trim());
  if (match === null) return [1, text];
  const number = Number(match[0].replace('−', '-'));
  const unit = text.trim().slice(match[0].length).trim().split(/[\s/]/)[0];
  const size = {
    ns: 1e-9,
    us: 1e-6,
    ms: 1e-3,
    KiB: 1024,
    MiB: 2 ** 20,
    GiB: 2 ** 30,
    TiB: 2 ** 40
  }[unit] ??
      1;
  return [0, number * size];
};

PW.compareKeys = (one, other) => one[0] !== other[0] ?
    one[0] - other[0] :
    typeof one[1] === 'number' ?
    one[1] - other[1] :
    one[1].localeCompare(other[1], undefined, {numeric: true});

// "tp=2 bubble<10 zb": every word must hold. `columns`: lower-case names.
PW.rowFilter = (text, columns) => {
  const tests =
      text.toLowerCase()
          .split(/\s+/)
          .filter((word) => word !== '')
          .map((word) => {
            const match = /^([^<>=!]+)(<=|>=|!=|<|>|=)(.+)$/.exec(word);
            const index =
                match === null ? -1 : PW.columnNamed(match[1], columns);
            if (index < 0)
              return (cells) => cells.some(
                         (cell) =>
                             String(cell ?? '').toLowerCase().includes(word));
            const wanted = Number(match[3]);
            return (cells) => {
              const value = cells[index];
              const number = typeof value === 'number' ?
                  value :
                  PW.sortKey(String(value ?? ''))[1];
              const isNumber = typeof number === 'number';
              const equal = isNumber && !Number.isNaN(wanted) ?
                  number === wanted :
                  String(value ?? '').toLowerCase() === match[3];
              // An empty text would be 0 beside a number.
              if (!isNumber && match[2] !== '=' && match[2] !== '!=')
                return false;
              switch (match[2]) {
                case '=':
                  return equal;
                case '!=':
                  return !equal;
                case '<':
                  return number < wanted;
                case '>':
                  return number > wanted;
                case '<=':
                  return number <= wanted;
                default:
                  return number >= wanted;
              }
            };
          });
  return (cells) => tests.every((test) => test(cells));
};

// Exact name first, then the last word of a path, then one that begins or ends
// so, then one that holds it.
PW.columnNamed = (name, columns) => {
  for (const fits
           of [(each) => each === name, (each) => each.endsWith('.' + name),
              (each) => each.startsWith(name), (each) => each.endsWith(name),
              (each) => each.includes(name)]) {
    const index = columns.findIndex(fits);
    if (index >= 0) return index;
  }
  return -1;
};

PW.sortHeads = (heads, sort) => heads.forEach((head, index) => {
  const label = head.textContent;
  head.replaceChildren(PW.element(
      'button', {
        type: 'button',
        class: 'sort',
        onclick: () => {
          const down = head.getAttribute('aria-sort') === 'ascending';
          for (const each of heads) each.removeAttribute('aria-sort');
          head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
          sort(index, down);
        }
      },
      label));
});

PW.filterBox = (id, hint, change) => {
  const count = PW.element('span', {class: 'quiet', 'aria-live': 'polite'});
  const input = PW.element('input', {
    type: 'search',
    id,
    placeholder: hint,
    size: 32,
    oninput: () => change(input.value)
  });
  return {
    input,
    count,
    node: PW.element(
        'p', {class: 'tools'},
        PW.element(
            'label',
            {for: id
            },
            'Filter '),
        input, ' ', count)
  };
};

// Makes a table that stands in the page sortable, and a long one filterable.
PW.enhanceTable = (table, number) => {
  const body = table.tBodies[0];
  if (body === undefined || table.tHead === null) return;
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const columns = heads.map((head) => head.textContent.toLowerCase());
  // On a narrow screen a row is a list, each cell behind its head.
  for (const row of rows) {
    [...row.cells].forEach((cell, index) => {
      if (heads[index] !== undefined)
        cell.dataset.head = heads[index].textContent;
    });
  }
  if (rows.length < 2 || rows.some((row) => row.cells.length !== heads.length))
    return;
  PW.sortHeads(heads, (index, down) => {
    const keyed =
        rows.map((row) => [PW.sortKey(row.cells[index].textContent), row]);
    keyed.sort(
        ([one], [other]) =>
            down ? PW.compareKeys(other, one) : PW.compareKeys(one, other));
    body.append(...keyed.map(([, row]) => row));
  });
  if (rows.length < 6) return;
  const filter = PW.filterBox(
      `filter-${number}`, `words, or ${(columns[1] ?? columns[0]).split(' ')[0]}<5`, (text) => {
        const passes = PW.rowFilter(text, columns);
        let shown = 0;
        for (const row of rows) {
          row.hidden = !passes([...row.cells].map((cell) => cell.textContent));
          shown += row.hidden ? 0 : 1;
        }
        filter.count.textContent =
            text.trim() === '' ? '' : `${shown} of ${rows.length} rows`;
      });
  (table.closest('.scroll') ?? table).before(filter.node);
};

// Table that is in the data of the page: only rows that are looked at become
// nodes. `data`: {columns: [{name, values}], count}; `link`: by a row's number.
// Reports what passes to `changed`.
PW.DataTable = class {
  constructor(root, data, changed, picked) {
    this.data = data;
    this.changed = changed;
    this.shown = PW.PAGE_ROWS;
    this.order = Array.from({length: data.count}, (_, index) => index);
    this.columns = data.columns.map((column) => column.name.toLowerCase());
    // Numbers are shown, and filtered, in the unit that the head names.
    this.units = data.columns.map(
        ({name, text, values}) => text ?
            ['', 1] :
            PW.unitOfPath(
                name,
                values.reduce(
                    (most, value) => Math.max(most, Math.abs(value) || 0), 0)));
    const filter =
        PW.filterBox('filter-runs', 'words, or bubble<10 tp=8', (text) => {
          this.passes = PW.rowFilter(text, this.columns);
          this.refresh();
        });
    this.count = filter.count;
    this.passes = () => true;
    this.body = PW.element('tbody');
    const heads = data.columns.map(
        (column, index) => PW.element(
            'th', {class: column.text ? 'word' : '', title: column.name},
            PW.titleOf(column, this.units[index][0])));
    this.more = PW.element(
        'button', {
          type: 'button',
          onclick: () => {
            this.shown += PW.PAGE_ROWS;
            this.fill();
          }
        },
        'more rows');
    root.append(
        filter.node,
        PW.element(
            'div', {class: 'scroll table', tabindex: 0},
            PW.element(
                'table', {id: 'runs-table'},
                PW.element('thead', {}, PW.element('tr', {}, ...heads)),
                this.body)),
        this.more);
    PW.sortHeads(heads, (index, down) => {
      const values = data.columns[index].values;
      const key = (row) => typeof values[row] === 'number' ?
          (Number.isNaN(values[row]) ? [2, ''] : [0, values[row]]) :
          values[row] === null ? [2, ''] :
                                 [1, String(values[row])];
      this.order.sort(
          (one, other) => down ? PW.compareKeys(key(other), key(one)) :
                                 PW.compareKeys(key(one), key(other)));
      this.refresh();
    });
    this.picked = picked;
    this.refresh();
  }

  cells(row) {
    return this.data.columns.map(
        ({values}, index) => typeof values[row] === 'number' ?
            values[row] / this.units[index][1] :
            values[row]);
  }

  refresh() {
    this.rows = this.order.filter((row) => this.passes(this.cells(row)));
    this.count.textContent = `${this.rows.length} of ${this.data.count} runs`;
    this.shown = PW.PAGE_ROWS;
    this.fill();
    this.changed(new Set(this.rows));
  }

  fill() {
    this.body.replaceChildren(
        ...this.rows.slice(0, this.shown)
            .map(
                (row) => PW.element(
                    'tr', {'data-row': row, onclick: () => this.picked?.(row)},
                    ...this.cells(row).map(
                        (cell, index) => PW.element(
                            'td', {
                              class: this.data.columns[index].text ? 'word' : ''
                            },
                            PW.cellText(cell))))));
    this.more.hidden = this.shown >= this.rows.length;
  }

  highlight(row) {
    for (const each of this.body.rows)
      each.classList.toggle('chosen', Number(each.dataset.row) === row);
  }
};
PW.PAGE_ROWS = 200;

PW.cellText = (value) => value === null || Number.isNaN(value) ? '' :
    typeof value === 'number' ? PW.grouped(value) :
                                String(value);
