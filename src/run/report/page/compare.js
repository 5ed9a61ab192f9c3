// The overview: of one run its main numbers, of several runs a table and their scores at equal
// steps, tokens and seconds; and the options that differ.
function tile(name, value, note, exact, margin) {
  return el('div', {class: 'tile'}, el('span', null, name), el('b', {title: String(exact), 'data-value': String(exact)},
    value, margin ? el('small', null, ' ± ' + margin) : null), note ? el('span', null, note) : null);
}
const lastMean = (values, count = 5) => mean(known(values).slice(-count));
const firstMean = (values, count = 5) => mean(known(values).slice(0, count));

function tiles(run) {
  const heldOut = col(run, heldOutName(run)), error = last(col(run, 'val-aux/reward/standard_error'));
  const score = col(run, 'critic/score/mean'), loss = col(run, 'main/loss'), heldOutLoss = col(run, 'main/validation_loss');
  const isRl = known(score).length > 0;
  const idle = total(run, 'drafter/idle_seconds'), worked = idle - total(run, 'drafter/lost_seconds');
  const step = average(run, 'timing_s/step'), gen = total(run, 'timing_s/gen');
  const plain = total(run, 'rollout/plain_seconds');
  const half = Math.max(1, Math.min(5, Math.floor(known(score).length / 2)));
  return el('div', {class: 'tiles'},
    known(heldOut).length ? tile('Held-out score', short(last(heldOut)),
      known(heldOut).length > 1 ? `from ${short(first(heldOut))}; best ${short(Math.max(...known(heldOut)))}` : null, last(heldOut),
      is(error) ? short(INTERVAL * error) : null) : null,
    isRl ? tile('Training score', short(lastMean(score, half)), `from ${short(firstMean(score, half))}; means of ${half} steps`, lastMean(score, half)) : null,
    known(heldOutLoss).length ? tile('Held-out loss', short(last(heldOutLoss)), `from ${short(first(heldOutLoss))}`, last(heldOutLoss)) : null,
    !isRl && known(loss).length ? tile('Training loss', short(last(loss)), `from ${short(first(loss))}`, last(loss)) : null,
    has(run, 'response_length/p50') ? tile('Response length', short(last(col(run, 'response_length/p50'))),
      `median of the last step; 99th percentile ${short(last(col(run, 'response_length/p99')))}`, last(col(run, 'response_length/p50'))) : null,
    has(run, 'response_length/clip_ratio') ? tile('Truncated', percent(last(col(run, 'response_length/clip_ratio'))), 'of the last step', last(col(run, 'response_length/clip_ratio'))) : null,
    has(run, 'rollout/spec_accept_length') ? tile('Acceptance length', short(last(col(run, 'rollout/spec_accept_length'))), `from ${short(first(col(run, 'rollout/spec_accept_length')))}`, last(col(run, 'rollout/spec_accept_length'))) : null,
    plain > 0 && gen > 0 ? tile('Rollout speedup', (plain / gen).toFixed(2) + '×', 'estimated, against no speculation', plain / gen) : null,
    is(step) ? tile('Step', duration(step), gen > 0 ? `mean; ${percent(gen / total(run, 'timing_s/step'))} is rollout` : 'mean', step) : null,
    idle > 0 ? tile('Idle time used', percent(worked / idle), `of ${duration(idle)} in which workers waited`, worked / idle) : null,
    tile('Steps', short(last(run.steps)), `${short(last(run.metrics.tokens))} tokens in ${duration(last(run.metrics.seconds))}`, last(run.steps)));
}

// The last value of a series at or before a position on an axis.
function valueAt(run, values, mode, limit) {
  let found = null;
  xs(run, mode).forEach((x, i) => { if (x <= limit * (1 + 1e-12) && is(values[i])) found = values[i]; });
  return found;
}

function comparison() {
  const swatch = (run, i) => el('span', {class: 'run'}, el('i', {style: {'--key': colour(i)}}), run.label);
  const isLoss = !runs.some((run) => known(col(run, heldOutName(run))).length || known(col(run, 'critic/score/mean')).length);
  const heldOut = (run) => col(run, isLoss ? 'main/validation_loss' : heldOutName(run)) || [];
  const training = (run) => meanOf5(run, isLoss ? 'main/loss' : 'critic/score/mean') || [];
  const what = isLoss ? 'loss' : 'score';
  const limits = Object.keys(axes).map((mode) => [mode, Math.min(...runs.map((run) => last(xs(run, mode))))]);
  const cell = (value, text) => el('td', {title: is(value) ? String(value) : null}, text);
  const header = (names) => el('thead', null, el('tr', null, names.map((name) => el('th', null, name))));
  const best = (values) => known(values).length ? (isLoss ? Math.min : Math.max)(...known(values)) : null;
  const table = el('table', null, header(['run', `held-out ${what}`, 'best', 'first', `training ${what}`, 'steps', 'tokens', 'time', 'mean step']),
    el('tbody', null, runs.map((run, i) => {
      const step = average(run, 'timing_s/step'), error = last(col(run, 'val-aux/reward/standard_error'));
      const end = last(heldOut(run));
      return el('tr', null, el('td', null, swatch(run, i)), cell(end, short(end) + (is(error) && is(end) ? ' ± ' + short(INTERVAL * error) : '')),
        cell(best(heldOut(run)), short(best(heldOut(run)))), cell(first(heldOut(run)), short(first(heldOut(run)))),
        cell(last(training(run)), short(last(training(run)))), cell(last(run.steps), short(last(run.steps))),
        cell(last(run.metrics.tokens), short(last(run.metrics.tokens))), cell(last(run.metrics.seconds), duration(last(run.metrics.seconds))),
        cell(step, duration(step)));
    })));
  const equal = el('table', null, header(['run', ...limits.flatMap(([mode, limit]) => {
    const at = mode === 'steps' ? 'step ' + short(limit) : mode === 'tokens' ? short(limit) + ' tokens' : duration(limit);
    return [`held-out at ${at}`, `training at ${at}`];
  })]), el('tbody', null, runs.map((run, i) => el('tr', null, el('td', null, swatch(run, i)), limits.flatMap(([mode, limit]) =>
    [heldOut(run), training(run)].map((values) => { const value = valueAt(run, values, mode, limit); return cell(value, short(value)); }))))));
  return [el('div', {class: 'card'}, el('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Runs'}, table)),
    el('div', {class: 'card', style: {'margin-top': '14px'}}, el('div', {class: 'head'}, el('h3', null, 'At equal steps, tokens and time')),
      el('p', {class: 'note'}, `The last ${what} at or before the end of the shortest run on each axis; training: mean of five steps.`),
      el('div', {class: 'scroll', id: 'equal', tabindex: 0, role: 'region', 'aria-label': 'Runs at equal steps, tokens and time'}, equal))];
}

function optionSection() {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.options)))].sort();
  const differ = names.filter((name) => new Set(runs.map((run) => run.options[name])).size > 1);
  const table = (shown) => el('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Options'}, el('table', null,
    el('thead', null, el('tr', null, el('th', null, 'option'), runs.map((run) => el('th', {class: 'text'}, isSingle ? 'value' : run.label)))),
    el('tbody', null, shown.map((name) => el('tr', null, el('td', null, name),
      runs.map((run) => el('td', {class: 'text long'}, run.options[name] ?? '–')))))));
  const summaries = runs.filter((run) => run.summary);
  return section('run', isSingle ? 'Run' : 'Runs',
    differ.length ? el('div', {class: 'card'}, el('div', {class: 'head'}, el('h3', null, 'Options that differ')), table(differ)) : null,
    summaries.length ? el('div', {class: 'grid', style: {'margin-top': '14px'}}, summaries.map((run) => el('div', {class: 'card wide'},
      el('div', {class: 'head'}, el('h3', null, isSingle ? 'Summary' : 'Summary of ' + run.label)), el('pre', null, run.summary)))) : null,
    names.length ? el('details', {class: 'card', style: {'margin-top': '14px'}}, el('summary', null, `All ${names.length} options`), table(names)) : null);
}

function overview() {
  const notices = runs.filter((run) => run.left_out.length).map((run) => el('details', {class: 'notice', open: run.left_out.length < 4},
    el('summary', null, `${run.label}: ${run.left_out.length === 1 ? '1 thing was' : run.left_out.length + ' things were'} left out`),
    el('ul', null, run.left_out.map((sentence) => el('li', null, sentence)))));
  const thinned = runs.filter((run) => run.steps.length < run.metrics.all_steps).map((run) => el('p', {class: 'note'},
    `${run.label}: ${run.steps.length} of ${run.metrics.all_steps} steps are drawn, those with the last and the best validation and with the highest score, gradient norm and time of each stretch among them. Means of 5 steps are of all steps.`));
  return section('overview', 'Overview', notices, isSingle ? tiles(runs[0]) : comparison(), thinned);
}
