// The stretch of time that is shown. Timelines that share one move together.
PW.Axis = class {
  constructor(low, high) {
    this.low = low;
    this.high = high > low ? high : low + 1;
    this.start = this.low;
    this.end = this.high;
    this.listeners = [];
    this.pending = false;
  }

  // Once a frame, however often the axis has moved.
  changed() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      for (const listener of this.listeners) listener();
    });
  }

  set(start, end) {
    const whole = this.high - this.low;
    const length = Math.min(whole, Math.max(end - start, whole * 1e-9));
    const from = Math.min(Math.max(start, this.low), this.high - length);
    this.start = from;
    this.end = from + length;
    this.changed();
  }

  fit() {
    this.set(this.low, this.high);
  }

  // `at`: a time that stays where it is; `factor` below 1 shows less.
  zoom(factor, at = (this.start + this.end) / 2) {
    this.set(at - (at - this.start) * factor, at + (this.end - at) * factor);
  }

  // `share` of what is shown.
  pan(share) {
    const by = share * (this.end - this.start);
    this.set(this.start + by, this.end + by);
  }

  // Widens what there is to show.
  extend(high) {
    const fitted = this.start === this.low && this.end === this.high;
    this.high = Math.max(high, this.low + 1e-12);
    if (fitted)
      this.fit();
    else
      this.set(this.start, this.end);
  }

  // Ticks of an axis `width` pixels wide: unit and [time, label].
  ticks(width) {
    const [unit, size] =
        PW.unitFor(Math.max(Math.abs(this.start), Math.abs(this.end)));
    const step =
        PW.tickStep((this.end - this.start) / size / Math.max(2, width / 110));
    const ticks = [];
    const first = Math.ceil(this.start / size / step - 1e-9);
    const digits = Math.max(
        6,
        Math.ceil(Math.log10(
            Math.max(Math.abs(this.end), 1e-300) / (this.end - this.start))) +
            4);
    for (let tick = first;
         tick * step * size <= this.end + 1e-9 * step * size &&
         ticks.length < 100;
         ++tick) {
      ticks.push([
        tick * step * size, PW.number(tick * step || 0, Math.min(17, digits))
      ]);
    }
    return {unit, ticks};
  }
};

// Pointer, wheel and keys of a canvas on an axis. `left` and `width()`: of the
// plot in pixels. `view` has what only a timeline has: hover, pick, step.
PW.steer = (canvas, axis, left, width, view) => {
  const timeAt = (x) =>
      axis.start + (x - left) / Math.max(1, width()) * (axis.end - axis.start);
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener('wheel', (event) => {
    // A plain wheel scrolls the page, as everywhere.
    if (event.ctrlKey || event.metaKey || event.altKey) {
      event.preventDefault();
      axis.zoom(
          Math.exp(Math.max(-0.5, Math.min(0.5, event.deltaY / 300))),
          timeAt(place(event)[0]));
    } else if (
        event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      axis.pan((event.deltaX || event.deltaY) / Math.max(1, width()));
    }
  }, {passive: false});
  let drag = null;
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    drag = {x: place(event)[0], start: axis.start, end: axis.end, moved: false};
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    const [x, y] = place(event);
    if (drag !== null) {
      const by = (drag.x - x) / Math.max(1, width()) * (drag.end - drag.start);
      drag.moved ||= Math.abs(drag.x - x) > 3;
      if (drag.moved) axis.set(drag.start + by, drag.end + by);
    }
    view.hover?.(x, y, event);
  });
  canvas.addEventListener('pointerup', (event) => {
    const [x, y] = place(event);
    if (drag !== null && !drag.moved) view.pick?.(x, y);
    drag = null;
  });
  canvas.addEventListener('pointercancel', () => {
    drag = null;
  });
  canvas.addEventListener('pointerleave', () => view.leave?.());
  canvas.addEventListener(
      'dblclick',
      (event) => axis.zoom(event.shiftKey ? 2 : 0.5, timeAt(place(event)[0])));
  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      '+': () => axis.zoom(0.5),
      '=': () => axis.zoom(0.5),
      '-': () => axis.zoom(2),
      '0': () => axis.fit(),
      'Home': () => axis.set(axis.low, axis.low + axis.end - axis.start),
      'End': () => axis.set(axis.high - (axis.end - axis.start), axis.high),
      'PageUp': () => axis.pan(-0.9),
      'PageDown': () => axis.pan(0.9),
      'a': () => axis.pan(-0.15),
      'd': () => axis.pan(0.15),
      'w': () => axis.zoom(0.7),
      's': () => axis.zoom(1 / 0.7),
      'ArrowLeft': () => view.step?.(-1) ?? axis.pan(-0.15),
      'ArrowRight': () => view.step?.(1) ?? axis.pan(0.15),
      'ArrowUp': () => view.row?.(-1),
      'ArrowDown': () => view.row?.(1),
      'Escape': () => view.leave?.(true),
      'n': () => view.next?.(1),
      'N': () => view.next?.(-1),
    };
    if (!(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  });
  return timeAt;
};
