// Charts: a card with a plot of uPlot, its keys with the values at the cursor, and the same numbers
// as a table. A chart of one run shows all its series; one of several runs shows one series, which
// the reader selects, for each run.
//
// spec: {title, note, unit, kind: 'lines' | 'stack' | 'xy', wide, series: [{label, values(run),
//        style: 'line' | 'dots' | 'points' | 'dash', colour, error(run), hidden}], x(run), xLabel,
//        xNames}
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (i) => css('--c' + (i % 8 + 1));
const charts = [];
let smoothing = 1;  // steps
// Lines over steps are drawn smoothed; keys and tables have the numbers of the run.
const isSmoothed = (spec, one) => smoothing > 1 && spec.kind !== 'xy' && one.style === 'line' && !one.label.includes('mean of');
const WHOLE = [1, 2, 5].flatMap((one) => [0, 1, 2, 3, 4, 5, 6].map((power) => one * 10 ** power)).sort((a, b) => a - b);
const INTERVAL = 1.96;  // standard errors of a 95 % interval

class ChartCard {
  constructor(spec) {
    this.spec = spec;
    this.choices = spec.series.filter((one) => runs.some((run) => known(one.values(run)).length));
    this.choice = Math.max(0, this.choices.findIndex((one) => one.main));
    this.hiddenKeys = new Set(this.choices.filter((one) => one.hidden && isSingle).map((one) => one.label));
    this.plotBox = el('div', {class: 'plot', tabindex: 0, role: 'img'});
    this.keys = el('div', {class: 'keys'});
    this.drawnNote = el('span', {class: 'drawn'});
    this.tableBox = el('div', {class: 'scroll', hidden: true, tabindex: 0, role: 'region', 'aria-label': 'Numbers of ' + spec.title});
    this.tableButton = el('button', {type: 'button', class: 'quiet', 'aria-pressed': 'false',
      title: 'The numbers of this chart', onclick: () => this.toggleTable()}, 'Table');
    const select = isSingle || this.choices.length < 2 ? null : el('select',
      {'aria-label': 'Series of ' + spec.title, onchange: (event) => { this.choice = +event.target.value; this.draw(); }},
      this.choices.map((one, i) => el('option', {value: i, selected: i === this.choice}, one.label)));
    this.card = el('div', {class: 'card chart' + (spec.wide ? ' wide' : '')},
      el('div', {class: 'head'}, el('h3', null, spec.title), select, this.tableButton),
      spec.note ? el('p', {class: 'note'}, spec.note) : null,
      this.plotBox, this.tableBox, this.keys);
    this.plotBox.addEventListener('keydown', (event) => this.onKey(event));
    this.plotBox.addEventListener('blur', () => { if (this.plot) this.plot.setCursor({left: -10, top: -10}); });
    this.seen = false;
    if (this.isEmpty()) return;
    charts.push(this);
    seenObserver.observe(this.card);
  }

  isEmpty() { return this.choices.length === 0; }

  // The series to draw: {label, style, colour, values, error}, over one horizontal axis.
  table() {
    const spec = this.spec;
    const x = (run) => spec.x ? spec.x(run) : xs(run);
    if (isSingle) {
      const run = runs[0];
      return {x: x(run), series: this.choices.map((one, i) => ({
        label: one.label, style: one.style || 'line', colour: one.colour ?? i,
        values: one.values(run), error: one.error ? one.error(run) : null}))};
    }
    const one = this.choices[this.choice];
    const used = runs.map((run, i) => ({run, i})).filter(({run}) => known(one.values(run)).length);
    const tables = used.map(({run}) => {
      const at = x(run), values = one.values(run), error = one.error ? one.error(run) : null;
      const keep = at.map((_, i) => i).filter((i) => is(values[i]));
      return [keep.map((i) => at[i]), keep.map((i) => values[i]), keep.map((i) => error ? error[i] ?? null : null)];
    });
    const joined = uPlot.join(tables);
    return {x: joined[0], series: used.map(({run, i}, k) => ({
      label: run.label, style: one.style === 'dots' ? 'line' : one.style || 'line', colour: i,
      values: joined[1 + 2 * k], error: one.error ? joined[2 + 2 * k] : null}))};
  }

  draw() {
    if (!this.seen) return;
    if (this.plot) this.plot.destroy();
    this.data = this.table();
    const stacked = this.spec.kind === 'stack' && isSingle;
    this.drawn = this.data.series.map((one) => isSmoothed(this.spec, one) ? rollingMean(one.values, smoothing) : one.values);
    this.drawnNote.textContent = this.data.series.some((one) => isSmoothed(this.spec, one)) ? `drawn: means of ${smoothing} steps` : '';
    if (stacked) this.stack();
    this.plot = new uPlot(this.options(stacked), [this.data.x, ...this.drawn], this.plotBox);
    this.drawKeys(stacked);
    this.showValues(null);
    if (!this.tableBox.hidden) this.fillTable();
  }

  // The sums to draw, from the bottom, of the series that are shown. The highest is drawn first,
  // and each lower one over it.
  stack() {
    let below = this.data.x.map(() => 0);
    this.drawn = this.data.series.map((one) => {
      if (!this.hiddenKeys.has(one.label)) {
        const values = stretchMeans(one.values);
        below = below.map((v, i) => v + values[i]);
      }
      return below;
    }).reverse();
    const length = stretchLength(this.data.x.length);
    this.drawnNote.textContent = length > 1 ? `drawn: means of ${length} steps` : '';
  }

  // Bars over steps; over tokens and time a step takes the stretch before its end.
  stackPaths() {
    return axis === 'steps' ? uPlot.paths.bars({size: [0.92, 60], gap: 0}) : uPlot.paths.stepped({align: -1});
  }

  xRange(low, high, stacked) {
    if (low === null) return [0, 1];
    // Room for half a bar, or for the caps of intervals at both ends.
    const half = (stacked && axis === 'steps') || low === high ? 0.6
      : this.data.series.some((one) => one.error) ? (high - low) / 80 : 0;
    return [low - half, high + half];
  }

  // A place of the horizontal axis; with names it is a place in their list.
  xText(at, shorten = (text) => text) {
    const {kind, xNames} = this.spec;
    return xNames ? xNames[at] ?? '' : shorten((kind === 'xy' ? short : axes[axis].format)(at));
  }

  options(stacked) {
    const grid = {stroke: css('--grid'), width: 1};
    const font = '12px system-ui, "DejaVu Sans", sans-serif';
    const line = {stroke: css('--dim'), font, grid, ticks: {...grid, size: 4}, gap: 4};
    const yFormat = format(this.spec.unit);
    return {
      width: Math.max(200, this.plotBox.clientWidth), height: this.plotBox.clientHeight,
      padding: [10, 22, 0, 0], legend: {show: false},
      cursor: {points: {size: 7}, drag: {x: true, y: false},
        sync: this.spec.kind === 'xy' ? undefined : {key: 'x', scales: ['x', null]}},
      scales: {x: {time: false, range: (u, low, high) => this.xRange(low, high, stacked)},
        y: {range: (u, low, high) => this.yRange(u, low, high)}},
      axes: [{...line, space: 70, size: 30, incrs: axis === 'steps' || this.spec.kind === 'xy' ? WHOLE : undefined,
          values: (u, ticks) => ticks.map((at) => this.xText(at, tick))},
        {...line, values: (u, ticks) => ticks.map((at) => tick(yFormat(at))), size: (u, labels) =>
          14 + 7 * Math.max(3, ...(labels || []).map((label) => label.length))}],
      series: [{}, ...(stacked ? [...this.data.series].reverse().map((one) => this.stackOptions(one))
        : this.data.series.map((one) => this.seriesOptions(one)))],
      hooks: {setCursor: [(u) => this.showValues(u.cursor.idx)],
        draw: [(u) => this.drawErrors(u)]},
    };
  }

  paint(one, alpha) {
    const hex = colour(one.colour);
    return hex + Math.round(255 * alpha).toString(16).padStart(2, '0');
  }

  stackOptions(one) {
    return {label: one.label, stroke: colour(one.colour), fill: colour(one.colour), width: 0,
      paths: this.stackPaths(), points: {show: false}};
  }

  seriesOptions(one) {
    const points = one.style === 'points' || known(one.values).length < 2;
    return {
      label: one.label, show: !this.hiddenKeys.has(one.label), spanGaps: true,
      stroke: colour(one.colour), width: one.style === 'dots' ? 0 : this.data.x.length > 400 && smoothing === 1 ? 1.3 : 2,
      dash: one.style === 'dash' ? [6, 5] : undefined,
      paths: one.style === 'dots' ? () => null : undefined,
      points: {show: points || one.style === 'dots' || undefined, size: one.style === 'dots' ? 5 : 7,
        width: 1, fill: one.style === 'dots' ? this.paint(one, 0.6) : colour(one.colour),
        stroke: one.style === 'dots' ? 'transparent' : colour(one.colour)},
    };
  }

  yRange(u, low, high) {
    if (low === null || high === null) return [0, 1];
    this.data.series.forEach((one) => {
      if (!one.error || this.hiddenKeys.has(one.label)) return;
      one.values.forEach((value, i) => {
        if (!is(value) || !is(one.error[i])) return;
        low = Math.min(low, value - INTERVAL * one.error[i]);
        high = Math.max(high, value + INTERVAL * one.error[i]);
      });
    });
    if (this.spec.kind === 'stack' || this.spec.zero) low = Math.min(0, low);
    if (this.spec.unit === 'share' && this.spec.kind === 'stack') high = Math.max(high, Math.min(1, high * 1.02));
    const pad = (high - low || Math.abs(high) || 1) * 0.06;
    return [low === 0 && (this.spec.zero || this.spec.kind === 'stack') ? 0 : low - pad, high + pad];
  }

  drawErrors(u) {
    const scale = devicePixelRatio || 1;
    this.data.series.forEach((one) => {
      if (!one.error || this.hiddenKeys.has(one.label)) return;
      u.ctx.save();
      u.ctx.strokeStyle = colour(one.colour);
      u.ctx.lineWidth = 1.5 * scale;
      u.ctx.beginPath();
      u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
      u.ctx.clip();
      u.ctx.beginPath();
      one.values.forEach((value, i) => {
        if (!is(value) || !is(one.error[i])) return;
        const x = u.valToPos(this.data.x[i], 'x', true), half = INTERVAL * one.error[i], cap = 4 * scale;
        const top = u.valToPos(value + half, 'y', true), bottom = u.valToPos(value - half, 'y', true);
        u.ctx.moveTo(x, top); u.ctx.lineTo(x, bottom);
        for (const y of [top, bottom]) { u.ctx.moveTo(x - cap, y); u.ctx.lineTo(x + cap, y); }
      });
      u.ctx.stroke();
      u.ctx.restore();
    });
  }

  drawKeys(stacked) {
    this.at = el('span', {class: 'at'});
    this.values = this.data.series.map(() => el('b'));
    this.keys.replaceChildren(this.at, this.drawnNote, ...this.data.series.map((one, i) => el('button', {
      type: 'button', title: 'Show or hide', 'aria-pressed': String(!this.hiddenKeys.has(one.label)),
      onclick: () => this.toggleKey(one.label)},
      el('i', {class: stacked ? 'fill' : one.style === 'dots' || one.style === 'points' ? 'dots' : one.style,
        style: {'--key': colour(one.colour)}}), one.label, this.values[i])));
  }

  toggleKey(label) {
    if (!this.hiddenKeys.delete(label)) this.hiddenKeys.add(label);
    this.draw();
    [...this.keys.querySelectorAll('button')][this.data.series.findIndex((one) => one.label === label)].focus();
  }

  // The values at an index; without one, the last ones.
  showValues(index) {
    if (!this.values) return;
    const yFormat = format(this.spec.unit);
    this.data.series.forEach((one, i) => {
      const value = is(index) ? one.values[index] : last(one.values);
      const error = one.error && is(index) ? one.error[index] : one.error ? last(one.error) : null;
      this.values[i].textContent = yFormat(value) +
        (is(value) && is(error) ? ' ± ' + yFormat(INTERVAL * error) : '');
      this.values[i].title = is(value) ? String(value) : '';
    });
    const label = this.spec.kind === 'xy' ? this.spec.xLabel : axes[axis].label;
    this.at.textContent = is(index) ? label + ' ' + this.xText(this.data.x[index]) : 'last value';
    this.plotBox.setAttribute('aria-label', this.spec.title + ', ' + this.at.textContent + ': ' +
      this.data.series.map((one, i) => one.label + ' ' + this.values[i].textContent).join(', '));
  }

  onKey(event) {
    if (!this.plot) return;
    const count = this.data.x.length;
    const now = is(this.plot.cursor.idx) && this.plot.cursor.left >= 0 ? this.plot.cursor.idx : count - 1;
    const next = {ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: count - 1,
      PageUp: now - 10, PageDown: now + 10}[event.key];
    if (event.key === 'Escape') return resetZoom();
    if (next === undefined) return;
    event.preventDefault();
    const index = Math.min(count - 1, Math.max(0, next));
    this.plot.setCursor({left: this.plot.valToPos(this.data.x[index], 'x'), top: 10});
  }

  toggleTable() {
    this.tableBox.hidden = !this.tableBox.hidden;
    this.plotBox.hidden = !this.tableBox.hidden;
    this.tableButton.setAttribute('aria-pressed', String(!this.tableBox.hidden));
    if (this.tableBox.hidden) this.draw(); else this.fillTable();
  }

  fillTable() {
    if (!this.data) return;
    const every = Math.ceil(this.data.x.length / 500);
    const label = this.spec.kind === 'xy' ? this.spec.xLabel : axes[axis].label;
    const rows = this.data.x.map((_, i) => i).filter((i) =>
      i % every === 0 && this.data.series.some((one) => is(one.values[i])));
    this.tableBox.replaceChildren(el('table', null,
      el('thead', null, el('tr', null, el('th', null, label), this.data.series.map((one) => el('th', null, one.label)))),
      el('tbody', null, rows.map((i) => el('tr', null, el('td', null, this.spec.xNames ? this.xText(this.data.x[i]) : String(this.data.x[i])),
        this.data.series.map((one) => el('td', null, is(one.values[i]) ? String(one.values[i]) : '')))))));
  }

  resize() {
    if (this.plot && !this.plotBox.hidden && this.plotBox.clientWidth > 0)
      this.plot.setSize({width: this.plotBox.clientWidth, height: this.plotBox.clientHeight});
  }
}

// Bars narrower than a few pixels are noise: a stack of a long run draws the mean of each stretch.
const stretchLength = (count) => Math.max(1, Math.ceil(count / 150));
function stretchMeans(values) {
  const length = stretchLength(values.length), means = [];
  for (let i = 0; i < values.length; i += length) {
    const part = values.slice(i, i + length);
    const value = sum(part) / part.length;
    for (let k = 0; k < part.length; ++k) means.push(value);
  }
  return means;
}

// A chart is drawn when it comes near the window.
const seenObserver = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const chart = charts.find((one) => one.card === entry.target);
    if (!entry.isIntersecting || chart.seen) continue;
    chart.seen = true;
    chart.draw();
  }
}, {rootMargin: '600px'});

function redrawAll() { for (const chart of charts) chart.draw(); }
function resetZoom() {
  for (const chart of charts)
    if (chart.plot && chart.spec.kind !== 'xy')
      chart.plot.setScale('x', {min: chart.data.x[0], max: chart.data.x[chart.data.x.length - 1]});
}
let resizing = 0;
addEventListener('resize', () => {
  cancelAnimationFrame(resizing);
  resizing = requestAnimationFrame(() => charts.forEach((chart) => chart.resize()));
});

// Makes a card wide that would stand alone in a row of two.
function fillRows(box) {
  let single = null;
  for (const card of box.children) {
    if (card.classList.contains('wide')) {
      if (single) single.classList.add('wide');
      single = null;
    } else {
      single = single ? null : card;
    }
  }
  if (single) single.classList.add('wide');
  return box;
}

// A grid of the charts that have data; null if none has.
function grid(...specs) {
  const cards = specs.map((spec) => new ChartCard(spec)).filter((chart) => !chart.isEmpty());
  return cards.length ? fillRows(el('div', {class: 'grid'}, cards.map((chart) => chart.card))) : null;
}
const metric = (label, name, more) => ({label, values: (run) => col(run, name), ...more});
