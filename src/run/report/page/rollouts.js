// Rollouts: a browser of responses. All texts are set as text nodes.
function rolloutSection() {
  const all = runs.flatMap((run, number) => run.rollouts.map((row) => ({row, run, number})));
  if (!all.length) return null;
  let prompt = null, shown = [], selected = null, colouring = 'logprob';

  const search = el('input', {type: 'search', id: 'search', placeholder: 'Search prompts and responses  ( / )', oninput: later(update)});
  const choose = (id, label, options) => el('select', {id, 'aria-label': label, onchange: update},
    options.map(([value, text]) => el('option', {value}, text)));
  const kinds = [...new Set(all.map(({row}) => row.kind))];
  const kind = choose('kind', 'Kind', [['', 'all kinds'], ...kinds.map((one) => [one, one === 'rollout' ? 'training' : one])]);
  const steps = [...new Set(all.map(({row}) => row.step))].sort((a, b) => a - b);
  const step = choose('step', 'Step', [['', 'all steps'], ...steps.map((one) => [one, 'step ' + one])]);
  const runChoice = isSingle ? null : choose('run', 'Run', [['', 'all runs'], ...runs.map((one, i) => [i, one.label])]);
  const order = choose('order', 'Order', [['worst', 'lowest score first'], ['best', 'highest score first'],
    ['latest', 'newest first'], ['step', 'oldest first'], ['longest', 'longest first'], ['shortest', 'shortest first'], ['prompt', 'by prompt']]);
  order.value = 'latest';
  const count = el('span', {class: 'note', role: 'status'});
  const onlyPrompt = el('button', {type: 'button', hidden: true, onclick: () => { prompt = null; update(); }}, 'All prompts');
  const list = el('ul', {class: 'list', role: 'listbox', tabindex: 0, 'aria-label': 'Responses', id: 'responses', onkeydown: onKey});
  const detail = el('div', {class: 'card detail', tabindex: 0, role: 'region', 'aria-label': 'The response'});

  const score = (item) => is(item.row.score) ? item.row.score : -1e300;
  const length = (item) => item.row.response_tokens ?? item.row.output.length;
  const orders = {
    latest: (a, b) => b.row.step - a.row.step,
    worst: (a, b) => score(a) - score(b), best: (a, b) => score(b) - score(a), step: (a, b) => a.row.step - b.row.step,
    longest: (a, b) => length(b) - length(a), shortest: (a, b) => length(a) - length(b),
    prompt: (a, b) => (a.row.prompt_id ?? 0) - (b.row.prompt_id ?? 0) || a.row.step - b.row.step,
  };
  const byPrompt = (a, b) => (a.row.prompt_id ?? 0) - (b.row.prompt_id ?? 0) || (a.row.sample ?? 0) - (b.row.sample ?? 0);
  const isSame = (a, b) => a.row.prompt === b.row.prompt && a.row.prompt_id === b.row.prompt_id;

  function later(action) { let timer = 0; return () => { clearTimeout(timer); timer = setTimeout(action, 120); }; }

  function update() {
    const words = search.value.toLowerCase();
    shown = all.filter((item) => (!kind.value || item.row.kind === kind.value) &&
      (!step.value || item.row.step === +step.value) && (!runChoice || !runChoice.value || item.number === +runChoice.value) &&
      (!prompt || isSame(item, prompt)) && (!words || [item.row.prompt, item.row.output, item.row.gts]
        .some((text) => text.toLowerCase().includes(words)))).sort((a, b) => orders[order.value](a, b) || byPrompt(a, b));
    count.textContent = `${shown.length} of ${all.length} responses that this page has`;
    onlyPrompt.hidden = !prompt;
    list.replaceChildren(...shown.map(listItem));
    select(shown.includes(selected) ? selected : shown[0] || null, false);
  }

  function listItem(item) {
    const {row} = item;
    const node = el('li', {role: 'option', id: 'response-' + all.indexOf(item), 'aria-selected': 'false', onclick: () => { select(item, false); list.focus(); }},
      el('div', {class: 'top'}, el('b', {title: 'score'}, is(row.score) ? short(row.score) : '–'),
        el('span', null, (isSingle ? '' : item.run.label + ' · ') + (row.kind === 'rollout' ? '' : row.kind + ', ') + 'step ' + row.step),
        el('em', null, is(row.response_tokens) ? row.response_tokens + ' tokens' : '')),
      el('div', {class: 'line'}, row.prompt.slice(-90) + ' → ' + row.output.slice(0, 120)));
    item.node = node;
    return node;
  }

  function select(item, scroll = true) {
    if (selected && selected.node) selected.node.setAttribute('aria-selected', 'false');
    selected = item;
    list.removeAttribute('aria-activedescendant');
    if (item) {
      item.node.setAttribute('aria-selected', 'true');
      list.setAttribute('aria-activedescendant', item.node.id);
      if (scroll) item.node.scrollIntoView({block: 'nearest'});
    }
    drawDetail();
  }

  function onKey(event) {
    const at = shown.indexOf(selected);
    const next = {ArrowDown: at + 1, ArrowUp: at - 1, j: at + 1, k: at - 1, Home: 0, End: shown.length - 1,
      PageDown: at + 10, PageUp: at - 10}[event.key];
    if (next === undefined || !shown.length || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    select(shown[Math.min(shown.length - 1, Math.max(0, next))]);
  }

  // The text with the searched words marked.
  function marked(text) {
    const words = search.value.toLowerCase(), parts = [], lower = text.toLowerCase();
    if (!words || lower.length !== text.length) return [text];
    let from = 0;
    for (let at = lower.indexOf(words); at >= 0 && parts.length < 2000; at = lower.indexOf(words, from)) {
      parts.push(text.slice(from, at), el('mark', null, text.slice(at, at + words.length)));
      from = at + words.length;
    }
    return [...parts, text.slice(from)];
  }

  // The tokens, then the text of those that the page does not have.
  function tokens(row) {
    const rest = row.output.slice(row.token_texts.join('').length);
    const spans = row.token_texts.map((text, i) => {
      const logprob = row.token_logprobs ? row.token_logprobs[i] : null;
      const accepted = row.accepted ? row.accepted[i] === '1' : null;
      let background = '';
      if (colouring === 'logprob' && is(logprob)) background = `rgba(var(--heat), ${Math.min(0.85, -logprob / 4).toFixed(3)})`;
      if (colouring === 'accepted' && accepted) background = 'rgba(var(--accept), 0.35)';
      return el('span', {'data-token': i, style: background ? {background} : undefined, title:
        `token ${i}` + (is(logprob) ? `, logprob ${logprob}, probability ${percent(Math.exp(logprob))}` : '') +
        (accepted === null ? '' : accepted ? ', accepted draft token' : ', sampled by the policy')}, text);
    });
    return [spans, rest ? el('span', {title: `no colours after token ${spans.length - 1}`}, rest) : null];
  }

  function colourControl(row) {
    const options = [['none', 'plain', true], ['logprob', 'logprob', Boolean(row.token_logprobs)], ['accepted', 'accepted drafts', Boolean(row.accepted)]];
    if (!row.token_texts) return el('p', {class: 'note'}, 'Token colours: the file of this response has no tokens for it.');
    if (!options.some(([value, , has]) => value === colouring && has)) colouring = 'none';
    return el('div', {class: 'row'}, el('fieldset', {class: 'segments', id: 'colouring'}, el('legend', null, 'Token colours'),
      options.map(([value, label, has]) => el('label', {title: has ? '' : 'The file of this response does not have it.'},
        el('input', {type: 'radio', name: 'colouring', value, checked: value === colouring, disabled: !has,
          onchange: () => { colouring = value; drawDetail(); $('colouring').querySelector(`[value=${value}]`).focus(); }}), el('span', null, label)))),
    colouring === 'logprob' ? el('span', {class: 'note'}, 'certain', el('span', {class: 'ramp', style: {background:
      'linear-gradient(90deg, transparent, rgba(var(--heat), .85))'}}), 'logprob −3.4 and less') : null,
    colouring === 'accepted' ? el('span', {class: 'note'}, 'green: draft tokens that were accepted') : null);
  }

  function drawDetail() {
    if (!selected) return detail.replaceChildren(el('p', {class: 'note'}, 'No response matches.'));
    const {row} = selected;
    const fact = (name, value, title) => value === '' || value === undefined || value === null ? null
      : el('div', null, el('dt', null, name), el('dd', {title}, value));
    const number = (name, value) => is(value) ? fact(name, short(value), String(value)) : null;
    const others = all.filter((item) => isSame(item, selected)).length;
    detail.replaceChildren(...present([
      el('dl', null, isSingle ? null : fact('run', selected.run.label), fact('step', String(row.step)),
        fact('kind', row.kind === 'rollout' ? 'training' : row.kind), number('score', row.score), number('advantage', row.advantage),
        number('tokens', row.response_tokens), fact('ended by', row.finish_reason === 'length' ? 'the limit' : row.finish_reason),
        fact('sample', is(row.sample) ? String(row.sample) : ''), fact('data source', row.data_source),
        Object.entries(row.extras || {}).map(([name, value]) => number(name, value)), fact('reward fault', row.reward_fault)),
      others > 1 && !prompt ? el('button', {type: 'button', onclick: () => { prompt = selected; update(); }},
        `Only this prompt (${others} responses)`) : null,
      el('h4', null, 'Prompt'), el('pre', null, marked(row.prompt)),
      el('h4', null, 'Response'), colourControl(row),
      el('pre', {id: 'response'}, row.token_texts && colouring !== 'none' ? tokens(row) : marked(row.output)),
      row.cut ? el('p', {class: 'note'}, `${row.cut} bytes more are in the file of the run.`) : null,
      row.gts ? [el('h4', null, 'Ground truth'), el('pre', null, marked(row.gts))] : null]));
    detail.scrollTop = 0;
  }

  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    search.focus();
  });
  search.addEventListener('keydown', (event) => { if (event.key === 'ArrowDown') { event.preventDefault(); list.focus(); } });
  update();
  return section('responses', 'Responses', el('div', {class: 'browser'},
    el('div', {class: 'row'}, search, runChoice, kind, step, order, onlyPrompt, count), list, detail));
}
