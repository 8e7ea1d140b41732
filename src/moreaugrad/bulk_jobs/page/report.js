"use strict";
const PAGE = 60;
const entries = JSON.parse(document.getElementById("entries").textContent);
const find = (id) => document.getElementById(id);
const [words, kind, order, page, before, next] = ["words", "kind", "order", "page", "before", "next"].map(find);
const known = (value) => value !== undefined && value !== null;
const digits = (value) => String(Number(value.toPrecision(3)));
let found = [];

function add(parent, name, text, style) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (style) made.className = style;
  parent.append(made);
  return made;
}

function nameClass(entry) {
  return known(entry.truth) && entry.truth !== entry.label ? `${entry.label}, truly ${entry.truth}` : entry.label;
}

function makeTile(entry) {
  const tile = document.createElement("li");
  if (entry.picture) {
    const image = add(tile, "img", undefined, entry.alone ? "alone" : "");
    image.src = entry.picture;
    image.alt = `${entry.key}: ${entry.alone ? "map" : "image and map"} for ${entry.label}`;
  } else {
    add(tile, "div", "no map", "none");
  }
  const about = add(tile, "div", undefined, "about");
  add(about, "p", entry.key, "key");
  if (entry.error) {
    add(about, "p", entry.error, "bad");
    return tile;
  }
  add(about, "p", nameClass(entry), entry.wrong ? "bad" : "");
  const facts = [];
  if (known(entry.score)) facts.push(`score ${digits(entry.score)}`);
  if (known(entry.kept)) facts.push(entry.zero ? "all zero" : `keeps ${digits(100 * entry.kept)} %`);
  if (known(entry.relative_error)) facts.push(`known to within ${digits(100 * entry.relative_error)} %`);
  if (known(entry.seconds)) facts.push(`${digits(entry.seconds)} s`);
  if (entry.converged === false) facts.push("not converged");
  add(about, "p", facts.join(", "), "faint");
  return tile;
}

function fits(entry, wanted) {
  const text = [entry.key, entry.label, entry.truth].filter(known).join(" ").toLowerCase();
  const open = kind.value === "open" ? entry.converged === false : !kind.value || entry[kind.value];
  return open && wanted.every((word) => text.includes(word));
}

function compare(a, b) {
  const down = order.value.startsWith("-");
  const name = down ? order.value.slice(1) : order.value;
  const [x, y] = [a[name], b[name]];
  if (!known(x) || !known(y)) return known(y) - known(x) || a.place - b.place;
  const sign = typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
  return (down ? -sign : sign) || a.place - b.place;
}

function choose() {
  const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  found = entries.filter((entry) => fits(entry, wanted)).sort(compare);
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  page.replaceChildren(...Array.from({ length: pages }, (_, i) => new Option(`${i + 1} of ${pages}`, i)));
  find("pages").hidden = pages === 1;
  open(0);
}

function open(number) {
  page.value = number;
  const start = number * PAGE;
  const part = found.slice(start, start + PAGE);
  find("maps").replaceChildren(...part.map(makeTile));
  before.disabled = number === 0;
  next.disabled = start + PAGE >= found.length;
  const total = `${found.length.toLocaleString("en")} of ${entries.length.toLocaleString("en")} images`;
  find("count").textContent = found.length > PAGE ? `${total}; shown are ${start + 1} to ${start + part.length}` : total;
}

function turn(by) {
  open(Number(page.value) + by);
  find("sheet").scrollIntoView();
}

function sortTable(table, heading) {
  const column = [...heading.parentElement.children].indexOf(heading);
  const rows = [...table.tBodies[0].rows];
  const value = (row) => row.cells[column].dataset.value;
  const words = column === 0;
  const now = heading.getAttribute("aria-sort");
  const down = now ? now === "ascending" : !words; // numbers begin with the largest, names with A
  rows.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === "" || y === "") return (x === "") - (y === "");
    const sign = words ? x.localeCompare(y, undefined, { numeric: true }) : Number(x) - Number(y);
    return down ? -sign : sign;
  });
  table.tBodies[0].append(...rows);
  for (const each of table.tHead.querySelectorAll("th")) each.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
}

const table = find("classtable");
if (table) {
  for (const each of table.tHead.querySelectorAll("button")) {
    each.addEventListener("click", () => sortTable(table, each.parentElement));
  }
}
const places = new Map(entries.map((entry) => [String(entry.place), entry]));
for (const list of document.querySelectorAll("ul[data-entries]")) {
  list.append(...list.dataset.entries.split(" ").map((place) => makeTile(places.get(place))));
}
for (const each of [words, kind, order]) each.addEventListener("input", choose);
find("controls").addEventListener("submit", (event) => event.preventDefault());
page.addEventListener("input", () => turn(0));
before.addEventListener("click", () => turn(-1));
next.addEventListener("click", () => turn(1));
choose();
