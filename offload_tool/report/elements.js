// Elements, and columns of data. All text becomes text nodes: a name in a file is a stranger's.
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const digits = new Intl.NumberFormat("en");
const signed = (number) => `${number > 0 ? "+" : number < 0 ? "\u2212" : ""}${digits.format(Math.abs(number))}`;
const plural = (count, noun) => `${digits.format(count)} ${noun}${count === 1 ? "" : "s"}`;

function unseen(text) {
  return make("span", { class: "unseen" }, text);
}

// Of a long name, as much as fits into a table; the rest is where the name stands alone.
const LONG = 160;

function shortened(text) {
  return text.length > LONG ? `${text.slice(0, 110)} \u2026 ${text.slice(-45)}` : text;
}

function readData(name) {
  const element = document.getElementById(name);
  return element && JSON.parse(element.textContent);
}

// A column is a list, or what all of its entries are.
function reader(column) {
  return Array.isArray(column) ? (row) => column[row] : () => column;
}

function isKnown(column) {
  return column !== null && column !== undefined;
}

const strings = readData("strings") || [];

// The same for indices of strings.
function textReader(column) {
  const read = reader(column);
  return (row) => (isKnown(read(row)) ? strings[read(row)] : "");
}

// Names as tables search and sort them: each name once, however many rows have it.
const demangled = readData("demangled");

function nameIndex() {
  const lower = new Map(); // number of a name -> what is searched
  let ranks = null;
  const shown = (name) => (demangled && demangled[name]) || strings[name];
  return {
    shown,
    searched(name) {
      if (!lower.has(name)) {
        const other = demangled && demangled[name];
        lower.set(name, (other ? `${strings[name]}\n${other}` : strings[name]).toLowerCase());
      }
      return lower.get(name);
    },
    rank(name, names) {
      if (!ranks) {
        const sorted = [...new Set(names())].map((one) => [shown(one), one]);
        sorted.sort((a, b) => collator.compare(a[0], b[0]));
        ranks = new Map(sorted.map(([, one], rank) => [one, rank]));
      }
      return ranks.get(name);
    },
  };
}

