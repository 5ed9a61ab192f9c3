// Sections: the charts of the report in the order of its page. A section without data is left out.

function section(id, title, ...children) {
  const filled = children.flat().filter((child) => child);
  return filled.length ? el('section', {id, 'aria-labelledby': id + '-title'},
    el('h2', {id: id + '-title'}, title), filled) : null;
}

function scoreSection() {
  const sources = [...new Set(runs.flatMap((run) => run.names.filter((name) => name.startsWith('val-core/'))))];
  return section('scores', 'Scores', grid(
    {title: 'Score', wide: true, note: 'Bars are 95 % intervals of the held-out mean (1.96 standard errors).',
      series: [
        {label: 'held-out', values: (run) => col(run, heldOutName(run)), style: 'points', colour: 0, main: true,
          error: (run) => col(run, 'val-aux/reward/standard_error')},
        metric('training, each step', 'critic/score/mean', {style: 'dots', colour: 7}),
        {label: 'training, mean of 5 steps', values: (run) => meanOf5(run, 'critic/score/mean'), colour: 7},
        metric('generated, before filtering', 'critic/score_generated/mean', {style: 'dash', colour: 5})]},
    {title: 'Held-out score by data source', series: sources.length > 1 ? sources.slice(0, 8).map((name, i) =>
      metric(name.slice('val-core/'.length), name, {style: 'line', colour: i})) : []},
    {title: 'Loss', wide: true, note: 'Mean negative log-likelihood per token.', series: [
      metric('held-out', 'main/validation_loss', {style: 'points', colour: 0, main: true}),
      metric('training, each step', 'main/loss', {style: 'dots', colour: 7}),
      {label: 'training, mean of 5 steps', values: (run) => has(run, 'main/validation_score') ||
        has(run, 'critic/score/mean') ? null : meanOf5(run, 'main/loss'), colour: 7}]},
    {title: 'Groups without a gradient', unit: 'share', zero: true,
      note: 'Groups whose responses all have the same score.', series: [
        metric('share of groups', 'rollout/frac_reward_zero_std', {colour: 3})]},
    {title: 'Failed rewards', zero: true, note: 'Responses whose reward failed or timed out.',
      series: runs.some((run) => sum(zeros(run, 'reward/unscored')) > 0)
        ? [metric('responses', 'reward/unscored', {colour: 3})] : []}));
}

function lengthSection() {
  const lengths = (prefix) => [
    metric('median', prefix + 'p50', {colour: 0, main: true}), metric('90th percentile', prefix + 'p90', {colour: 2}),
    metric('99th percentile', prefix + 'p99', {colour: 1}), metric('longest', prefix + 'max', {colour: 3}),
    metric('mean', prefix + 'mean', {colour: 7, hidden: true})];
  return section('lengths', 'Lengths', grid(
    {title: 'Response length and its tail', unit: 'tokens', zero: true, wide: true,
      note: 'Tokens. The longest responses decide when a step ends.', series: [
        ...lengths('response_length/'),
        metric('limit', 'response_length/limit', {style: 'dash', colour: 7})]},
    {title: 'Held-out response length', zero: true, series: lengths('val-aux/response_length/')},
    {title: 'Truncated at the limit', unit: 'share', zero: true, series: [
      metric('training', 'response_length/clip_ratio', {colour: 3, main: true}),
      metric('held-out', 'val-aux/response_length/clip_ratio', {style: 'points', colour: 0})]}));
}

const stages = [['rollout', 'timing_s/gen'], ['update', 'timing_s/update_actor'], ['reward', 'timing_s/reward'],
  ['reference', 'timing_s/ref'], ['draft model', 'timing_s/drafter']];

function otherSeconds(run) {
  const step = col(run, 'timing_s/step');
  if (!step || !stages.some(([, name]) => has(run, name))) return null;
  const parts = stages.map(([, name]) => zeros(run, name));
  return step.map((value, i) => is(value) ? Math.max(0, value - parts.reduce((a, part) => a + part[i], 0)) : null);
}

function timeSection() {
  return section('time', 'Time', grid(
    {title: 'Seconds of a step by stage', kind: 'stack', unit: 's', wide: true,
      note: 'Rollout to update, then validation and the copy of a checkpoint.', series: [
        ...stages.map(([label, name], i) => metric(label, name, {colour: i, main: i === 0})),
        {label: 'other', values: otherSeconds, colour: 7},
        metric('validation', 'timing_s/testing', {colour: 5}),
        metric('checkpoint', 'timing_s/save_checkpoint', {colour: 6})]},
    {title: 'Whole step', unit: 's', zero: true, series: [
      metric('each step', 'timing_s/step', {style: 'dots', colour: 7}),
      {label: 'mean of 5 steps', values: (run) => meanOf5(run, 'timing_s/step'), colour: 0, main: true}]},
    {title: 'Tokens per second', zero: true, series: [
      metric('rollout, all workers', 'rollout/tokens_per_second', {colour: 0, main: true}),
      metric('trained', 'train/tokens_per_second', {colour: 2}),
      metric('step, per worker', 'perf/throughput', {colour: 1})]}));
}

// The drafters with a metric speculation/<drafter>/<name>.
function drafters(name) {
  const found = new Set();
  for (const run of runs)
    for (const one of run.names) {
      const match = /^speculation\/([^/]+)\/(.+)$/.exec(one);
      if (match && match[2].startsWith(name)) found.add(match[1]);
    }
  return [...found];
}
function depthsOf(drafter) {
  const prefix = 'speculation/' + drafter + '/accept_rate_pos_';
  const depths = new Set();
  for (const run of runs)
    for (const one of run.names) if (one.startsWith(prefix)) depths.add(+one.slice(prefix.length));
  return [...depths].filter(Number.isInteger).sort((a, b) => a - b);
}
// Mean acceptance at each depth over a part of the run: from and to are shares of its steps.
function byDepth(drafter, depths, from, to) {
  return (run) => depths.map((depth) => {
    const values = known(col(run, 'speculation/' + drafter + '/accept_rate_pos_' + depth));
    const count = values.length;
    return mean(values.slice(Math.floor(from * count), Math.max(1, Math.ceil(to * count))));
  });
}

// The share of engine steps of each arm, from counts since the start of the run.
function armSeries() {
  const names = new Map();
  for (const run of runs)
    for (const one of run.names) {
      const match = /^speculation\/arm\/(.+)\/steps$/.exec(one);
      if (match) names.set(match[1], Math.max(names.get(match[1]) || 0, last(col(run, one)) || 0));
    }
  const ranked = [...names.keys()].sort((a, b) => names.get(b) - names.get(a));
  const top = ranked.slice(0, 6), rest = ranked.slice(6);
  const steps = (run, arm) => {
    const counts = col(run, 'speculation/arm/' + arm + '/steps');
    let before = 0;
    return run.steps.map((_, i) => {
      const now = counts ? counts[i] : null;
      if (!is(now)) return 0;
      const difference = now < before ? now : now - before;  // a run that was started again
      before = now;
      return difference;
    });
  };
  const share = (arms) => (run) => {
    const all = ranked.map((arm) => steps(run, arm)), mine = arms.map((arm) => steps(run, arm));
    const total = run.steps.map((_, i) => all.reduce((a, one) => a + one[i], 0));
    return run.steps.map((_, i) => total[i] > 0 ? mine.reduce((a, one) => a + one[i], 0) / total[i] : null);
  };
  const label = (arm) => arm.replace('/', ' ');
  return [...top.map((arm, i) => ({label: label(arm), values: share([arm]), colour: arm === 'off' ? 7 : [0, 1, 2, 3, 4, 6][i], main: i === 0})),
    ...(rest.length ? [{label: rest.length + ' others', values: share(rest), colour: 5}] : [])];
}

function speculationSection() {
  const bucket = 'rollout/accept_length_by_position/';
  const depthCharts = drafters('accept_rate_pos_').slice(0, 4).filter((name) => depthsOf(name).length).map((name) => {
    const depths = depthsOf(name);
    return {title: 'Acceptance by draft depth: ' + name, kind: 'xy', unit: 'share', xLabel: 'depth', zero: true,
      note: 'Share of the draft tokens at this depth that were accepted; means of steps.', x: () => depths, series: [
        {label: 'first third of the run', values: byDepth(name, depths, 0, 1 / 3), style: 'dash', colour: 7},
        {label: 'middle third', values: byDepth(name, depths, 1 / 3, 2 / 3), colour: 1, hidden: true},
        {label: 'last third', values: byDepth(name, depths, 2 / 3, 1), colour: 0, main: true}]};
  });
  const timeCharts = drafters('accept_rate_pos_').slice(0, 4).filter((name) => depthsOf(name).length > 1).map((name) => ({
    title: 'Acceptance by depth over the run: ' + name, unit: 'share', zero: true,
    series: depthsOf(name).slice(0, 8).map((depth, i) =>
      metric('depth ' + depth, 'speculation/' + name + '/accept_rate_pos_' + depth, {colour: i, main: i === 0}))}));
  return section('speculation', 'Speculation', grid(
    {title: 'Acceptance length', wide: true, note: 'Tokens per forward pass of the policy, the bonus token included.', series: [
      metric('in rollouts', 'rollout/spec_accept_length', {colour: 7, style: 'dots', main: true}),
      {label: 'in rollouts, mean of 5 steps', values: (run) => meanOf5(run, 'rollout/spec_accept_length'), colour: 7},
      {label: 'held-out, draft model in use', values: offlineAcceptance, colour: 2},
      metric('held-out, frozen draft model', 'drafter/acceptance_length/frozen', {colour: 1, style: 'dash'})]},
    {title: 'Acceptance length by position in the response', note: 'Position: tokens of the response before the draft tree.',
      series: ['0-512', '512-2K', '2K-8K', '8K+'].map((range, i) => metric(range + ' tokens', bucket + range, {colour: i, main: i === 0}))},
    {title: 'Arms over time', kind: 'stack', unit: 'share', note: 'What the tuner chose: share of the engine steps of one worker.', series: armSeries()},
    ...depthCharts, ...timeCharts,
    {title: 'Decoding time lost to the choice of the arm', unit: 'share', zero: true,
      note: 'Compared with the best choices in hindsight, since the start.',
      series: [metric('regret', 'speculation/regret', {colour: 3})]},
    {title: 'Draft model in training', note: 'Share of held-out tokens, and of the last optimizer step.', unit: 'share', series: [
      metric('top-1, held-out', 'drafter/top1_accuracy/before', {colour: 0, main: true}),
      metric('top-3, held-out', 'drafter/top3_accuracy/before', {colour: 2}),
      metric('top-1, training', 'drafter/top1_accuracy', {colour: 7, style: 'dots'}),
      metric('top-1, held-out (tlt draft)', 'val-drafter/top1_accuracy', {colour: 1, style: 'points'})]}));
}

function workerTable() {
  const parts = ['idle', 'used', 'gradient', 'reference', 'lost'];
  const rows = runs.flatMap((run) => {
    const ids = new Set(run.names.map((name) => /^drafter\/worker_(\d+)\/idle_seconds$/.exec(name)).filter(Boolean).map((m) => +m[1]));
    return [...ids].sort((a, b) => a - b).slice(0, 64).map((id) => [run, id,
      ...parts.map((part) => total(run, `drafter/worker_${id}/${part}_seconds`))]);
  });
  if (!rows.length) return null;
  return el('div', {class: 'card'}, el('div', {class: 'head'}, el('h3', null, 'Idle seconds by worker, whole run')),
    el('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Idle seconds by worker'}, el('table', null,
      el('thead', null, el('tr', null, ['worker', 'idle', 'draft training', 'early gradients', 'early reference', 'lost']
        .map((name) => el('th', null, name)))),
      el('tbody', null, rows.map(([run, id, ...values]) => el('tr', null,
        el('td', null, isSingle ? String(id) : run.label + ' ' + id),
        values.map((value) => el('td', {title: String(value)}, duration(value)))))))));
}

function workerSection() {
  const ledger = grid(
    {title: 'Idle ledger', kind: 'stack', unit: 's', note: 'Worker-seconds with an empty engine, and what they were used for.',
      series: runs.some((run) => has(run, 'drafter/used_seconds')) ? [
        metric('draft model training', 'drafter/used_seconds', {colour: 2, main: true}),
        metric('early gradients', 'drafter/gradient_seconds', {colour: 1}),
        metric('early reference', 'drafter/reference_seconds', {colour: 6}),
        metric('lost', 'drafter/lost_seconds', {colour: 7})] : [
        metric('idle', 'rollout/idle_seconds', {colour: 7, main: true})]},
    {title: 'Idle share of the rollout', unit: 'share', zero: true, series: [
      metric('idle', 'rollout/idle_share', {colour: 0, main: true}),
      metric('at most half full', 'rollout/half_empty_share', {colour: 1}),
      metric('last tenth of the responses', 'rollout/tail_share', {colour: 3})]});
  const table = workerTable();
  if (ledger && table) {
    ledger.append(table);
    fillRows(ledger);
  }
  return section('workers', 'Workers', timelineCard(), ledger || table);
}

function updateSection() {
  return section('update', 'Update', grid(
    {title: 'Gradient norm', zero: true, note: 'Before clipping.', series: [
      metric('policy', 'actor/grad_norm', {colour: 0, main: true}), metric('draft model', 'drafter/grad_norm', {colour: 2, hidden: true})]},
    {title: 'Entropy', note: 'Nats per token.', zero: true, series: [metric('entropy', 'actor/entropy', {colour: 0})]},
    {title: 'KL divergence', note: 'Nats per token.', series: [
      metric('to the reference', 'actor/kl_loss', {colour: 0, main: true}), metric('to the policy that sampled', 'actor/ppo_kl', {colour: 1})]},
    {title: 'Clipped tokens', unit: 'share', zero: true, series: [
      metric('by the ratio', 'actor/pg_clipfrac', {colour: 0, main: true}), metric('by the dual clip', 'actor/pg_clipfrac_lower', {colour: 1})]},
    {title: 'Learning rate', zero: true, series: [metric('policy', 'actor/lr', {colour: 0})]},
    {title: 'Policy-gradient loss', series: [metric('loss', 'actor/pg_loss', {colour: 0})]}));
}

// Any metric of metrics.jsonl.
function anySection() {
  const names = [...new Set(runs.flatMap((run) => run.names))].sort();
  if (!names.length) return null;
  const box = el('div');
  const list = el('datalist', {id: 'names'}, names.map((name) => el('option', {value: name})));
  const input = el('input', {type: 'text', list: 'names', id: 'any-name', size: 44, spellcheck: 'false',
    placeholder: 'Name of a metric', onchange: show});
  const index = charts.length;
  function show() {
    if (!names.includes(input.value)) return;
    const name = input.value;
    for (const old of charts.splice(index)) if (old.plot) old.plot.destroy();
    const chart = new ChartCard({title: name, wide: true, series: [metric(name, name, {main: true})]});
    box.replaceChildren(el('div', {class: 'grid'}, chart.card));
  }
  input.value = names.includes('main/tokens_per_second') ? 'main/tokens_per_second' : names[0];
  show();
  return section('metrics', `All ${names.length} metrics`, el('div', {class: 'row', style: {'margin-bottom': '10px'}},
    el('label', {for: 'any-name'}, 'Metric'), input, list), box);
}
