// Sorting: each header of a table becomes a button. Rows that are equal keep their order.
const collator = new Intl.Collator("en", { numeric: true });

function sortBy(table, header, column) {
  const isNumber = header.classList.contains("number") || header.classList.contains("share");
  const before = header.getAttribute("aria-sort");
  const falling = before ? before === "ascending" : isNumber;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", falling ? "descending" : "ascending");
  const value = (row) => {
    const cell = row.cells[column];
    return isNumber ? BigInt(cell.dataset.value) : cell.textContent;
  };
  const rows = [...table.tBodies[0].rows].map((row) => [value(row), row]);
  const compare = isNumber ? (a, b) => (a < b ? -1 : a > b ? 1 : 0) : collator.compare;
  rows.sort((a, b) => (falling ? compare(b[0], a[0]) : compare(a[0], b[0])));
  table.tBodies[0].append(...rows.map(([, row]) => row));
  views.say(`Sorted by ${header.textContent}, ${falling ? "descending" : "ascending"}.`);
}

for (const table of document.querySelectorAll("table.static")) {
  [...table.tHead.rows[0].cells].forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sortBy(table, header, column));
    header.append(button);
  });
}

// The picture. A cell is the images for one target ID in one place; it becomes a tile.
function drawTreemap(plot, form) {
  const { cells, severalFiles } = JSON.parse(document.getElementById("cells").textContent);
  const levels = document.getElementById("level");

  // Plotly reads labels as a small part of HTML.
  const plain = (text) =>
    text.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);
  const readable = (bytes) => {
    const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    for (; bytes >= 1024 && unit < units.length - 1; unit += 1) bytes /= 1024;
    return `${unit ? bytes.toFixed(1) : bytes} ${units[unit]}`;
  };

  const group = "#59636e";
  const orders = {
    target: ["target", "place"],
    file: severalFiles ? ["file", "member", "target"] : ["place", "target"],
  };

  function tree(order) {
    const node = (label, color, parent) => ({ label, color, parent, bytes: 0, images: 0 });
    const nodes = [{ ...node("All", group, ""), id: "0" }];
    const known = new Map();
    for (const cell of cells) {
      const path = order.filter((field) => cell[field] !== null);
      const way = [nodes[0]];
      path.forEach((field, depth) => {
        const key = JSON.stringify(path.slice(0, depth + 1).map((name) => [name, cell[name]]));
        if (!known.has(key)) {
          const isTarget = path.indexOf("target") <= depth;
          known.set(key, node(cell[field], isTarget ? cell.color : group, way.at(-1).id));
          known.get(key).id = String(nodes.length);
          nodes.push(known.get(key));
        }
        way.push(known.get(key));
      });
      for (const step of way) {
        step.bytes += cell.bytes;
        step.images += cell.images;
      }
    }
    // Plotly writes no more than its label on a tile with others in it, and nothing if that
    // is too long.
    const inner = new Set(nodes.map((one) => one.parent));
    const area = plot.clientWidth * plot.clientHeight;
    for (const one of nodes) {
      const title = `${one.label}  ${readable(one.bytes)}`;
      const width = Math.sqrt((area * one.bytes) / nodes[0].bytes); // if it is a square
      one.title = inner.has(one.id) && 8 * title.length < width ? title : one.label;
    }
    return nodes;
  }

  let nodes = [];
  function traces(level) {
    const hover = (n) =>
      `${plain(n.label)}<br>${n.bytes.toLocaleString("en")} bytes in ${n.images} ` +
      `image${n.images === 1 ? "" : "s"}`;
    return [{
      type: "treemap",
      ids: nodes.map((n) => n.id),
      labels: nodes.map((n) => plain(n.title)),
      parents: nodes.map((n) => n.parent),
      values: nodes.map((n) => n.bytes),
      text: nodes.map((n) => readable(n.bytes)),
      customdata: nodes.map(hover),
      branchvalues: "total",
      level,
      texttemplate: "%{label}<br>%{text}, %{percentRoot:.1%}",
      hovertemplate: "%{customdata}<br>%{percentRoot:.1%} of all<extra></extra>",
      marker: { colors: nodes.map((n) => n.color), line: { width: 1 }, pad: { t: 24, l: 3, r: 3, b: 3 }, depthfade: false },
      textfont: { color: "#fff", size: 13 },
      tiling: { pad: 2 },
      pathbar: { thickness: 28, textfont: { color: "#fff", size: 13 } },
      hoverlabel: { font: { color: "#fff" }, bordercolor: "#fff" },
    }];
  }
  const layout = {
    margin: { l: 0, r: 0, t: 0, b: 0 },
    paper_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily },
    uniformtext: { minsize: 12, mode: "hide" },
  };
  const options = { displayModeBar: false, responsive: true };

  function show(level) {
    levels.value = level;
    if (levels.value !== level) { // deeper than what the list offers
      levels.add(new Option(nodes[Number(level)].label, level));
      levels.value = level;
    }
    return Plotly.react(plot, traces(level), layout, options);
  }
  function regroup() {
    nodes = tree(orders[form.elements.first.value]);
    levels.replaceChildren(new Option("everything", "0"));
    for (const node of nodes) {
      if (node.parent === "0") {
        levels.add(new Option(`${node.label}, ${readable(node.bytes)}`, node.id));
      }
    }
    return show("0");
  }

  regroup();
  plot.on("plotly_treemapclick", (event) => {
    if (event.nextLevel !== undefined) show(event.nextLevel || "0");
    return false; // no animation: what is shown and the list are always the same
  });
  plot.on("plotly_afterplot", () => {
    for (const svg of plot.querySelectorAll(".main-svg")) { // so that print can scale it
      svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
    }
  });
  form.addEventListener("change", (event) => (event.target === levels ? show(levels.value) : regroup()));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
}

// Drawn when it is seen for the first time: it needs its width, and takes a moment.
const plot = document.getElementById("treemap");
let isDrawn = false;
views.whenShown(views.all[0].id, () => {
  if (!plot || isDrawn) return;
  isDrawn = true;
  const library = document.createElement("script"); // the policy knows its hash
  library.textContent = document.getElementById("plotly").textContent;
  document.body.append(library);
  drawTreemap(plot, document.getElementById("controls"));
});

