// Data: the runs of the report. col(run, name) is a column by step, null where a step has none.
const report = JSON.parse($('data').textContent);
const runs = report.runs;
const isSingle = runs.length === 1;
const axes = {
  steps: {label: 'step', format: short},
  tokens: {label: 'tokens', format: short},
  seconds: {label: 'time', format: duration},
};
let axis = 'steps';

for (const run of runs) {
  run.steps = run.metrics.steps;
  run.columns = new Map();
  run.names = Object.keys(run.metrics.columns);
  const labels = runs.filter((other) => other.name === run.name);
  run.label = labels.length > 1 ? run.folder : run.name;
}

function col(run, name) {
  if (!run.columns.has(name)) run.columns.set(name, has(run, name) ? unpacked(run, run.metrics.columns[name]) : null);
  return run.columns.get(name);
}
function unpacked(run, stored) {
  if (Array.isArray(stored)) return stored;
  const values = new Array(run.steps.length).fill(null);
  stored.at.forEach((index, i) => { values[index] = stored.values[i]; });
  return values;
}
// The mean of the five values around each step, over all steps of the run; not all metrics have it.
const meanOf5 = (run, name) => run.metrics.means[name] ? unpacked(run, run.metrics.means[name]) : null;
// Sum and mean over the whole run of a metric in seconds; the steps of a long run are not all drawn.
const total = (run, name) => run.metrics.sums[name] ? run.metrics.sums[name][0] : 0;
const average = (run, name) => run.metrics.sums[name] ? run.metrics.sums[name][0] / run.metrics.sums[name][1] : null;
const has = (run, name) => Object.hasOwn(run.metrics.columns, name);
const zeros = (run, name) => (col(run, name) || new Array(run.steps.length).fill(null)).map((v) => v ?? 0);
const last = (values) => { for (let i = (values || []).length - 1; i >= 0; --i) if (is(values[i])) return values[i]; return null; };
const first = (values) => (values || []).find(is) ?? null;
const known = (values) => (values || []).filter(is);
const xs = (run, mode = axis) => mode === 'steps' ? run.steps : run.metrics[mode];

// The mean of the values around each one, `window` of them with itself.
function rollingMean(values, window) {
  if (!values) return null;
  const half = Math.floor(window / 2);
  const at = [];
  values.forEach((value, i) => { if (is(value)) at.push(i); });
  const means = new Array(values.length).fill(null);
  at.forEach((index, i) => {
    means[index] = mean(at.slice(Math.max(0, i - half), i + half + 1).map((k) => values[k]));
  });
  return means;
}

// The held-out score: of all data sources, or of the first one.
function heldOutName(run) {
  if (has(run, 'main/validation_score')) return 'main/validation_score';
  return run.names.find((name) => name.startsWith('val-core/')) || 'main/validation_score';
}

// The acceptance length on held-out responses, of the draft model in use after a step.
function offlineAcceptance(run) {
  if (!run.offline_acceptance.length) return null;
  const by = new Map(run.offline_acceptance);
  return run.steps.map((step) => by.get(step) ?? null);
}
