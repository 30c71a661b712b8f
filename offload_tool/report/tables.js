// The tables: DataTables sorts, searches, filters and pages them.
const collator = new Intl.Collator("en", { numeric: true });
const LONG = 160; // characters of a name in a table
const MOST_CHOICES = 50; // in the list of a filter
const SMALL = 10; // rows of a table that is shown as it is
const PAGES = [50, 200, 1000, 5000];
const LOGICS = { ">=": "greaterOrEqual", ">": "greater", "<=": "lessOrEqual", "<": "less", "=": "equal" };

const isKnown = (value) => value !== null && value !== undefined;
const number = (value) => (isKnown(value) ? digits.format(value) : "");
const signed = (value) => `${value > 0 ? "+" : value < 0 ? "\u2212" : ""}${digits.format(Math.abs(value))}`;
const percent = (part, whole) => `${(whole ? (100 * part) / whole : 0).toFixed(1)}%`;
const reader = (values) => (Array.isArray(values) ? (row) => values[row] : () => values);

// Whatever the order, what is not known comes last.
const compare = (sign) => (one, other) =>
  isKnown(one) && isKnown(other) ? sign * (one - other) : isKnown(other) - isKnown(one);
DataTable.type("known", { detect: () => false, order: { asc: compare(1), desc: compare(-1) } });

const filterButton = (content) => ({ extend: "dropdown", icon: "search", text: "Filter", content: [content] });

// Columns have, by row: the `value`, what it is sorted and filtered by, and its HTML.
function textColumn({ key, kind, values }, { count }) {
  const isKernel = kind === "kernel";
  const index = reader(values);
  const shown = (text) => (isKernel && data.demangled[text]) || data.texts[text];
  const distinct = [...new Set(Array.from({ length: count }, (_, row) => index(row)))];
  const searched = {};
  for (const one of distinct) searched[one] = escaped([...new Set([data.texts[one], shown(one)])].join(" "));
  let ranks = null;
  const rank = (text) => {
    if (!ranks) {
      const sorted = distinct.map((one) => [shown(one), one]);
      sorted.sort(([one], [other]) => collator.compare(one, other));
      ranks = new Map(sorted.map(([, one], place) => [one, place]));
    }
    return ranks.get(text);
  };
  const cell = (row) => {
    const text = shown(index(row));
    const short = text.length > LONG ? `${text.slice(0, 110)} \u2026 ${text.slice(-45)}` : text;
    return escaped(short).replace(/[/_]/g, "$&<wbr>");
  };
  const choices = isKernel || distinct.length > MOST_CHOICES ? [] : distinct;
  const options = choices.sort((one, other) => rank(one) - rank(other))
    .map((one) => ({ value: data.texts[one], label: escaped(data.texts[one] || "none") }));
  return {
    options: options.map(({ value }) => value),
    control: options.length ? [filterButton({ extend: "searchList", options })] : [],
    visible: distinct.length > 1 || (data.texts[distinct[0]] !== "" && !["kind", "image", "library"].includes(key)),
    className: kind,
    shown: (row) => shown(index(row)),
    value: (row) => data.texts[index(row)],
    sort: (row) => rank(index(row)),
    filter: (row) => searched[index(row)],
    html: (row) => (isKernel ? `<a href="#kernels?${escaped(String(new URLSearchParams({ kernel: data.texts[index(row)] })))}">${cell(row)}</a>` : cell(row)),
  };
}

function numberColumn({ kind, values, before }) {
  const [value, old] = [reader(values), reader(before)];
  const grown = (row) => (isKnown(value(row)) && isKnown(old(row)) ? value(row) - old(row) : null);
  const sort = kind === "pair" ? grown : value;
  const pair = (row) => [...new Set([old(row), value(row)].filter(isKnown))].map(number).join(" \u2192 ");
  const total = (rows) => rows.reduce((sum, row) => sum + value(row), 0);
  const share = (row) => // the first row is the largest
    `<svg class="bar" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true"><rect width="${
      (100 * value(row)) / (value(0) || 1)}" height="12"/></svg>${percent(value(row), data.totals.size)}`;
  return {
    isNumber: true,
    className: kind === "share" ? "share" : "number dt-right",
    control: [filterButton("searchNumber")],
    visible: true,
    value,
    sort,
    filter: (row) => sort(row) ?? "unknown", // which is no number, so that it matches no limit
    html: { pair, share, signed: (row) => signed(value(row)) }[kind] || ((row) => number(value(row))),
    sum: { sum: (rows) => number(total(rows)), share: (rows) => percent(total(rows), data.totals.size) }[kind],
  };
}

for (const table of Object.values(data.views).flat()) {
  for (const column of table.columns) {
    const read = column.kind === "text" || column.kind === "kernel" ? textColumn : numberColumn;
    Object.assign(column, read(column, table));
  }
  const isSorted = table.columns.some(({ key }) => key === table.order);
  table.sort = isSorted ? `-${table.order}` : table.order && table.columns[0].key;
}

// A table's state in links: `where` is the key of a column, a sign, and a number or text; `sort` is
// a key, with "-" if it falls.
function orderOf(sort, columns) {
  const [, falls, key] = /^(-?)(\w+)$/.exec(sort) || [];
  return columns.some((column) => column.key === key) ? [{ name: key, dir: falls ? "desc" : "asc" }] : null;
}

function stateOf(parameters, { columns }) {
  const controls = {};
  for (const condition of parameters.getAll("where")) {
    const [, key, sign, value] = /^(\w+)(>=|<=|>|<|=)(.*)$/s.exec(condition) || [];
    const at = columns.findIndex((column) => column.key === key);
    if (at < 0) continue;
    if (columns[at].isNumber && /^-?\d+(\.\d+)?$/.test(value)) {
      controls[at] = { searchInput: { logic: LOGICS[sign], type: "num", value } };
    } else if (sign === "=" && columns[at].options?.includes(value)) {
      controls[at] = { searchList: [...(controls[at]?.searchList || []), value] };
    }
  }
  const order = orderOf(parameters.get("sort"), columns);
  const length = PAGES.find((rows) => String(rows) === parameters.get("rows")) || PAGES[0];
  const page = Math.max(Math.trunc(parameters.get("page")) || 1, 1);
  return {
    time: Date.now(),
    length,
    start: (page - 1) * length,
    search: { search: parameters.get("text") || "" },
    columnControl: controls,
    ...(order && { order: [[order[0].name, order[0].dir]] }),
  };
}

function parametersOf({ start, length, order, search, columnControl = {} }, { columns, sort }) {
  const parameters = new URLSearchParams();
  if (search.search) parameters.set("text", search.search);
  columns.forEach(({ key }, at) => {
    const { searchInput: input, searchList: list } = columnControl[at] || {};
    const sign = Object.keys(LOGICS).find((one) => LOGICS[one] === input?.logic);
    if (sign && input.value) parameters.append("where", `${key}${sign}${input.value}`);
    for (const value of list || []) parameters.append("where", `${key}=${value}`);
  });
  const sorted = order.length ? `${order[0][1] === "desc" ? "-" : ""}${order[0][0]}` : "";
  if (sorted !== sort) parameters.set("sort", sorted);
  if (length !== PAGES[0]) parameters.set("rows", length);
  if (start) parameters.set("page", start / length + 1);
  return parameters;
}

// Draws a table. `parameters` is its state in the address, which `changed` is told of.
function drawTable(place, table, parameters, changed) {
  const { columns, count } = table;
  const isLarge = changed || count > SMALL;
  const hasSums = columns.some(({ sum }) => sum);
  const heading = make("h3", { id: `${table.name}-title` }, table.title);
  const heads = columns.map((column) => make("th", { scope: "col" }, column.title));
  const element = make("table", { id: table.name }, make("thead", {}, make("tr", {}, ...heads)));
  element.setAttribute("aria-labelledby", heading.id);
  place.append(make("section", {}, heading, element));
  return new DataTable(element, {
    data: Array.from({ length: count }, (_, row) => [row]),
    columns: columns.map((column) => ({
      name: column.key,
      data: null,
      type: "known",
      visible: column.visible,
      className: column.className,
      render: (_, type, [row]) => (column[{ display: "html", filter: "filter" }[type]] || column.sort)(row),
      columnControl: { target: 0, content: isLarge ? column.control : [] },
      ...(hasSums && { footer: column.sum ? "0" : "" }),
    })),
    orderDescReverse: false,
    order: orderOf(table.sort, columns) || [],
    autoWidth: false,
    pageLength: PAGES[0],
    lengthMenu: PAGES,
    layout: isLarge
      ? { topStart: "search", topEnd: "info", bottomStart: "pageLength", bottomEnd: "paging" }
      : { topStart: null, topEnd: null, bottomStart: null, bottomEnd: null },
    language: {
      info: "Rows _START_ to _END_ of _TOTAL_",
      infoEmpty: "No rows",
      infoFiltered: "that match, of _MAX_",
      lengthMenu: "Rows on a page _MENU_",
      search: "Search",
      zeroRecords: "No row matches.",
    },
    footerCallback: hasSums && function (_, __, ___, ____, shown) {
      const api = this.api();
      columns.forEach(({ sum }, at) => {
        const cell = api.column(at).footer();
        if (cell) cell.textContent = sum ? sum(shown) : at ? "" : "All";
      });
    },
    stateSave: Boolean(changed),
    stateLoadCallback: () => stateOf(parameters, table),
    stateSaveCallback: (_, state) => changed(parametersOf(state, table)),
  });
}

// The first table of a view has its state in the address.
function showTables(name) {
  let [drawn, kept] = [null, ""];
  return (parameters) => {
    const [place, tables] = [document.querySelector(`#${name} .tables`), data.views[name]];
    if (drawn && String(parameters) === kept) return;
    if (drawn) drawn.forEach((table) => table.destroy());
    place.replaceChildren();
    kept = String(parameters);
    drawn = tables.map((table, at) => drawTable(place, table, parameters, at || name === "sizes" ? null : (state) => {
      kept = String(state);
      views.keep(name, state);
    }));
  };
}
for (const name of Object.keys(data.views)) views.listeners[name] = showTables(name);
