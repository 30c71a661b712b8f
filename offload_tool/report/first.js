"use strict";

// Before anything is drawn: which view the address asks for. Without scripts all are shown.
document.documentElement.dataset.view =
  (/^#(kernels|changes)(?![\w-])/.exec(location.hash) || ["", "sizes"])[1];
