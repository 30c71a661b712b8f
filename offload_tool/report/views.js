"use strict";

// Views: the parts of the page that are shown one at a time. The address says which, and what it
// shows: `#kernels?text=gemm&sort=-vgprs`. Any other fragment is the ID of an element in one.
const views = {
  all: [...document.querySelectorAll(".view")],
  shown: "",
  listeners: new Map(), // name of a view -> what is called with its state when it is shown

  say(text) {
    document.getElementById("status").textContent = text;
  },

  whenShown(name, listener) {
    this.listeners.set(name, listener);
  },

  // Gives [view, state, element].
  read() {
    const text = location.hash.slice(1);
    const at = text.indexOf("?");
    const name = at < 0 ? text : text.slice(0, at);
    if (this.all.some((view) => view.id === name)) {
      return [name, new URLSearchParams(at < 0 ? "" : text.slice(at + 1)), null];
    }
    const element = document.getElementById(name);
    const view = element && element.closest(".view");
    return [view ? view.id : this.all[0].id, new URLSearchParams(), element];
  },

  show() {
    const [name, state, element] = this.read();
    const before = this.shown;
    this.shown = name;
    document.documentElement.dataset.view = name;
    for (const link of document.querySelectorAll(".views a")) {
      if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.querySelector(".skip").href = name === this.all[0].id ? "#tables" : `#${name}-heading`;
    const listener = this.listeners.get(name);
    if (listener) listener(state);
    if (element) element.scrollIntoView();
    if (before && before !== name) {
      scrollTo(0, 0);
      this.say(document.getElementById(`${name}-heading`).textContent);
    }
  },

  // Keeps in the address what a view shows, without a step of the history.
  keep(name, state) {
    const text = state.toString();
    const link = `#${name}${text && "?"}${text}`;
    if (link === location.hash || (name === this.shown && !text && !location.hash)) return;
    try {
      history.replaceState(history.state, "", link);
    } catch {
      // a browser that lets no file do so; the page works without
    }
  },
};

document.querySelector(".skip").addEventListener("click", (event) => {
  if (views.shown === views.all[0].id) return;
  event.preventDefault(); // the address is that of the view
  const place = document.querySelector(`#${views.shown} .place:not([hidden])`);
  (place || document.getElementById(`${views.shown}-heading`)).focus();
});
window.addEventListener("hashchange", () => views.show());

