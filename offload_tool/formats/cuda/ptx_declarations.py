r"""The module-scope variables of clang's PTX: their order, and two names that no linker accepts.

Clang writes each variable after those that its initializer names, and takes the latter from a set
of pointers: the order differs from run to run. `settled` gives them one order. In relocatable code,
it also corrects what nvcc accepts and NVIDIA's linkers refuse::

    .extern .global .u32 _ZL1v;                    a static variable whose first user was device
    .visible .global .u32 _ZL1v__static__HASH;     code: host code knows it by the second name,
                                                   which becomes that of all uses

    .extern .func _Z1kPi ( ... ) ;                 a kernel of another source, which host code
    .global .align 8 .u64                          starts: declared as a function, to keep it for
        __clang_gpu_used_external[1] = {_Z1kPi};   a linker of archives; both are removed

Source: clang 22.1.8 and 23.1, observed; VisitGlobalVariable in NVPTXAsmPrinter of LLVM 22.
"""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter

_VARIABLE = re.compile(
    rb"^(?P<linkage>\.(?:visible|extern|weak|common) )?\.(?:global|const|shared) [^=;\n]*?"
    rb"(?P<name>[A-Za-z_$%][\w$]*)(?:\[\d*\])*(?: = (?P<initial>[^\n]*))?;$\n?",
    re.MULTILINE,
)
_BODY = re.compile(rb"^\{", re.MULTILINE)
"""Of the first function: all variables precede it."""
_IDENTIFIER = re.compile(rb"[A-Za-z_$%][\w$]*")
_STATIC = re.compile(rb"(?P<plain>.+?)__static__[0-9a-f]+")
_USED = b"__clang_gpu_used_external"
_ELEMENTS = re.compile(rb"\[\d+\] = \{(.*)\};")
_LEAST = 2
"""Variables in an initializer whose order is open."""


def settled(module: bytes) -> bytes:
    """Return a module of clang's with its variables in one order, under names that link."""
    if b"__static__" in module:
        module = _one_name(module)
    if _USED in module:
        module = _without_kernels(module)
    return _in_order(module)


def _variables(module: bytes) -> list[re.Match[bytes]]:
    body = _BODY.search(module)
    return [*_VARIABLE.finditer(module, 0, body.start() if body else len(module))]


def _one_name(module: bytes) -> bytes:
    """Return the module with one name for each static variable that it declares and defines."""
    rows = _variables(module)
    declared = {row["name"] for row in rows if row["linkage"] == b".extern "}
    plain = {row["name"]: _STATIC.fullmatch(row["name"]) for row in rows}
    names = {found["plain"]: name for name, found in plain.items() if found is not None}
    names = {name: names[name] for name in declared & names.keys()}
    if not names:
        return module
    for row in reversed(rows):
        if row["name"] in names:
            module = module[: row.start()] + module[row.end() :]
    return _IDENTIFIER.sub(lambda found: names.get(found[0], found[0]), module)


def _without_kernels(module: bytes) -> bytes:
    """Return the module without declarations of kernels that only host code starts."""
    row = next((row for row in _variables(module) if row["name"] == _USED), None)
    elements = _ELEMENTS.search(row[0]) if row is not None else None
    if row is None or elements is None:
        return module
    every = elements[1].split(b", ")
    kept = [name for name in every if not _IDENTIFIER.fullmatch(name)]
    head = row[0][: elements.start()]
    line = b"%b[%d] = {%b};\n" % (head, len(kept), b", ".join(kept)) if kept else b""
    rest = module[: row.start()] + line + module[row.end() :]
    for name in set(every) - set(kept):
        declaration = re.compile(rb"^\.extern \.func  ?%b\n\([^()]*\)\n;\n" % name, re.MULTILINE)
        without = declaration.sub(b"", rest)
        if not re.search(rb"(?<![\w$])%b(?![\w$])" % name, without):
            rest = without
    return rest


def _in_order(module: bytes) -> bytes:
    """Return the module with its variables in the order of their names, each before its users."""
    rows = _variables(module)
    names = {row["name"] for row in rows}
    needs = {
        row["name"]: names.intersection(_IDENTIFIER.findall(row["initial"])) - {row["name"]}
        for row in rows
        if row["initial"]
    }
    is_open = any(len(found) >= _LEAST for found in needs.values())
    if not is_open or len(names) < len(rows):
        return module
    sorter = TopologicalSorter({name: needs.get(name, set()) for name in names})
    try:
        sorter.prepare()
    except CycleError:
        return module
    order: list[bytes] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        order += ready
        sorter.done(*ready)
    text = {row["name"]: row[0] for row in rows}
    parts, at = [], 0
    for row, name in zip(rows, order, strict=True):
        parts += [module[at : row.start()], text[name]]
        at = row.end()
    return b"".join([*parts, module[at:]])
