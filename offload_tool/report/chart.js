// The chart. A tile is the images for one target ID in one place.

// White text on each is readable (4.5:1), and each contrasts with the page in both schemes.
const COLORS = ["#2f6fae", "#a85b12", "#2c7d4f", "#b0407f", "#6a5ac0", "#7d6f14",
  "#157a80", "#b64a3e", "#5b7420", "#8a4fb0", "#4a6f8f", "#8c6239"];
const GROUP = "#59636e";
const colors = new Map();

// Returns the nodes of the tiles, grouped by these fields, with the bytes of each group.
function treeOf(fields, area) {
  const nodes = [{ id: "0", label: "All", color: GROUP, parent: "", bytes: 0, images: 0 }];
  const known = new Map();
  for (const tile of data.tiles) {
    tile.place = tile.member ?? tile.file;
    const path = fields.filter((field) => tile[field] !== null);
    const way = [nodes[0]];
    path.forEach((field, depth) => {
      const key = JSON.stringify(path.slice(0, depth + 1).map((name) => [name, tile[name]]));
      if (!known.has(key)) {
        const color = path.indexOf("target") <= depth ? colors.get(tile.target) : GROUP;
        known.set(key, { id: String(nodes.length), label: tile[field], color, parent: way.at(-1).id, bytes: 0, images: 0 });
        nodes.push(known.get(key));
      }
      way.push(known.get(key));
    });
    for (const step of way) {
      step.bytes += tile.bytes;
      step.images += tile.images;
    }
  }
  // Plotly writes no more than its label on a tile with others in it, and nothing if that
  // is too long.
  const inner = new Set(nodes.map((one) => one.parent));
  for (const one of nodes) {
    const title = `${one.label}  ${readable(one.bytes)}`;
    const width = Math.sqrt((area * one.bytes) / nodes[0].bytes); // if it is a square
    one.title = inner.has(one.id) && 8 * title.length < width ? title : one.label;
  }
  return nodes;
}

function drawChart(plot, form) {
  const levels = form.elements.level;
  const isManyFiles = new Set(data.tiles.map(({ file }) => file)).size > 1;
  const orders = { target: ["target", "place"], file: [...(isManyFiles ? ["file", "member"] : ["place"]), "target"] };
  let nodes = [];

  // Plotly reads labels as a small part of HTML.
  const trace = (level) => ({
    type: "treemap",
    ids: nodes.map((one) => one.id),
    labels: nodes.map((one) => escaped(one.title)),
    parents: nodes.map((one) => one.parent),
    values: nodes.map((one) => one.bytes),
    text: nodes.map((one) => readable(one.bytes)),
    customdata: nodes.map((one) =>
      `${escaped(one.label)}<br>${number(one.bytes)} bytes in ${one.images} image${one.images === 1 ? "" : "s"}`),
    branchvalues: "total",
    level,
    texttemplate: "%{label}<br>%{text}, %{percentRoot:.1%}",
    hovertemplate: "%{customdata}<br>%{percentRoot:.1%} of all<extra></extra>",
    marker: { colors: nodes.map((one) => one.color), line: { width: 1 }, pad: { t: 24, l: 3, r: 3, b: 3 }, depthfade: false },
    textfont: { color: "#fff", size: 13 },
    tiling: { pad: 2 },
    pathbar: { thickness: 28, textfont: { color: "#fff", size: 13 } },
    hoverlabel: { font: { color: "#fff" }, bordercolor: "#fff" },
  });
  const layout = {
    margin: { l: 0, r: 0, t: 0, b: 0 },
    paper_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily },
    uniformtext: { minsize: 12, mode: "hide" },
  };
  function show(level) {
    levels.value = level;
    if (levels.value !== level) { // deeper than what the list offers
      levels.add(new Option(nodes[Number(level)].label, level));
      levels.value = level;
    }
    return Plotly.react(plot, [trace(level)], layout, { displayModeBar: false, responsive: true });
  }
  function regroup() {
    nodes = treeOf(orders[form.elements.first.value], plot.clientWidth * plot.clientHeight);
    const firsts = nodes.filter(({ parent }) => parent === "0");
    levels.replaceChildren(new Option("everything", "0"),
      ...firsts.map((node) => new Option(`${node.label}, ${readable(node.bytes)}`, node.id)));
    return show("0");
  }
  regroup();
  plot.ariaLabel = `Treemap of ${counted(data.totals.images, "device image")}, ${readable(data.totals.size)} in all.`;
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
}

// The rows of target IDs have the colours of their tiles.
const colorOf = (target) => {
  if (!colors.has(target)) colors.set(target, COLORS[colors.size % COLORS.length]);
  return colors.get(target);
};
for (const { columns, count } of data.views.sizes) {
  const target = columns.find(({ key }) => key === "target");
  if (!target) continue;
  for (let row = 0; row < count; row += 1) colorOf(target.value(row)); // by falling size
  const { html } = target;
  target.html = (row) => `<svg class="swatch" viewBox="0 0 12 12" aria-hidden="true"><rect width="12" height="12" fill="${
    colorOf(target.value(row))}"/></svg>${html(row)}`;
}

// Drawn when it is seen for the first time: it needs its width, and takes a moment.
const showSizes = views.listeners.sizes;
views.listeners.sizes = (parameters) => {
  const library = find("plotly");
  if (library?.textContent) {
    document.querySelector(".chart").hidden = false;
    document.body.append(make("script", { textContent: library.textContent })); // the policy knows its hash
    library.remove();
    drawChart(find("treemap"), find("controls"));
  }
  showSizes(parameters);
};
window.addEventListener("hashchange", () => views.show());
views.show();
