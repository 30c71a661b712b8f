"""A compiler that counts: clang, with a line in a log for each compile. Run as a program.

``counting_clang.py <folder> <clang> <words>...``. In the folder are ``compiles.log``, to which
each compile adds a line of JSON, and perhaps ``control.json``, which asks for more:

- ``inspect``: tell what the compile depends on: what clang's driver makes of the words, what its
  preprocessor reads and gives, and the files that the command line names;
- ``match`` with ``act``: at the first compile whose output's name holds that text, ``wait`` (until
  killed), ``die`` (leave half of an output) or ``save`` (write ``file`` once clang has ended).

Needs nothing but the standard library, and starts in isolated mode, since it starts often.
"""

# It starts for each compile, and to load pathlib would double its time.
# ruff: noqa: PTH108, PTH109, PTH110, PTH113, PTH117, PTH120, PTH123, PTH202

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

_NO_COMPILE = {"-###", "-E", "-M", "-MM", "-fsyntax-only"}
_ALONE = {"-c", "-S", "-emit-llvm", "-MD", "-MMD", "--save-temps", "-save-temps=obj", "-save-temps"}
_WITH_NEXT = {"-o", "-MF", "-MT"}
_FRONT_END = {"-dependency-file", "-MT"}
_VARIABLES = (
    *("CCC_OVERRIDE_OPTIONS", "COMPILER_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    "SOURCE_DATE_EPOCH",
)
_TEMPORARY = re.compile(r"-[0-9a-f]{6}(\.\w+)?$")


def main() -> int:
    folder, clang, *args = sys.argv[1:]
    if not _compiles(args):
        os.execv(clang, [clang, *args])
    output = args[args.index("-o") + 1]
    record: dict[str, object] = {"output": output}
    control = _control(folder)
    if control.get("inspect"):
        record |= _inspect(clang, args)
    with open(f"{folder}/compiles.log", "a", encoding="utf-8") as log:
        log.write(json.dumps(record) + "\n")
    if str(control.get("match", "\n")) not in output:
        os.execv(clang, [clang, *args])
    try:
        os.unlink(f"{folder}/control.json")  # once only
    except FileNotFoundError:
        os.execv(clang, [clang, *args])
    return _act(control, folder, clang, args, output)


def _compiles(args: list[str]) -> bool:
    if "-o" not in args or _NO_COMPILE.intersection(args) or {"-c", "-S"}.isdisjoint(args):
        return False
    output = args[args.index("-o") + 1]
    if output.endswith("/registration.o"):  # of a module that no source is compiled for
        return False
    # The others are questions: a compiler's trial, what a precompiled header puts into each object.
    return (
        "/offload-trial-" not in output
        and output != os.devnull
        and not output.startswith(".offload-pch/")
    )


def _control(folder: str) -> dict[str, object]:
    try:
        with open(f"{folder}/control.json", encoding="utf-8") as file:
            return dict(json.load(file))
    except FileNotFoundError:
        return {}


def _act(control: dict[str, object], folder: str, clang: str, args: list[str], output: str) -> int:
    if control["act"] == "wait":
        with open(f"{folder}/waiting", "w", encoding="utf-8"):
            pass
        time.sleep(300)
    status = subprocess.call([clang, *args])
    if control["act"] == "die":
        os.truncate(output, os.path.getsize(output) // 2)
        os.kill(os.getpid(), signal.SIGKILL)
    if control["act"] == "save":
        with open(str(control["file"]), "w", encoding="utf-8") as file:
            file.write(str(control["text"]))
    return status


def _inspect(clang: str, args: list[str]) -> dict[str, object]:
    plain = _plain(args)
    lines = _driver_lines(clang, plain, args)
    files: dict[str, str] = {}
    text = ""
    if ("-x", "ir") not in itertools.pairwise(args):
        files, text = _preprocessed(clang, plain)
    named = {word for line in lines for word in line}
    named |= {word[1:] for word in plain if word.startswith("@")}
    named |= {word.removeprefix("--config=") for word in plain}
    files |= {name: _digest(name) for name in map(_local, named) if os.path.isfile(name)}
    files.pop(_local(args[args.index("-o") + 1]), None)
    variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    command = [" ".join(_TEMPORARY.sub(r"\1", _local(word)) for word in line) for line in lines]
    own = {name: files[name] for name in sorted(files) if not os.path.isabs(name)}
    plain_text = " ".join(map(_local, plain))
    return {
        "command": [*command, json.dumps(variables)],
        "files": own,
        "text": text,
        "words": plain_text,
    }


def _plain(args: list[str]) -> list[str]:
    """Return the words without those that say what is written, and where."""
    kept = []
    rest = iter(args)
    for word in rest:
        if word in _ALONE:
            continue
        if word in _WITH_NEXT:
            next(rest)
        elif word == "-Xclang":
            inner = next(rest)
            if inner in _FRONT_END:
                next(rest), next(rest)
            elif inner != "-sys-header-deps":
                kept += [word, inner]
        else:
            kept.append(word)
    return kept


def _driver_lines(clang: str, plain: list[str], args: list[str]) -> list[list[str]]:
    jobs = [word for word in ("-c", "-S", "-emit-llvm") if word in args]
    done = subprocess.run(
        [clang, *plain, *jobs, "-o", args[args.index("-o") + 1], "-###"],
        capture_output=True,
        text=True,
        check=False,
    )
    return [shlex.split(line) for line in done.stderr.splitlines() if line.startswith(' "')]


def _preprocessed(clang: str, plain: list[str]) -> tuple[dict[str, str], str]:
    with tempfile.TemporaryDirectory() as folder:
        depfile, text = f"{folder}/d", f"{folder}/i"
        extra = ["-dependency-file", depfile, "-MT", "o", "-sys-header-deps"]
        flags = [flag for word in extra for flag in ("-Xclang", word)]
        subprocess.run(
            [clang, *plain, *flags, "-E", "-dD", "-Qunused-arguments", "-o", text],
            stderr=subprocess.DEVNULL,
            check=False,
        )
        files = {}
        if os.path.exists(depfile):
            with open(depfile, encoding="utf-8") as file:
                _, _, names = file.read().partition(":")
            found = [_local(name) for name in names.replace("\\\n", " ").split()]
            files = {name: _digest(name) for name in found if os.path.exists(name)}
        made = b""
        if os.path.exists(text):
            with open(text, "rb") as content:
                made = content.read().replace(os.fsencode(os.getcwd()) + b"/", b"")
        return files, hashlib.sha256(made).hexdigest()[:16]


def _local(name: str) -> str:
    """Name what is in the project, or beside it, relative to its folder, so as to compare."""
    here = os.getcwd()
    if name == here or name.endswith("=" + here):
        return name.replace(here, ".")
    if name.startswith(os.path.dirname(here) + "/"):
        return os.path.relpath(name, here)
    return os.path.normpath(name) if "/" in name and not name.startswith("-") else name


def _digest(name: str) -> str:
    with open(name, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
