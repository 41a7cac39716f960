// Puts the parts of the page together.

PW.themeButton = () => {
  const root = document.documentElement;
  const button = PW.element('button', {
    type: 'button',
    id: 'theme',
    class: 'screen',
    onclick: () => {
      const dark = root.dataset.theme === undefined ?
          matchMedia('(prefers-color-scheme: dark)').matches :
          root.dataset.theme === 'dark';
      root.dataset.theme = dark ? 'light' : 'dark';
      name();
      for (const draw of PW.redraws) draw();
    }
  });
  const name = () => {
    const dark = root.dataset.theme === undefined ?
        matchMedia('(prefers-color-scheme: dark)').matches :
        root.dataset.theme === 'dark';
    button.textContent = dark ? 'light' : 'dark';
    button.setAttribute(
        'aria-label', `switch to ${dark ? 'light' : 'dark'} colours`);
  };
  name();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    name();
    for (const draw of PW.redraws) draw();
  });
  document.querySelector('header')?.append(button);
};

PW.legendOf = (runs, page) => {
  const present = new Set();
  let pairs = false;
  let replicas = false;
  for (const run of runs) {
    for (const style of run.present) present.add(style);
    pairs ||= run.pairs > 0;
    replicas ||= run.directions > 1;
  }
  const line = PW.element('p', {class: 'legend-line'});
  for (const style of [...present].sort((a, b) => a - b)) {
    line.append(
        PW.swatch(page.styles[style].colour), `${page.styles[style].label} `);
  }
  const idle = PW.element('span', {class: 'swatch idle-swatch'});
  line.append(idle, 'idle ');
  if (runs.some((run) => run.vpp > 1))
    line.append(PW.element('span', {class: 'quiet'}, 'lighter: later chunk '));
  if (replicas)
    line.append(PW.element('span', {class: 'quiet'}, 'hatched: direction b '));
  if (pairs)
    line.append(
        PW.element('span', {class: 'quiet'}, 'halves: overlapped pair'));
  return line;
};

// Buttons, search and switches of timelines that share an axis.
PW.tools = (root, axis, timelines, page) => {
  const button = (text, label, action) => PW.element(
      'button',
      {type: 'button', 'aria-label': label, title: label, onclick: action},
      text);
  const count =
      PW.element('span', {class: 'quiet', id: 'found', 'aria-live': 'polite'});
  const search = PW.element('input', {
    type: 'search',
    id: 'search',
    size: 22,
    placeholder: 'F3, mb 5 rank 2, optimizer',
    oninput: () => {
      const found = timelines.map((each) => each.search(search.value));
      const total = found.reduce((sum, each) => sum + (each ?? 0), 0);
      count.textContent = found[0] === null ? '' : ` ${total} found`;
    },
    onkeydown: (event) => {
      if (event.key === 'Enter') {
        timelines
            .find((each) => each.found !== null && each.found.found.length > 0)
            ?.next(event.shiftKey ? -1 : 1);
        event.preventDefault();
      }
    }
  });
  const check = (id, text, action) => {
    const box = PW.element(
        'input', {type: 'checkbox', id, onchange: () => action(box.checked)});
    return PW.element('span', {class: 'switch'}, box, PW.element('label', {for: id
    }, ` ${text} `));
  };
  const line = PW.element(
      'p', {class: 'tools'}, button('+', 'zoom in (+)', () => axis.zoom(0.5)),
      button('−', 'zoom out (-)', () => axis.zoom(2)),
      button('‹', 'earlier (Page Up)', () => axis.pan(-0.5)),
      button('›', 'later (Page Down)', () => axis.pan(0.5)),
      button('all', 'the whole time (0)', () => axis.fit()),
      PW.element('label', {for: 'search'
      }, ' Search '), search, count);
  if (timelines.some(
          (each) => each.run.tracks.some((track) => track.stream !== 0))) {
    line.append(check(
        'streams', 'streams',
        (on) => timelines.forEach((each) => each.setStreams(on))));
  }
  if (timelines.some((each) => each.path !== null)) {
    line.append(check(
        'path', 'critical path',
        (on) => timelines.forEach((each) => each.setPath(on))));
  }
  root.append(
      line, PW.legendOf(timelines.map((each) => each.run), page),
      PW.element(
          'p', {class: 'quiet help'},
          'Drag to move; Ctrl and wheel, a double click or + and - to zoom; click a box and use the arrow keys to go from one to the next; / to search. Where boxes are narrower than a pixel, it has their mean colour.'));
  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' ||
        /^(input|select|textarea)$/i.test(event.target.tagName))
      return;
    event.preventDefault();
    search.focus();
  });
};

PW.startRuns = (data) => {
  const runs = data.runs.map((run) => new PW.Run(run, data));
  const axis = new PW.Axis(
      Math.min(...runs.map((run) => run.start)),
      Math.max(...runs.map((run) => run.end)));
  PW.runs = runs;
  PW.axis = axis;
  const several = runs.length > 1;
  PW.timelines = runs.map((run, index) => {
    const root = document.getElementById(`timeline-${index}`);
    const timeline = new PW.Timeline(
        root, run, axis, several ? {rowPx: 22, mostPx: 300, axisPx: 24} : {});
    if (run.path) {
      timeline.path = Array.from(
          run.path.rank,
          (rank, at) =>
              ({rank, start: run.path.start[at], end: run.path.end[at]}));
    }
    return timeline;
  });
  PW.redraws.push(() => PW.timelines.forEach((each) => each.draw()));
  const [run, timeline] = [runs[0], PW.timelines[0]];
  let memory = null;
  const memoryRoot = document.getElementById('memory-chart');
  if (run.memory && memoryRoot !== null) {
    PW.memory = memory = new PW.Memory(memoryRoot, run.memory, axis);
    PW.redraws.push(() => memory.draw());
  }
  const whatIf = document.getElementById('what-if-panel');
  if (run.replay && whatIf !== null) {
    const replay = PW.replay = new PW.Replay(run.replay);
    const own = replay.run({F: 1, B: 1, W: 1, hop: 1});
    if (PW.sameReport(own, replay.base)) {
      PW.whatIf(whatIf, run, timeline, replay, memory);
    } else {
      whatIf.append(
          'The replay of the page does not reach the numbers of this run, so it has no sliders.');
    }
  }
  PW.tools(document.getElementById('timeline-tools'), axis, PW.timelines, data);
};

// The command of a run, to copy; its page has the timeline.
PW.showCommand = (points, row) => {
  const root = document.getElementById('point');
  if (root === null || points.command === undefined) return;
  if (row < 0) {
    root.replaceChildren(PW.element(
        'p', {class: 'quiet'},
        'Click a point or a row for the command that runs it alone and draws its timeline.'));
    return;
  }
  const {common, own} = points.command;
  const text = `${common}${own[row]} --html run.html`;
  const copy = PW.element(
      'button', {
        type: 'button',
        onclick: () => navigator.clipboard?.writeText(text).then(() => {
          copy.textContent = 'copied';
        })
      },
      'copy');
  root.replaceChildren(
      PW.element(
          'p', {class: 'tools'}, PW.element('b', {}, points.names[row]), copy),
      PW.element('pre', {id: 'command', tabindex: 0}, text));
};

PW.startPoints = (points) => {
  for (const column of points.columns) {
    if (column.dict)
      column.values = Array.from(
          column.codes, (code) => code < 0 ? null : column.dict[code]);
  }
  const charts = [];
  const live = typeof uPlot === 'function';
  if (!live) document.documentElement.classList.add('without-charts');
  const choose = (row) => {
    PW.showCommand(points, row);
    charts.forEach((chart) => chart.choose(row));
    PW.table?.highlight(row);
  };
  const root = document.getElementById('scatter');
  if (live) points.charts.forEach(([x, y], index) => {
    const box = PW.element('div', {class: 'chart'});
    root.append(box);
    charts.push(new PW.Scatter(
        box, points, x, y,
        {id: `scatter-${index}`, picked: choose, front: points.front}));
  });
  PW.scatters = charts;
  PW.showCommand(points, -1);
  PW.redraws.push(() => charts.forEach((chart) => chart.draw()));
  const tableRoot = document.getElementById('runs-data');
  if (tableRoot === null) return;
  PW.table = new PW.DataTable(
      tableRoot, points,
      (rows) => charts.forEach(
          (chart) => chart.show(rows.size === points.count ? null : rows)),
      choose);
};

PW.start = async () => {
  PW.redraws = [];
  PW.themeButton();
  const data = await PW.load();
  if (data?.runs) PW.startRuns(data);
  if (data?.points) PW.startPoints(data.points);
  document.querySelectorAll('table').forEach((table, number) => {
    if (table.id === '') PW.enhanceTable(table, number);
  });
  document.documentElement.classList.add('live');
  PW.timelines?.forEach((each) => each.resize());
  PW.memory?.draw();
  PW.scatters?.forEach((each) => each.draw());
  requestAnimationFrame(() => {
    document.documentElement.dataset.ready = '1';
    PW.readyMs = performance.now();
  });
};

PW.start().catch((error) => {
  // Without what the browser lacks the static pictures stay.
  document.documentElement.classList.remove('live');
  console.error(error);
});
