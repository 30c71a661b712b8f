"use strict";

// The views of the page are shown one at a time. The address says which, and what it shows:
// `#kernels?text=gemm&sort=-vgprs`.
const data = JSON.parse(document.getElementById("data").textContent);
const digits = new Intl.NumberFormat("en");
const counted = (count, noun) => `${digits.format(count)} ${noun}${count === 1 ? "" : "s"}`;
const find = (id) => document.getElementById(id);

// All text of files is escaped, or becomes text nodes: a name in a file is a stranger's.
function escaped(text) {
  return text.replace(/[&<>"]/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[one]);
}

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function readable(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit < units.length - 1; unit += 1) bytes /= 1024;
  return `${unit ? bytes.toFixed(1) : bytes} ${units[unit]}`;
}

// DataTables is dark by a class; paper is light.
const dark = matchMedia("screen and (prefers-color-scheme: dark)");
const paint = () => document.documentElement.classList.toggle("dark", dark.matches);
dark.addEventListener("change", paint);
paint();

const views = {
  listeners: {}, // name of a view -> what is called with its parameters whenever it is shown
  kept: {}, // name of a view -> what it shows, as in the address

  show() {
    const [asked, text = ""] = location.hash.slice(1).split(/\?(.*)/s);
    const name = Object.hasOwn(this.listeners, asked) ? asked : "sizes";
    for (const view of document.querySelectorAll(".view")) view.hidden = view.id !== name;
    for (const link of document.querySelectorAll(".views a")) link.ariaCurrent = link.hash === `#${name}` ? "page" : null;
    this.listeners[name](new URLSearchParams(text));
  },

  // Keeps in the address what a view shows, without a step of the history.
  keep(name, parameters) {
    const text = String(parameters);
    this.kept[name] = text;
    const shown = location.hash || "#sizes";
    if (shown.split("?")[0] !== `#${name}` || shown === `#${name}${text && "?"}${text}`) return;
    try {
      history.replaceState(null, "", `#${name}${text && "?"}${text}`);
    } catch {
      // a browser that lets no file do so, or not so often; the page works without
    }
  },
};

const titles = { sizes: "Sizes", kernels: `Kernels (${digits.format(data.views.kernels?.[0].count || 0)})`, changes: "Changes" };
for (const name of Object.keys(data.views)) {
  document.querySelector(".views").append(make("a", { href: `#${name}` }, titles[name]));
}
const { size, stored, ...counts } = data.totals;
const part = stored < size ? ` (${((100 * stored) / size).toFixed(1)}%)` : ""; // else padding and tables dominate
const totals = [
  ["Uncompressed", readable(size), counted(size, "byte")],
  [`In the files${part}`, readable(stored), counted(stored, "byte")],
  ...Object.entries(counts).map(([name, count]) => [name, digits.format(count), ""]),
];
document.querySelector(".totals").append(...totals.map(([name, value, exact]) =>
  make("div", {}, make("dt", {}, name), make("dd", {}, value, make("small", {}, exact)))));
document.querySelector(".remarks").append(...data.notes.map((note) => make("p", {}, note)));
find("paths").textContent = data.paths.join("\n");
find("before").textContent = `Before: ${data.before.join("\n")}`;
find("change-counts").textContent = data.changes;
for (const [title, lines] of Object.entries(data.notices)) {
  if (!lines.length) continue;
  const items = lines.map((line) => make("li", {}, line));
  find("notices").append(make("details", { className: "notice" }, make("summary", {}, `${title}: ${digits.format(lines.length)}`), make("ul", {}, ...items)));
}
