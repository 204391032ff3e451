'use strict';
// Everything on the page can be read without this script. It adds a cursor to
// the heatmaps, for pointer and keys, and a switch between dark and light.
for (const panel of document.querySelectorAll('[data-heat]')) {
  const grid = JSON.parse(document.getElementById(panel.dataset.heat).textContent);
  const svg = panel.querySelector('svg');
  const cursor = svg.querySelector('.cursor');
  const readout = panel.querySelector('.readout');
  const [left, bottom, width, height] = grid.box;
  const columns = grid.xs.length, rows = grid.ys.length;
  let x = 0, y = 0;
  const hint = 'Arrow keys or the pointer read the cells.';
  const show = () => {
    const cell = grid.cells[y][x];
    cursor.removeAttribute('hidden');
    cursor.setAttribute('x', left + x * width);
    cursor.setAttribute('y', bottom - (y + 1) * height);
    readout.textContent = `${grid.x} ${grid.xs[x]}, ${grid.y} ${grid.ys[y]}: ${grid.name} ${cell.v}` + (cell.n ? ` (${cell.n})` : '');
  };
  const hide = () => { cursor.setAttribute('hidden', 'hidden'); readout.textContent = hint; };
  hide();
  panel.addEventListener('keydown', (event) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], Home: [-columns, 0], End: [columns, 0], PageUp: [0, rows], PageDown: [0, -rows] }[event.key];
    if (!move) return;
    event.preventDefault();
    x = Math.min(Math.max(x + move[0], 0), columns - 1);
    y = Math.min(Math.max(y + move[1], 0), rows - 1);
    show();
  });
  panel.addEventListener('focus', show);
  panel.addEventListener('blur', hide);
  svg.addEventListener('pointermove', (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const i = Math.floor((point.x - left) / width), j = Math.floor((bottom - point.y) / height);
    if (i < 0 || i >= columns || j < 0 || j >= rows) return;
    x = i; y = j;
    show();
  });
  svg.addEventListener('pointerleave', () => { if (document.activeElement !== panel) hide(); });
}
const button = document.getElementById('theme');
button.hidden = false;
button.addEventListener('click', () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
});
