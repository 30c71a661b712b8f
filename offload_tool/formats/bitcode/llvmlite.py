"""Compile LLVM IR text to bitcode or object files with llvmlite.

llvmlite is large and loaded on first use: only registration modules need it. Each module has its
own context, so that modules do not share type names.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterable
from functools import cache
from typing import Any

from offload_tool.errors import UsageError, shortage

_lock = threading.Lock()
_JUMP_TABLES = "-min-jump-table-entries=4"
"""LLVM's default. The code generators of some targets (such as PowerPC) change this global option,
which would affect the next module, for another target."""
_MISSING = (
    "making a registration module needs llvmlite (LLVM as a library), which is not installed; "
    "pip install llvmlite"
)


def assemble(text: Iterable[str], _triple: str = "", /) -> bytes:
    """Return the bitcode of a module in pieces of LLVM IR; raise UsageError without llvmlite."""
    with _lock:
        llvm = _load()
        with _parse(llvm, "".join(text)) as module:
            return bytes(module.as_bitcode())


def compile_object(text: str, triple: str, /) -> bytes:
    """Return the position-independent object of a module in LLVM IR; raise UsageError."""
    with _lock:
        llvm = _load()
        try:
            target = llvm.Target.from_triple(triple)
        except RuntimeError as error:
            raise UsageError(
                f"cannot make an object for '{triple}': llvmlite {_version(llvm)} has no code "
                "generator for it; write bitcode (.bc) and compile that with a clang that has"
            ) from error
        llvm.set_option("", _JUMP_TABLES)
        machine = target.create_target_machine(opt=0, reloc="pic", codemodel="default")
        with _parse(llvm, text) as module:
            return bytes(machine.emit_object(module))


def _parse(llvm: Any, text: str) -> Any:
    module = llvm.parse_assembly(text, context=llvm.create_context())
    module.verify()
    return module


def _version(llvm: Any) -> str:
    version = importlib.import_module("llvmlite").__version__
    return f"{version} (LLVM {'.'.join(map(str, llvm.llvm_version_info))})"


@cache
def _load() -> Any:
    try:
        llvm = importlib.import_module("llvmlite.binding")
    except (ImportError, OSError) as error:  # OSError: a library of llvmlite does not load
        if shortage(error):
            raise MemoryError from error
        if isinstance(error, ModuleNotFoundError):
            raise UsageError(_MISSING) from error
        raise UsageError(
            f"llvmlite (LLVM as a library) cannot be loaded: {error}; install llvmlite again"
        ) from error
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm
