// The table of all kernels, and one kernel with its targets side by side.
const MOST_COLUMNS = 40; // of targets: more than that do not fit on any screen

function kernelView(data) {
  const { images, kernels, titles, count } = data;
  const place = document.getElementById("all-kernels");
  const names = nameIndex();
  const imageOf = new Int32Array(count);
  let next = 0;
  images.kernels.forEach((number, image) => imageOf.fill(image, next, (next += number)));
  const ofImage = (key, make = textReader) => {
    const read = make(images[key]);
    return (row) => read(imageOf[row]);
  };
  const name = reader(kernels.name);
  const targetId = ofImage("target_id");
  const triple = ofImage("triple");
  const target = (row) => targetId(row) || triple(row);
  const kind = ofImage("kind");
  const imageKind = ofImage("image_kind");
  const library = ofImage("library");
  const short = ofImage("short");
  const numbers = Object.keys(titles).map((key) => ({ key, title: titles[key], read: reader(kernels[key]) }));
  const known = numbers.filter(({ key }) => Array.isArray(kernels[key]) || isKnown(kernels[key]));
  const several = (value) => {
    for (let row = 1; row < count; row += 1) if (value(row) !== value(0)) return true;
    return false;
  };
  const hasSpills = known.some(({ key }) => key.endsWith("_spills"));
  const [vgprSpills, sgprSpills] = [reader(kernels.vgpr_spills), reader(kernels.sgpr_spills)];
  const spills = (row) => {
    const both = [vgprSpills(row), sgprSpills(row)];
    return both.some(isKnown) ? (both[0] || 0) + (both[1] || 0) : null;
  };
  const allNames = () => (Array.isArray(kernels.name) ? kernels.name : [kernels.name]);

  const linkTo = (row) => {
    const state = table.state();
    state.set("kernel", strings[name(row)]);
    return `#kernels?${state}`;
  };
  const capital = (text) => text[0].toUpperCase() + text.slice(1);
  const columns = [
    {
      key: "name",
      title: "Kernel",
      className: "name",
      sorts: (row) => names.rank(name(row), allNames),
      cell: (row) => {
        const text = names.shown(name(row));
        const link = make("a", { href: linkTo(row), "data-row": String(row) }, shortened(text));
        if (text.length > LONG) link.title = text.slice(0, 2000);
        return link;
      },
    },
    { key: "target", title: "Target ID", className: "name", sorts: ranked(target, count), cell: target },
  ];
  if (several(kind)) columns.push({ key: "kind", title: "Kind", sorts: kind, cell: kind });
  if (several(imageKind)) columns.push({ key: "image", title: "Image", sorts: imageKind, cell: imageKind });
  if (several(library)) {
    columns.push({ key: "library", title: "Library", className: "name", sorts: ranked(library, count), cell: short });
  }
  for (const { key, title, read } of known) {
    columns.push({
      key,
      title: capital(title),
      isNumber: true,
      sorts: read,
      cell: (row) => (isKnown(read(row)) ? digits.format(read(row)) : ""),
    });
  }
  const measures = known.map(({ key, title, read }) => ({ key, title: capital(title), number: read }));
  if (hasSpills) measures.unshift({ key: "spills", title: "Spilled registers", number: spills });
  const table = new PagedTable(place, {
    view: "kernels",
    what: "kernel",
    title: "Table of kernels",
    given: "in the order of the files",
    sort: known.some(({ key }) => key === "code_size") ? "-code_size" : "name",
    columns,
    filters: {
      count,
      name,
      names,
      choices: [
        { key: "target", title: "Target ID", value: target },
        { key: "kind", title: "Offload kind", value: kind },
        { key: "image", title: "Image", value: imageKind },
        { key: "library", title: "Library", value: library },
      ],
      measures,
    },
    more: () => { // the links keep what the table shows
      for (const link of place.querySelectorAll("tbody a")) link.setAttribute("href", linkTo(Number(link.dataset.row)));
    },
  });

  // One kernel. Images that say the same of it are one column.
  const panel = make("section", { class: "place kernel", tabindex: "-1", hidden: true, "aria-labelledby": "one-kernel" });
  place.append(panel);
  const columnsOf = (rows) => {
    const groups = new Map();
    for (const row of rows) {
      const key = JSON.stringify([target(row), kind(row), imageKind(row), library(row), ...numbers.map(({ read }) => read(row))]);
      if (groups.has(key)) groups.get(key).images += 1;
      else groups.set(key, { row, images: 1 });
    }
    const sorted = [...groups.values()];
    sorted.sort((a, b) => collator.compare(target(a.row), target(b.row)) || collator.compare(library(a.row), library(b.row)) || a.row - b.row);
    return sorted;
  };
  const cellOf = (read, base, column) => {
    const value = read(column.row);
    if (!isKnown(value)) return make("td", { class: "number" }, unseen("not known"));
    if (typeof value === "string") return make("td", { class: "name" }, value);
    const before = read(base.row);
    const cell = make("td", { class: "number" }, digits.format(value));
    if (isKnown(before) && before !== value) {
      cell.classList.add("other");
      cell.append(make("small", {}, ` ${signed(value - before)}`));
    }
    return cell;
  };
  function drawKernel(text, state) {
    const wanted = strings.indexOf(text);
    const rows = [];
    for (let row = 0; row < count; row += 1) if (name(row) === wanted) rows.push(row);
    const back = new URLSearchParams(state);
    for (const key of ["kernel", "base", "differing"]) back.delete(key);
    const link = make("a", { href: `#kernels${String(back) && "?"}${back}` }, "All kernels");
    const heading = make("h3", { id: "one-kernel", class: "name", tabindex: "-1" });
    panel.replaceChildren(make("p", {}, link), heading);
    if (!rows.length) {
      heading.textContent = "No kernel of that name";
      return heading;
    }
    heading.textContent = names.shown(wanted);
    if (names.shown(wanted) !== strings[wanted]) panel.append(make("p", { class: "name inputs" }, strings[wanted]));
    const groups = columnsOf(rows);
    const shown = groups.slice(0, MOST_COLUMNS);
    const images = rows.length === groups.length ? "" : `, in ${plural(groups.length, "column")} of equal ones`;
    const cut = groups.length > shown.length ? `; shown are the first ${shown.length}` : "";
    panel.append(make("p", {}, `${plural(rows.length, "image")}${images}${cut}.`));
    const changed = document.getElementById("all-changes") && make("a", { href: `#changes?${new URLSearchParams({ text: strings[wanted] })}` }, "Changes of this kernel");
    if (changed) panel.append(make("p", {}, changed));
    const manyLibraries = shown.some(({ row }) => library(row) !== library(shown[0].row));
    const label = ({ row }) => target(row) + (manyLibraries ? `, ${short(row)}` : "");

    const base = make("select");
    shown.forEach((column, index) => base.add(new Option(label(column), String(index))));
    base.value = state.get("base") || "0";
    if (base.selectedIndex < 0) base.selectedIndex = 0;
    const only = make("input", { type: "checkbox" });
    only.checked = state.has("differing");
    const lines = [
      ["Offload kind", kind],
      ["Image", imageKind],
      ...(manyLibraries ? [["Library", library]] : []),
      ...known.map(({ title, read }) => [capital(title), read]),
    ].filter(([, read]) => shown.some(({ row }) => isKnown(read(row)) && read(row) !== ""));
    const body = make("tbody");
    const fill = () => {
      body.replaceChildren();
      for (const [title, read] of lines) {
        const values = new Set(shown.map(({ row }) => read(row)).filter(isKnown));
        const differs = values.size > 1;
        if (only.checked && !differs) continue;
        const mark = differs ? make("span", { class: "mark" }, "\u2260", unseen(" differs")) : "";
        body.append(make("tr", {}, make("th", { scope: "row" }, title), make("td", {}, mark),
          ...shown.map((column) => cellOf(read, shown[base.selectedIndex], column))));
      }
      if (!body.childElementCount) body.append(make("tr", {}, make("td", { colspan: String(shown.length + 2) }, "Nothing differs.")));
    };
    fill();
    const change = () => {
      fill();
      const kept = new URLSearchParams(state);
      for (const key of ["base", "differing"]) kept.delete(key);
      if (base.selectedIndex) kept.set("base", base.value);
      if (only.checked) kept.set("differing", "1");
      views.keep("kernels", kept);
    };
    const head = (column) => make("th", { scope: "col", class: "number name" }, label(column),
      column.images > 1 ? make("small", {}, ` ${plural(column.images, "image")}`) : null);
    panel.append(
      make("form", { class: "filters", onsubmit: (event) => event.preventDefault(), onchange: change },
        shown.length > 1 ? make("label", {}, make("span", {}, "Compare with"), base) : null,
        shown.length > 1 ? make("label", { class: "check" }, only, " only what differs") : null),
      make("div", { class: "scroll", role: "region", "aria-label": "Targets side by side", tabindex: "0" },
        make("table", { id: "one-kernel-table", class: "side" },
          make("caption", {}, "What each target needs; a small number is the difference from the one compared with"),
          make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Resource"),
            make("th", { scope: "col" }, "Differs"), ...shown.map(head))),
          body)),
    );
    return heading;
  }

  let lastRow = null; // of the kernel that was shown
  let isFirst = true;
  place.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-row]");
    if (link) lastRow = link.dataset.row;
  });
  views.whenShown("kernels", (state) => {
    const wasPanel = !panel.hidden;
    table.read(state);
    performance.mark("kernels"); // when there is something to see
    const kernel = state.get("kernel");
    panel.hidden = kernel === null;
    table.place.hidden = kernel !== null;
    for (const part of document.querySelectorAll("#kernels > section")) part.hidden = kernel !== null;
    if (kernel !== null) {
      const heading = drawKernel(kernel, state);
      if (!isFirst) {
        scrollTo(0, 0);
        heading.focus();
      }
    } else if (wasPanel) {
      const link = lastRow !== null && place.querySelector(`a[data-row="${lastRow}"]`);
      (link || document.getElementById("kernels-heading")).focus();
    }
    isFirst = false;
  });
}

// Gives texts of few kinds a number each, in their order.
function ranked(text, count) {
  let ranks = null;
  return (row) => {
    if (!ranks) {
      const values = new Set();
      for (let one = 0; one < count; one += 1) values.add(text(one));
      ranks = new Map([...values].sort(collator.compare).map((value, rank) => [value, rank]));
    }
    return ranks.get(text(row));
  };
}

const kernelsData = readData("kernels-data");
if (kernelsData) kernelView(kernelsData);

