// The table of changed kernels.
function changeView(data) {
  const { before, after, titles, count } = data;
  const names = nameIndex();
  const [oldName, newName] = [reader(before.name), reader(after.name)];
  const name = (row) => (isKnown(newName(row)) ? newName(row) : oldName(row));
  const target = textReader(data.target);
  const library = textReader(data.library);
  const change = textReader(data.change);
  const numbers = Object.keys(titles).map((key) => ({ key, title: titles[key], was: reader(before[key]), is: reader(after[key]) }));
  const grownBy = ({ was, is }) => (row) =>
    isKnown(was(row)) || isKnown(is(row)) ? (is(row) || 0) - (was(row) || 0) : null;
  const [size] = numbers.filter(({ key }) => key === "code_size");
  const grown = grownBy(size);
  const needs = numbers.filter((one) => one !== size);
  const differing = (row) => (change(row) === "changed" ? needs.filter(({ was, is }) => was(row) !== is(row)) : []);
  const shown = (number) => (isKnown(number) ? digits.format(number) : "none");
  const needsText = (row) => {
    const parts = differing(row).map(({ title, was, is }) => `${title} ${shown(was(row))} to ${shown(is(row))}`);
    if (!parts.length && change(row) === "changed" && !grown(row)) return "other instructions";
    return parts.join(", ");
  };
  const allNames = () => Array.from({ length: count }, (_, row) => name(row));
  const columns = [
    {
      key: "name",
      title: "Kernel",
      className: "name",
      sorts: (row) => names.rank(name(row), allNames),
      cell: (row) => shortened(names.shown(name(row))),
    },
    { key: "change", title: "Change", sorts: change, cell: change },
    { key: "target", title: "Target ID", className: "name", sorts: ranked(target, count), cell: target },
  ];
  if (Array.isArray(data.library)) {
    columns.push({ key: "library", title: "Library", className: "name", sorts: ranked(library, count), cell: library });
  }
  const number = (key, title, read, format) => columns.push({
    key, title, isNumber: true, sorts: read, cell: (row) => (isKnown(read(row)) ? format(read(row)) : ""),
  });
  number("before", "Before (bytes)", size.was, digits.format.bind(digits));
  number("after", "After (bytes)", size.is, digits.format.bind(digits));
  number("grown", "Grown", grown, signed);
  columns.push({ key: "needs", title: "Needs", sorts: (row) => -differing(row).length, cell: needsText });
  const measures = [
    { key: "grown", title: "Code grown by (bytes)", number: grown },
    ...needs.map((one) => ({ key: one.key, title: `${one.title} grown by`, number: (row) => (change(row) === "changed" ? grownBy(one)(row) : null) })),
    { key: "after", title: "Code after (bytes)", number: size.is },
  ].filter(({ number: read }) => Array.from({ length: count }, (_, row) => read(row)).some((one) => one));
  const place = document.getElementById("all-changes");
  place.append(make("h3", {}, "Kernels"));
  const table = new PagedTable(place, {
    view: "changes",
    what: "change",
    title: "Table of changed kernels",
    given: "what weighs most first",
    sort: "",
    columns,
    filters: {
      count,
      name,
      names,
      choices: [
        { key: "change", title: "Change", value: change },
        { key: "target", title: "Target ID", value: target },
        { key: "library", title: "Library", value: library },
      ],
      measures,
    },
  });
  views.whenShown("changes", (state) => table.read(state));
}

const changesData = readData("changes-data");
if (changesData) changeView(changesData);

views.show();
