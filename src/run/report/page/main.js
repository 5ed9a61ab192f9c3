// The page: title, sections, navigation, theme.
function applyTheme(choice) {
  const isDark = choice === 'dark' || (choice === 'auto' && matchMedia('(prefers-color-scheme: dark)').matches);
  document.documentElement.dataset.theme = isDark ? 'dark' : 'light';
  $('theme').textContent = {auto: '◐ Auto', light: '☀ Light', dark: '☾ Dark'}[choice];
}
function stored(value) {
  try {
    if (value !== undefined) localStorage.setItem('tlt-theme', value);
    return localStorage.getItem('tlt-theme');
  } catch (error) {  // a page from a file may have no storage
    return null;
  }
}
let theme = ['light', 'dark'].includes(stored()) ? stored() : 'auto';
applyTheme(theme);
$('theme').addEventListener('click', () => {
  theme = {auto: 'light', light: 'dark', dark: 'auto'}[theme];
  stored(theme);
  applyTheme(theme);
  redrawAll();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { applyTheme(theme); redrawAll(); });

const title = report.sweep ? report.sweep.command : runs.map((run) => run.label).join(', ');
$('title').append(isSingle || report.sweep ? title : `${runs.length} runs: ${title}`, el('small', null,
  isSingle ? [runs[0].command && 'tlt ' + runs[0].command, runs[0].started && 'started ' + runs[0].started.replace('T', ' ')].filter(Boolean).join(', ') : ''));
$('made').textContent = `Made by ${report.program}, ${report.made.replace('T', ' ')}, from ${report.sweep ? title : runs.map((run) => run.folder).join(', ')}. Charts: uPlot (MIT licence, in this file).`;

const sections = (report.sweep ? [sweepSection()]
  : [overview(), scoreSection(), lengthSection(), timeSection(), speculationSection(), workerSection(), updateSection(),
    rolloutSection(), optionSection(), anySection()]).filter(Boolean);
$('main').append(...sections);
$('contents').append(...sections.map((one) => el('a', {href: '#' + one.id}, one.querySelector('h2').textContent)));

// The link of the section that is read.
const links = [...$('contents').children];
function markSection() {
  const passed = sections.filter((one) => one.getBoundingClientRect().top < 160);
  const now = scrollY + innerHeight >= document.documentElement.scrollHeight - 2 && scrollY > 0 ? sections[sections.length - 1] : passed[passed.length - 1] || sections[0];
  links.forEach((link) => link.getAttribute('href') === '#' + now.id ? link.setAttribute('aria-current', 'true') : link.removeAttribute('aria-current'));
}
addEventListener('scroll', markSection, {passive: true});
markSection();

if (report.sweep) for (const control of [$('axis'), $('smoothing').parentNode]) control.remove();
for (const input of document.querySelectorAll('#axis input')) {
  const mode = input.value;
  input.disabled = mode !== 'steps' && !runs.some((run) => last(run.metrics[mode]) > 0);
  input.addEventListener('change', () => { axis = mode; redrawAll(); });
}
$('smoothing')?.addEventListener('change', (event) => { smoothing = +event.target.value; redrawAll(); });
document.documentElement.dataset.ready = 'true';
