// Sliders for the times of a run.
PW.whatIf = (root, run, timeline, replay, memory) => {
  const factors = {F: 1, B: 1, W: 1, hop: 1};
  const rows = [
    ['iteration_s', 'iteration time', PW.seconds],
    ['span_global_s', 'span, global', PW.seconds],
    ['span_per_rank_s', 'span, per rank', PW.seconds],
    ['bubble_global', 'bubble fraction, global', PW.percent],
    ['bubble_per_rank', 'bubble fraction, per rank', PW.percent],
  ];
  const cells = {};
  const body = PW.element('tbody');
  for (const [key, name] of rows) {
    cells[key] = [PW.element('td'), PW.element('td'), PW.element('td')];
    body.append(PW.element(
        'tr', {}, PW.element('th', {class: 'word', scope: 'row'}, name),
        ...cells[key]));
  }
  const steady = PW.element('p', {class: 'quiet'});
  const sliders = PW.element('div', {class: 'sliders'});
  const inputs = {};
  const update = () => {
    for (const [key, [range, number]] of Object.entries(inputs)) {
      range.value = factors[key];
      if (document.activeElement !== number) number.value = factors[key];
    }
    const now = replay.run(factors);
    PW.whatIfNow = now;
    const base = replay.base;
    for (const [key, , format] of rows) {
      cells[key][0].textContent = format(base[key]);
      cells[key][1].textContent = format(now[key]);
      cells[key][1].dataset.value = now[key];
      const exact = base[key] === 0 ? 0 : now[key] / base[key] - 1;
      const change = Math.abs(exact) < 5e-5 ? 0 : exact;
      cells[key][2].textContent =
          `${change < 0 ? '−' : '+'}${Math.abs(100 * change).toFixed(2)} %`;
    }
    steady.textContent = now.steady ?
        '' :
        'The period is not constant after as many iterations as the page has.';
    replay.apply(run);
    timeline.path = replay.criticalPath();
    timeline.axis.extend(Math.max(run.end, 0));
    memory?.stale(Object.values(factors).some((factor) => factor !== 1));
    timeline.draw();
  };
  for (const {key, name, seconds, least} of replay.sliders) {
    const set = (value) => {
      const factor = Number(value);
      if (!Number.isFinite(factor) || factor < least) return;
      factors[key] = factor;
      update();
    };
    const range = PW.element('input', {
      type: 'range',
      min: least,
      max: 3,
      step: 0.01,
      value: 1,
      id: `factor-${key}`,
      'aria-label': `${name}, factor`,
      oninput: (event) => set(event.target.value)
    });
    const number = PW.element('input', {
      type: 'number',
      min: least,
      step: 'any',
      value: 1,
      id: `factor-${key}-number`,
      'aria-label': `${name}, factor as a number`,
      oninput: (event) => {
        if (event.target.value !== '') set(event.target.value);
      }
    });
    inputs[key] = [range, number];
    sliders.append(
        PW.element(
            'label',
            {for: `factor-${key}`
            },
            name,
            seconds > 0 ?
                PW.element(
                    'span', {class: 'quiet'}, ` ${PW.seconds(seconds)}`) :
                ''),
        range, number);
  }
  const reset = PW.element(
      'button', {
        type: 'button',
        onclick: () => {
          for (const key of Object.keys(factors)) factors[key] = 1;
          document.activeElement?.blur?.();
          update();
        }
      },
      'all × 1');
  root.append(
      PW.element('p', {class: 'quiet'}, replay.note), sliders, reset,
      PW.element(
          'div', {class: 'scroll'},
          PW.element(
              'table', {id: 'what-if-table'},
              PW.element(
                  'thead', {},
                  PW.element(
                      'tr', {},
                      ...['', 'as run', 'with these times', 'change'].map(
                          (head) => PW.element('th', {}, head)))),
              body)),
      steady);
  update();
};
