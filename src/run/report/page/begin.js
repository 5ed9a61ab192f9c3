// The page of a report. Data come from the element #data and are shown as text only: nodes are made
// by el(), which never parses HTML.
'use strict';

// el('td', {class: 'text', onclick: f}, 'text', node …)
function el(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (key === 'style') for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
    else node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...present(children));
  return node;
}
const present = (children) => children.flat(3).filter((child) => child !== null && child !== undefined && child !== false);

const $ = (id) => document.getElementById(id);

// Numbers for people. The data keep all digits; titles show them.
const is = (value) => typeof value === 'number' && Number.isFinite(value);
function short(value) {
  if (!is(value)) return '–';
  const size = Math.abs(value);
  if (size >= 1e9) return (value / 1e9).toFixed(2) + 'G';
  if (size >= 1e6) return (value / 1e6).toFixed(2) + 'M';
  if (size >= 1e4) return Math.round(value).toLocaleString('en');
  if (Number.isInteger(value)) return String(value);
  if (size >= 100) return value.toFixed(1);
  if (size >= 1) return value.toFixed(2);
  if (size >= 0.01 || value === 0) return value.toFixed(3);
  return value.toExponential(2);
}
const percent = (value) => is(value) ? (100 * value).toFixed(Math.abs(value) < 0.0995 ? 1 : 0) + ' %' : '–';
function duration(seconds) {
  if (!is(seconds)) return '–';
  if (seconds !== 0 && Math.abs(seconds) < 0.1) return +(1000 * seconds).toPrecision(2) + ' ms';
  if (seconds < 10) return seconds.toFixed(2) + ' s';
  if (seconds < 100) return seconds.toFixed(1) + ' s';
  if (seconds < 5400) return (seconds / 60).toFixed(1) + ' min';
  return (seconds / 3600).toFixed(1) + ' h';
}
// Without zeros at the end, for ticks: "40.0 s" is "40 s".
const tick = (text) => text.replace(/(\.\d*?)0+(?=\D|$)/, '$1').replace(/\.(?=\D|$)/, '');
const formats = {share: percent, s: duration};
const format = (unit) => formats[unit] || short;
const mean = (values) => {
  const known = values.filter(is);
  return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
};
const sum = (values) => values.reduce((a, b) => a + (is(b) ? b : 0), 0);
