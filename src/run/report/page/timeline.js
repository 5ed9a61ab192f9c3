// Timeline: what each worker did in one of the chosen steps.
const laneLabels = {'draft training': 'draft model training', 'draft publish': 'draft model publish'};
const laneColours = {rollout: 0, update: 4, validation: 5, reward: 3, reference: 6, save: 7,
  'early gradients': 1, 'draft training': 2, 'draft publish': 6};

// Seconds of each lane, in which no later lane covers it, and of none.
function laneSeconds(step, lanes) {
  const seconds = new Map(lanes.map((lane) => [lane, 0]));
  let covered = 0;
  for (const worker of step.workers) {
    const edges = [];
    lanes.forEach((lane, kind) => {
      const spans = worker.spans[lane] || [];
      for (let i = 0; i < spans.length; i += 2) edges.push([spans[i], kind, 1], [spans[i] + spans[i + 1], kind, -1]);
    });
    edges.sort((a, b) => a[0] - b[0]);
    const open = lanes.map(() => 0);
    edges.forEach(([at, kind, change], i) => {
      open[kind] += change;
      const next = i + 1 < edges.length ? edges[i + 1][0] : at;
      const top = open.findLastIndex((count) => count > 0);
      if (top < 0 || next === at) return;
      seconds.set(lanes[top], seconds.get(lanes[top]) + (next - at) / 1e6);
      covered += (next - at) / 1e6;
    });
  }
  const all = step.workers.length * step.length / 1e6;
  return {seconds, all, waiting: Math.max(0, all - covered)};
}

function drawTimeline(box, timeline, step) {
  const many = step.workers.length > 12;
  const rows = step.workers.flatMap((worker) => [el('span', null, 'worker ' + worker.worker),
    el('div', {class: 'lane'}, timeline.lanes.flatMap((lane) => {
      const spans = worker.spans[lane] || [];
      const bars = [];
      for (let i = 0; i < spans.length; i += 2)
        bars.push(el('i', {title: `${laneLabels[lane] || lane}: ${duration(spans[i + 1] / 1e6)} from ${duration(spans[i] / 1e6)}`,
          style: {left: 100 * spans[i] / step.length + '%', width: 100 * spans[i + 1] / step.length + '%',
            '--key': `var(--c${laneColours[lane] + 1})`}}));
      return bars;
    }))]);
  const seconds = step.length / 1e6;
  const size = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600].find((one) => seconds / one <= 8) || seconds / 4;
  const ticks = [];
  for (let at = 0; at <= seconds; at += size) ticks.push(el('span', {style: {left: 100 * at / seconds + '%'}}, +at.toFixed(2) + ' s'));
  const shares = laneSeconds(step, timeline.lanes);
  const key = (label, value, background) => value > 0 ? el('button', {type: 'button', disabled: true, title: duration(value)},
    el('i', {class: 'fill', style: {'--key': background}}), label, el('b', null, percent(value / shares.all))) : null;
  box.replaceChildren(el('div', {class: 'lanes' + (many ? ' many' : '')}, rows, el('div', {class: 'ticks'}, ticks)),
    el('div', {class: 'keys'}, timeline.lanes.map((lane) =>
      key(laneLabels[lane] || lane, shares.seconds.get(lane), `var(--c${laneColours[lane] + 1})`)),
    key('waiting', shares.waiting, 'var(--wait)')));
}

function timelineCard() {
  const choices = runs.flatMap((run) => run.timeline ? run.timeline.steps.map((step) => ({run, step})) : []);
  if (!choices.length) return null;
  const box = el('div');
  const show = () => { const {run, step} = choices[select.value]; drawTimeline(box, run.timeline, step); };
  const move = (by) => { select.value = Math.min(choices.length - 1, Math.max(0, +select.value + by)); show(); };
  const select = el('select', {id: 'timeline-step', 'aria-label': 'Step', onchange: show}, choices.map(({run, step}, i) => el('option', {value: i},
    (isSingle ? '' : run.label + ', ') + `step ${step.step} (${duration(step.length / 1e6)})`)));
  select.value = String(Math.min(1, choices.length - 1));
  show();
  return el('div', {class: 'card', style: {'margin-bottom': '14px'}}, el('div', {class: 'head'}, el('h3', null, 'Workers over time'),
    el('button', {type: 'button', 'aria-label': 'Previous step', onclick: () => move(-1)}, '‹'),
    select,
    el('button', {type: 'button', 'aria-label': 'Next step', onclick: () => move(1)}, '›')),
    el('p', {class: 'note'}, 'The first, last and slowest steps and some between, from the start of the rollout to that of the next one. timeline.json has all of them.'), box);
}
