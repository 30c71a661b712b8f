// One kernel, with its targets side by side. Images that say the same of it are one column.
function drawKernel(table, wanted) {
  const back = views.kept.kernels || "";
  const [name, ...others] = table.columns;
  const rows = [];
  for (let row = 0; row < table.count; row += 1) if (name.value(row) === wanted) rows.push(row);
  const heading = make("h3", { id: "one-kernel-name", tabIndex: -1 }, rows.length ? name.shown(rows[0]) : "No kernel of that name");
  const parts = [make("p", {}, make("a", { href: `#kernels${back && "?"}${back}` }, "All kernels")), heading];
  if (!rows.length) return parts;
  if (name.shown(rows[0]) !== wanted) parts.push(make("p", { className: "inputs" }, wanted));

  const groups = new Map();
  for (const row of rows) {
    const key = JSON.stringify(others.map(({ value }) => value(row)));
    groups.set(key, [...(groups.get(key) || []), row]);
  }
  const [target, library] = ["target", "library"].map((key) => others.find((column) => column.key === key));
  const shown = [...groups.values()].sort(([one], [other]) => target.sort(one) - target.sort(other) || library.sort(one) - library.sort(other));
  parts.push(make("p", {}, `${counted(rows.length, "image")}.`));
  if (data.views.changes) {
    parts.push(make("p", {}, make("a", { href: `#changes?${new URLSearchParams({ text: wanted })}` }, "Changes of this kernel")));
  }

  const isOneLibrary = new Set(shown.map(([row]) => library.value(row))).size === 1;
  const base = make("select", {}, ...shown.map(([row], at) => new Option(`${target.value(row)} ${isOneLibrary ? "" : library.value(row)}`, at)));
  const body = make("tbody");
  const fill = () => {
    const [first] = shown[base.value];
    const lines = others.filter((column) => column !== target && (column.isNumber || column.visible));
    body.replaceChildren(...lines.map(({ title, value, isNumber }) => {
      const cells = shown.map(([row]) => {
        const [one, other] = [value(row), value(first)];
        const cell = make("td", { className: one === other ? "number" : "number other" }, isNumber ? number(one) : one);
        if (isNumber && one !== other && isKnown(one) && isKnown(other)) cell.append(make("small", {}, ` ${signed(one - other)}`));
        return cell;
      });
      const differs = new Set(shown.map(([row]) => value(row))).size > 1;
      return make("tr", {}, make("th", { scope: "row" }, title), make("td", {}, differs ? "\u2260" : ""), ...cells);
    }));
  };
  base.addEventListener("change", fill);
  fill();
  const heads = ["Resource", "Differs"].map((title) => make("th", { scope: "col" }, title));
  for (const [row, ...same] of shown) {
    const images = same.length ? ` (${same.length + 1} images)` : "";
    heads.push(make("th", { scope: "col", className: "number" }, `${target.value(row)}${images}`));
  }
  const side = make("table", { className: "side" }, make("thead", {}, make("tr", {}, ...heads)), body);
  const scroll = make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Targets side by side" }, side);
  if (shown.length > 1) parts.push(make("label", {}, "Compare with ", base));
  return [...parts, scroll];
}

const showKernels = views.listeners.kernels;
if (showKernels) views.listeners.kernels = (parameters) => {
  const [panel, wanted] = [find("one-kernel"), parameters.get("kernel")];
  panel.hidden = wanted === null;
  document.querySelector("#kernels .tables").hidden = !panel.hidden;
  if (panel.hidden) return showKernels(parameters);
  panel.replaceChildren(...drawKernel(data.views.kernels[0], wanted));
  panel.querySelector("h3").focus();
};
