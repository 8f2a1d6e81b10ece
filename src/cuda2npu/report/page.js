"use strict";
// The table of findings: sorted, filtered, and a part of it at a time. All text of the user goes
// in as textContent.
const STEP = 200;
const data = JSON.parse(document.getElementById("about").textContent);
const rows = [];
for (const holder of document.querySelectorAll("script.rows")) {
  const file = JSON.parse(holder.textContent);
  for (const [line, rule, automatic, message] of file.rows) {
    const [code, name, fix, quiet] = data.rules[rule];
    const text = data.messages[message];
    rows.push({
      path: file.path, line, code, name, fix, quiet, automatic, text, section: file.section,
      level: data.order.indexOf(fix), all: `${file.path}\n${code} ${name}\n${text}`.toLowerCase(),
      place: rows.length,
    });
  }
}

const byId = (id) => document.getElementById(id);
const form = byId("filters"), body = byId("rows"), told = byId("told"), more = byId("more");
const sections = [...document.querySelectorAll("details.file")];
let sorted = {key: "path", down: false}, shown = [], limit = STEP;

const keys = {
  path: (a, b) => a.place - b.place,
  code: (a, b) => a.code < b.code ? -1 : a.code > b.code ? 1 : 0,
  level: (a, b) => a.level - b.level,
  quiet: (a, b) => b.quiet - a.quiet,
  automatic: (a, b) => a.automatic - b.automatic,
  text: (a, b) => a.text < b.text ? -1 : a.text > b.text ? 1 : 0,
};

function wanted() {
  const value = (name) => form.elements[name].value;
  const file = value("file").toLowerCase(), text = value("text").toLowerCase();
  const [rule, level, quiet, left] = ["rule", "level", "quiet", "left"].map(value);
  return rows.filter((row) =>
    (!file || row.path.toLowerCase().includes(file)) && (!text || row.all.includes(text)) &&
    (!rule || row.code === rule) && (!level || row.fix === level) &&
    (!quiet || row.quiet === (quiet === "quiet")) &&
    (!left || row.automatic === (left === "automatic")));
}

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function tableRow(row) {
  const line = element("tr"), place = element("a"), code = element("code"), rule = element("b");
  for (const part of `${row.path}:${row.line}`.split(/(?<=[/])/)) place.append(part, element("wbr"));
  place.href = `#${row.section}-${row.line}`;
  code.append(place);
  rule.append(row.code, element("small", row.name));
  const cells = [
    code, rule, element("span", data.levels[row.fix], `tag ${row.fix}`),
    row.quiet ? element("span", "quiet", "tag quiet") : "",
    row.automatic ? "rewrite" : "you", row.text,
  ];
  for (const cell of cells) {
    const made = element("td");
    made.append(cell);
    line.append(made);
  }
  return line;
}

function draw() {
  body.replaceChildren(...shown.slice(0, limit).map(tableRow));
  const part = Math.min(limit, shown.length);
  told.textContent = `${shown.length} of ${rows.length} findings` +
    (part < shown.length ? `, the first ${part} shown` : "");
  more.hidden = part === shown.length;
}

function sort() {
  const order = keys[sorted.key];
  shown.sort((a, b) => (sorted.down ? order(b, a) : order(a, b)) || a.place - b.place);
}

function filter() {
  shown = wanted();
  const left = new Set(shown.map((row) => row.section));
  const every = shown.length === rows.length;
  for (const section of sections) section.hidden = !every && !left.has(section.id);
  sort();
  limit = STEP;
  draw();
}

function open() {
  let target = null;
  try { target = byId(decodeURIComponent(location.hash.slice(1))); } catch { return; }
  const file = target && target.closest("details.file");
  if (!file) return;
  file.hidden = false;
  file.open = true;
  for (const old of document.querySelectorAll(".here")) old.classList.remove("here");
  target.classList.add("here");
  target.scrollIntoView({block: "center"});
}

for (const heading of document.querySelectorAll("th[data-key]")) {
  heading.querySelector("button").addEventListener("click", () => {
    const key = heading.dataset.key;
    sorted = {key, down: sorted.key === key && !sorted.down};
    for (const other of document.querySelectorAll("th[data-key]")) {
      other.setAttribute("aria-sort", other !== heading ? "none" :
        sorted.down ? "descending" : "ascending");
    }
    sort();
    draw();
  });
}
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(filter));
more.addEventListener("click", () => { limit += 5 * STEP; draw(); });
body.addEventListener("click", (event) => { if (event.target.closest("a")) setTimeout(open); });
addEventListener("hashchange", open);
byId("table").hidden = false;
filter();
open();
