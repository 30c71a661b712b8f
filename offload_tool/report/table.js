// A table of many rows, of which the page holds some at a time: real rows on numbered pages, which
// every screen reader and keyboard can go through.
const PAGE_SIZES = ["100", "500", "2000"];
const ALL_ROWS = "all"; // in which the browser's own search finds everything
const MOST_AT_ONCE = 5000; // a browser lays 30,000 out in a quarter of a minute

// what: noun of a row; columns: [{ key, title, isNumber, sorts(row), cell(row) }], of which the
// first is the row's header; order: of rows before any sorting, with what that is called.
class PagedTable {
  constructor(place, { view, what, title, columns, filters, sort, given, more }) {
    Object.assign(this, { view, what, columns, first: sort, more });
    this.sort = sort;
    this.page = 1;
    this.rows = [];
    this.filters = new Filters(filters, (isAll) => {
      if (isAll) this.sort = this.first;
      this.page = 1;
      this.update();
    });
    this.given = given;
    this.count = filters.count;
    this.said = make("p", { role: "status", class: "said" });
    this.caption = make("caption");
    this.body = make("tbody");
    const heads = columns.map(({ key, title: head, isNumber, className }) => {
      const button = make("button", { type: "button", onclick: () => this.sortBy(key) }, head);
      return make("th", { scope: "col", class: isNumber ? "number" : className || "", "data-key": key }, button);
    });
    this.heads = heads;
    this.table = make("table", { class: "paged", id: `${view}-table` }, this.caption,
      make("thead", {}, make("tr", { "aria-rowindex": "1" }, ...heads)), this.body);
    this.pager = this.makePager();
    this.place = make(
      "div",
      { class: "place", tabindex: "-1" },
      this.filters.form,
      this.said,
      make("div", { class: "scroll", role: "region", "aria-label": title, tabindex: "0" }, this.table),
      this.pager,
    );
    place.append(this.place);
  }

  makePager() {
    this.steps = ["First", "Previous", "Next", "Last"].map((text, index) =>
      make("button", { type: "button", onclick: () => this.turn(index) }, text));
    this.number = make("input", { type: "number", min: "1", "aria-label": "Page" });
    this.number.addEventListener("change", () => this.turnTo(Number(this.number.value)));
    this.last = make("span");
    this.size = make("select");
    this.sizes = [...PAGE_SIZES, ...(this.count <= MOST_AT_ONCE ? [ALL_ROWS] : [])];
    for (const size of this.sizes) this.size.add(new Option(size === ALL_ROWS ? size : digits.format(size), size));
    this.size.addEventListener("change", () => this.turnTo(1));
    const [first, previous, next, last] = this.steps;
    return make("nav", { class: "pager", "aria-label": "Pages of the table" },
      first, previous, make("span", {}, "Page ", this.number, " of ", this.last), next, last,
      make("label", {}, "Rows on a page ", this.size));
  }

  get perPage() {
    return this.size.value === ALL_ROWS ? MOST_AT_ONCE : Number(this.size.value);
  }

  get pages() {
    return Math.max(Math.ceil(this.rows.length / this.perPage), 1);
  }

  turn(index) {
    this.turnTo([1, this.page - 1, this.page + 1, this.pages][index]);
  }

  turnTo(page) {
    const number = Math.min(Math.max(Math.trunc(page) || 1, 1), this.pages);
    this.page = number;
    this.draw();
    this.keep();
    views.say(this.caption.textContent);
  }

  sortBy(key) {
    const column = this.columns.find((one) => one.key === key);
    const [falls, rises] = [`-${key}`, key];
    if (this.sort === falls) this.sort = rises;
    else if (this.sort === rises) this.sort = falls;
    else this.sort = column.isNumber ? falls : rises;
    this.page = 1;
    this.update();
    views.say(`Sorted by ${column.title}, ${this.sort === falls ? "descending" : "ascending"}.`);
  }

  read(state) {
    this.filters.read(state);
    const sort = state.get("sort") || "";
    const isKnownSort = this.columns.some(({ key }) => key === sort.replace(/^-/, ""));
    this.sort = isKnownSort ? sort : this.first;
    const rows = state.get("rows");
    this.size.value = this.sizes.includes(rows) ? rows : PAGE_SIZES[0];
    this.page = Math.max(Math.trunc(Number(state.get("page"))) || 1, 1);
    this.update(true);
  }

  state() {
    const state = new URLSearchParams();
    this.filters.write(state);
    if (this.sort !== this.first) state.set("sort", this.sort);
    if (this.size.value !== PAGE_SIZES[0]) state.set("rows", this.size.value);
    if (this.page > 1) state.set("page", String(this.page));
    return state;
  }

  keep() {
    views.keep(this.view, this.state());
    if (this.more) this.more(this);
  }

  // Chooses, sorts and shows; what is not known comes last, whatever the order.
  update(isRead = false) {
    const rows = this.filters.rows();
    const key = this.sort.replace(/^-/, "");
    const column = this.columns.find((one) => one.key === key);
    if (column) {
      const sign = this.sort.startsWith("-") ? -1 : 1;
      const values = new Map(rows.map((row) => [row, column.sorts(row)]));
      rows.sort((a, b) => {
        const [one, other] = [values.get(a), values.get(b)];
        if (one === other) return a - b;
        if (!isKnown(one) || !isKnown(other)) return isKnown(one) ? -1 : isKnown(other) ? 1 : a - b;
        return (one < other ? -sign : sign);
      });
    }
    this.rows = rows;
    this.page = Math.min(this.page, this.pages);
    for (const head of this.heads) {
      if (head.dataset.key !== key) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", this.sort.startsWith("-") ? "descending" : "ascending");
    }
    const verb = rows.length === 1 ? "matches" : "match";
    const all = plural(this.count, this.what);
    const text = rows.length === this.count ? `All ${all}.` : `${digits.format(rows.length)} of ${all} ${verb}.`;
    if (!isRead || this.said.textContent !== text) this.said.textContent = text;
    this.draw();
    if (!isRead) this.keep();
  }

  draw() {
    const start = (this.page - 1) * this.perPage;
    const shown = this.rows.slice(start, start + this.perPage);
    const range = shown.length
      ? `Rows ${digits.format(start + 1)} to ${digits.format(start + shown.length)} of ${digits.format(this.rows.length)}`
      : "No rows";
    this.caption.textContent = this.sort ? range : `${range}, ${this.given}`;
    this.table.setAttribute("aria-rowcount", String(this.rows.length + 1));
    const fragment = document.createDocumentFragment();
    shown.forEach((row, index) => {
      const line = make("tr", { "aria-rowindex": String(start + index + 2) });
      this.columns.forEach((column, position) => {
        const cell = position
          ? make("td", { class: column.isNumber ? "number" : column.className || "" })
          : make("th", { scope: "row", class: column.className || "" });
        const content = column.cell(row);
        if (content !== null && content !== undefined) cell.append(content);
        line.append(cell);
      });
      fragment.append(line);
    });
    if (!shown.length) {
      fragment.append(make("tr", {}, make("td", { colspan: String(this.columns.length) }, `No ${this.what} matches.`)));
    }
    this.body.replaceChildren(fragment);
    this.number.value = String(this.page);
    this.number.max = String(this.pages);
    this.last.textContent = digits.format(this.pages);
    this.steps.forEach((button, index) => {
      const isOff = index < 2 ? this.page === 1 : this.page === this.pages;
      button.setAttribute("aria-disabled", String(isOff)); // not `disabled`: the focus stays
    });
  }
}

