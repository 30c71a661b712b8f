// What rows a table shows: words in a name, one value of a column, limits of numbers. The state of
// such a form is a part of the page's address.
const SIGNS = { ">": "more than", ">=": "at least", "<": "less than", "<=": "at most", "=": "exactly" };
const TESTS = {
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  "=": (a, b) => a === b,
};
const MOST_CONDITIONS = 20;

// choices: [{ key, title, value(row) }], measures: [{ key, title, number(row) }].
class Filters {
  constructor({ count, name, names, choices, measures }, changed) {
    Object.assign(this, { count, name, names, changed });
    this.measures = new Map(measures.map((measure) => [measure.key, measure]));
    this.choices = choices
      .map((choice) => ({ ...choice, values: this.valuesOf(choice) }))
      .filter((choice) => choice.values.length > 1);
    this.text = make("input", { type: "search", autocomplete: "off", spellcheck: "false" });
    for (const choice of this.choices) {
      choice.select = make("select", {}, new Option("all", ""));
      for (const value of choice.values) {
        choice.select.add(new Option(value || "none", value));
      }
    }
    this.conditions = make("div", { class: "conditions" });
    this.add = make("button", { type: "button", onclick: () => this.addCondition(true) }, "Add a limit");
    this.clear = make("button", { type: "button", onclick: () => this.reset() }, "Clear all");
    this.form = make(
      "form",
      { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      make("label", { class: "wide" }, make("span", {}, "Name contains"), this.text),
      ...this.choices.map(({ title, select }) => make("label", {}, make("span", {}, title), select)),
      make("fieldset", { class: "limits" }, make("legend", { class: "unseen" }, "Limits"), this.conditions),
      make("div", { class: "buttons" }, this.measures.size ? this.add : null, this.clear),
    );
    let timer = 0;
    this.text.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(changed, 200); // not for every letter
    });
    this.form.addEventListener("change", (event) => event.target !== this.text && changed());
  }

  valuesOf(choice) {
    const values = new Set();
    for (let row = 0; row < this.count; row += 1) values.add(choice.value(row));
    return [...values].sort(collator.compare);
  }

  addCondition(isUsers, key = this.measures.keys().next().value, sign = ">", number = "0") {
    if (this.conditions.childElementCount >= MOST_CONDITIONS || !this.measures.size) return;
    const measure = make("select", { "aria-label": "Of what" });
    for (const { key: one, title } of this.measures.values()) measure.add(new Option(title, one));
    measure.value = key;
    const signs = make("select", { "aria-label": "How" });
    for (const [one, text] of Object.entries(SIGNS)) signs.add(new Option(text, one));
    signs.value = sign;
    const value = make("input", { type: "number", "aria-label": "Number", step: "any" });
    value.value = number;
    const remove = make("button", { type: "button", "aria-label": "Remove this limit" }, "\u00d7");
    const line = make("div", {}, measure, signs, value, remove);
    remove.addEventListener("click", () => {
      line.remove();
      this.add.focus();
      this.changed();
    });
    this.conditions.append(line);
    if (isUsers) {
      measure.focus();
      this.changed();
    }
  }

  reset() {
    this.read(new URLSearchParams());
    this.changed(true);
  }

  // Takes what a link says as far as it makes sense.
  read(state) {
    this.text.value = state.get("text") || "";
    for (const { key, values, select } of this.choices) {
      const value = state.get(key);
      select.value = value !== null && values.includes(value) ? value : "";
      if (value === "" && state.has(key)) select.selectedIndex = values.indexOf("") + 1;
    }
    this.conditions.replaceChildren();
    for (const text of state.getAll("where")) {
      const [, key, sign, number] = /^(\w+)(>=|<=|>|<|=)(-?\d+(?:\.\d+)?)$/.exec(text) || [];
      if (this.measures.has(key)) this.addCondition(false, key, sign, number);
    }
  }

  limits() {
    return [...this.conditions.children].flatMap((line) => {
      const [measure, sign, value] = [...line.children].map((one) => one.value);
      return value === "" ? [] : [{ measure, sign, value }];
    });
  }

  write(state) {
    if (this.text.value.trim()) state.set("text", this.text.value.trim());
    for (const { key, select } of this.choices) if (select.selectedIndex > 0) state.set(key, select.value);
    for (const { measure, sign, value } of this.limits()) state.append("where", `${measure}${sign}${value}`);
  }

  // Gives the rows that fit.
  rows() {
    const words = this.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const tests = [];
    for (const { value, select } of this.choices) {
      if (select.selectedIndex > 0) tests.push((row) => value(row) === select.value);
    }
    for (const { measure, sign, value } of this.limits()) {
      const { number } = this.measures.get(measure);
      const [test, limit] = [TESTS[sign], Number(value)];
      tests.push((row) => isKnown(number(row)) && test(number(row), limit));
    }
    if (words.length) {
      const fitting = new Map();
      tests.push((row) => {
        const name = this.name(row);
        if (!fitting.has(name)) {
          const text = this.names.searched(name);
          fitting.set(name, words.every((word) => text.includes(word)));
        }
        return fitting.get(name);
      });
    }
    const rows = [];
    for (let row = 0; row < this.count; row += 1) if (tests.every((test) => test(row))) rows.push(row);
    return rows;
  }
}

