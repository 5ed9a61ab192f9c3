// A sweep of tlt simulate: its ways over the values of an option. A run of the data is a combination
// of the other options, and its steps are places in the list of values.
function sweepSection() {
  const {option, values, ways} = report.sweep;
  const chart = (title, unit, name) => ({title, unit, kind: 'xy', zero: true, xLabel: option, xNames: values,
    x: (run) => run.steps, series: ways.map((way, i) => metric(way, name + '/' + way, {main: i === ways.length - 1}))});
  return section('sweep', 'By ' + option, grid(
    chart('Step speedup', '', 'step_speedup'),
    chart('Rollout speedup', '', 'rollout_speedup'),
    chart('Seconds per step', 's', 'step_seconds'),
    chart('Device-seconds per step', 's', 'device_seconds_per_step'),
    chart('Idle share of rollouts', 'share', 'idle_share'),
    chart('Acceptance length', '', 'acceptance_length')));
}
