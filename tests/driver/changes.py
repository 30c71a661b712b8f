"""Random changes: what may happen to a checkout between two builds, and during one."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.driver.linking import change_links
from tests.driver.projects import TARGETS, candidates
from tests.driver.state import State
from tests.driver.surroundings import change_surroundings


@dataclass
class Event:
    """A step of a trial: another state, something done to the disk, and how scons is run."""

    words: list[str]
    """What it is, for people."""
    checkout: str
    state: State
    disk: list[tuple[str, str]] = field(default_factory=list)
    """(``touch`` | ``delete`` | ``truncate`` | ``replace`` | ``extend`` | ``protect``, file)."""
    replace: bool = False
    """Files are put in the place of old ones, instead of being written in place."""
    mode: str = "build"
    """``build``, ``subset``, ``clean`` (``scons -c``, and a build), or in mid-build ``kill`` scons,
    let clang ``die``, ``save`` a file."""
    target: str = ""
    """What is asked for, or the output of the compile at which it happens."""
    then: State | None = None
    """The state after what happened in mid-build."""
    jobs: int = 1
    may_break: bool = False
    """The build may fail: a file is missing, or another one is found."""


@dataclass
class History:
    """What a trial has seen: the states of each checkout, and the passes of the last build."""

    states: dict[str, list[State]]
    passes: dict[str, dict[str, dict[str, Any]]]
    outputs: dict[str, list[str]]


@dataclass
class _Chooser:
    rng: random.Random
    checkout: str
    history: History
    state: State
    event: Event
    without: frozenset[str]

    # Each of these changes the state, or gives False where it does not apply.

    def edit(self) -> bool:
        names = [name for name in sorted(self.state.files) if self.state.has_value(name)]
        name = self.rng.choice(names)
        self.state = self.state.with_new_value(name, self.rng.randint(1, 99))
        return self.say(f"edit {name}")

    def edit_source(self) -> bool:
        name = self.state.source_file(self.rng.choice(self.state.sources))
        self.state = self.state.with_new_value(name, self.rng.randint(1, 99))
        return self.say(f"edit {name}")

    def edit_body(self) -> bool:
        """Edit what comes after the leading directives: mostly of one source, again and again."""
        sources = self.state.sources
        name = self.state.source_file(sources[0] if self.rng.random() < 0.7 else sources[-1])
        found = re.compile(r"F8 \+ F9[^;]*;")
        if not self.state.pch or not found.search(self.state.files[name]):
            return False
        value = f"F8 + F9 + {self.rng.randint(1, 99)};"
        self.state.files[name] = found.sub(value, self.state.files[name])
        return self.say(f"edit the end of {name}")

    def edit_beginning(self) -> bool:
        """Edit what a source begins with, which decides whether it has a precompiled header."""
        state, rng = self.state, self.rng
        stem = rng.choice(state.stems)
        name = state.source_file(stem + state.suffix)
        head, own, rest = state.files[name].partition("#define OWN")
        lines = head.splitlines(keepends=True)
        number = rng.randint(1, 99)
        way = rng.choice(["line", "line", "order", "spelling", "chain", "guard", "module map"])
        if way == "line":
            lines.insert(rng.randint(0, len(lines)), rng.choice(_LINES).format(number))
        elif way == "order" and not any(line.endswith("\\\n") for line in lines):
            lines.reverse()
        elif way == "spelling":
            plain = [line.replace("#  include\t<", "#include <") for line in lines]
            spelled = [line.replace("#include <", "#  include\t<") for line in lines]
            lines = spelled if plain == lines else plain
        elif way == "chain" and "#include <h8.h>\n" in lines:
            chained = f"c{stem}.h"
            guard = f"#ifndef C_{stem}\n#define C_{stem}\n{{}}#endif\n"
            text = rng.choice(["#pragma once\n{}", guard]).format("#include <h8.h>\n")
            state.files[f"{name.rpartition('/')[0]}/{chained}".lstrip("/")] = text
            lines = [f'#include "{chained}"\n', *(line for line in lines if "<h8.h>" not in line)]
        elif way == "guard":
            header = next(n for n in sorted(state.files) if n.endswith("/h8.h"))
            text = state.files[header].removeprefix("#pragma once\n")
            begin = "" if state.files[header] != text else "#pragma once\n"
            state.files[header] = begin + text
        else:
            file = f"{state.base}{state.path[-1]}/module.modulemap"
            if state.files.pop(file, None) is None:
                state.files[file] = 'module m { header "h8.h" }\n'
        state.files[name] = "".join(lines) + own + rest
        self.event.may_break = True
        return self.say(f"edit the beginning of {name}: {way}")

    def comment(self) -> bool:
        names = [n for n in sorted(self.state.files) if n.endswith((".h", *_SOURCES))]
        name = self.rng.choice(names)
        text = self.state.files[name]
        note = f"// note {self.rng.randint(1, 999)}\n"
        self.state.files[name] = text + note if self.rng.random() < 0.7 else note + text
        return self.say(f"comment in {name}")

    def appear(self) -> bool:
        found = candidates(self.state)
        if not found:
            return False
        name = self.rng.choice(found)
        stem = name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
        number = self.rng.randint(1, 99)
        text = (
            str(number % 9 + 1)
            if name.endswith(".bin")
            else f"#define F{int(stem[1:]) % 10} {number}\n"
        )
        same = [n for n in sorted(self.state.files) if n.rsplit("/", 1)[-1] == name.rsplit("/")[-1]]
        if same and self.rng.random() < 0.15:
            text = self.state.files[self.rng.choice(same)]  # equal to another one
        self.state.files[name] = text
        self.event.may_break = True
        return self.say(f"{name} appears")

    def vanish(self) -> bool:
        first = self.history.states[self.checkout][0].files
        kept = {*first, *self.state.links.values(), *self.state.needed()}
        kept |= set(self.state.hard.values())
        found = [name for name in sorted(self.state.files) if name not in kept]
        if not found:
            return False
        name = self.rng.choice(found)
        del self.state.files[name]
        self.event.may_break = True
        return self.say(f"{name} vanishes")

    def delete(self) -> bool:
        """Delete a header that may be missed: perhaps the build fails."""
        found = [n for n in sorted(self.state.files) if n.endswith((".h", ".bin"))]
        found = [n for n in found if n not in self.state.hard.values()]
        if not found:
            return False
        name = self.rng.choice(found)
        del self.state.files[name]
        self.state.broken = self.event.may_break = True
        return self.say(f"{name} is deleted")

    def error(self) -> bool:
        name = self.state.source_file(self.rng.choice(self.state.sources))
        wrong = self.rng.choice(
            ["#error wrong\n", "#if defined(__gfx906__)\n#error wrong\n#endif\n"]
        )
        self.state.files[name] = wrong + self.state.files[name]
        self.state.broken = self.event.may_break = True
        return self.say(f"an error in {name}")

    def flags(self) -> bool:
        state, rng = self.state, self.rng
        name = rng.choice(["CCFLAGS", "OFFLOAD_FLAGS", "OFFLOAD_HOST_FLAGS"])
        words = state.flags[name]
        mine = [word for word in words if word.startswith("-DOWN_FLAG")]
        if mine and rng.random() < 0.4:
            words.remove(mine[0])
        elif mine or rng.random() < 0.6:
            state.flags[name] = [word for word in words if word not in mine]
            state.flags[name].append(f"-DOWN_FLAG={rng.randint(1, 9)}")
        else:
            state.flags[name].append(rng.choice(["-O1", "-O2", "-DNDEBUG", "-fno-strict-aliasing"]))
        return self.say(f"{name} is {state.flags[name]}")

    def arch_flags(self) -> bool:
        key = self.rng.choice(self.state.archs)
        self.state.arch_flags = {key: [f"-DARCH={self.rng.randint(1, 9)}"]}
        return self.say(f"OFFLOAD_ARCH_FLAGS is {self.state.arch_flags}")

    def defines(self) -> bool:
        self.state.defines["GIVEN"] = self.rng.randint(1, 9)
        return self.say(f"CPPDEFINES is {self.state.defines}")

    def words(self) -> bool:
        self.state.words = [f"-DWORD={self.rng.randint(1, 9)}"] * (self.rng.random() < 0.8)
        return self.say(f"the compiler's words are {self.state.words}")

    def second(self) -> bool:
        if self.state.second is None:
            return False
        self.state.second = {"EXTRA": self.rng.randint(1, 9)}
        return self.say(f"the second environment's CPPDEFINES is {self.state.second}")

    def targets(self) -> bool:
        state, rng = self.state, self.rng
        others = [name for name in TARGETS[state.kind] if name not in state.archs]
        if "gfx90a" in state.archs or "gfx90a:xnack+" in state.archs:
            others = [name for name in others if not name.startswith("gfx90a")]
        if others and rng.random() < 0.5:
            state.archs.insert(rng.randint(0, len(state.archs)), rng.choice(others))
        elif len(state.archs) > 1 and rng.random() < 0.6:
            gone = state.archs.pop(rng.randrange(len(state.archs)))
            state.arch_flags.pop(gone, None)
        else:
            rng.shuffle(state.archs)
        return self.say(f"OFFLOAD_ARCH is {state.archs}")

    def search_path(self) -> bool:
        self.rng.shuffle(self.state.path)
        self.event.may_break = True
        return self.say(f"CPPPATH is {self.state.path}")

    def earlier(self) -> bool:
        """Go back to what was some steps ago, as with git checkout."""
        past = [state for state in self.history.states[self.checkout] if not state.broken]
        back = self.rng.randint(1, len(past))
        self.state = past[-back].copy()
        return self.say(f"back to the state {back} steps ago")

    def as_other_checkout(self) -> bool:
        """Take what another checkout has: with a CacheDir, all of it is there."""
        others = [name for name in self.history.states if name != self.checkout]
        if not others:
            return False
        other = self.history.states[self.rng.choice(others)][-1]
        if other.broken:
            return False
        self.state = other.copy()
        return self.say("the state of the other checkout")

    def add_source(self) -> bool:
        """Add a source like one of the others; the build may copy it from another file."""
        state, rng = self.state, self.rng
        stem = f"k{max(int(stem[1:]) for stem in state.stems) + 1}"
        if int(stem[1:]) > 9:
            return False
        like = rng.choice(state.stems)
        text = state.files[state.source_file(like + state.suffix)].replace(_MAIN, "")
        source = stem + state.suffix
        # OpenMP has the inode in names of regions; a copy has none of the headers of a repository.
        if state.kind != "openmp" and state.layout != "repository" and rng.random() < 0.4:
            state.generated.append((source, f"{source}.txt"))
        state.files[state.source_file(source)] = re.sub(rf"_{like}\b", f"_{stem}", text)
        state.stems.insert(0, stem)
        return self.say(f"the source {state.source_file(source)} is added")

    def remove_source(self) -> bool:
        state = self.state
        names = {stem: state.source_file(stem + state.suffix) for stem in state.stems}
        others = [stem for stem, name in names.items() if _MAIN not in state.files[name]]
        if len(state.stems) == 1 or not others:
            return False
        stem = self.rng.choice(others)
        source = stem + state.suffix
        del state.files[state.source_file(source)]
        state.stems.remove(stem)
        state.generated = [pair for pair in state.generated if pair[0] != source]
        return self.say(f"the source {source} is removed")

    def rename(self) -> bool:
        """Return a header another name, wherever that is spelled."""
        state = self.state
        names = {n.rsplit("/", 1)[-1] for n in state.files if re.search(r"(^|/)[hn]\d+\.h$", n)}
        names -= {target.rsplit("/", 1)[-1] for target, _ in state.generated}
        linked = [*state.links.items(), *state.hard.items()]
        names -= {name.rsplit("/", 1)[-1] for pair in linked for name in pair}
        if not names:
            return False
        old = self.rng.choice(sorted(names))
        new = f"{old[0]}{int(old[1:-2]) + 10}.h"
        if int(old[1:-2]) > 9:
            return False
        spelled = re.compile(rf"\b{re.escape(old)}")
        state.files = {
            re.sub(rf"(^|/){re.escape(old)}$", rf"\g<1>{new}", name): spelled.sub(new, text)
            for name, text in state.files.items()
        }
        for words in state.flags.values():
            words[:] = [new if word == old else word for word in words]
        self.event.may_break = True
        return self.say(f"{old} is renamed to {new}")

    def link(self) -> bool:
        """Put a symbolic link in the place of a header, or let one lead to another file."""
        state, rng = self.state, self.rng
        there = [name for name in sorted(state.files) if name.startswith("links/")]
        target = f"links/{max((int(name[6:-5]) for name in there), default=0) + 1}.text"
        links = [name for name in sorted(state.links) if state.target(name) in state.files]
        if links and rng.random() < 0.6:
            name = rng.choice(links)
            state.files[target] = state.files[state.target(name)]
            state.files = state.with_new_value(target, rng.randint(1, 99)).files
        else:
            found = [n for n in sorted(state.files) if n.endswith(".h") and state.has_value(n)]
            found = [n for n in found if n not in state.hard.values()]
            if not found:
                return False
            name = rng.choice(found)
            state.files[target] = state.files.pop(name)
        state.links[name] = target
        return self.say(f"{name} is a link to {target}")

    def one_file_or_two(self) -> bool:
        """Link a header or a folder of headers to another one, or put a copy in a link's place."""
        words = change_links(self.rng, self.state)
        self.event.may_break = self.event.may_break or words is not None
        return words is not None and self.say(words)

    def surroundings(self) -> bool:
        words = change_surroundings(self.rng, self.state)
        return words is not None and self.say(words)

    def decider(self) -> bool:
        names = ["content", "content-timestamp", "timestamp-match"]
        names += [] if self.state.caches else ["timestamp-newer"]  # see `projects.project`
        self.state.decider = self.rng.choice([n for n in names if n != self.state.decider])
        return self.say(f"the Decider is {self.state.decider}")

    def linker(self) -> bool:
        self.state.linker = self.rng.choice([n for n in range(3) if n != self.state.linker])
        return self.say(f"lld is number {self.state.linker}")

    def protect(self) -> bool:
        names = [name for name in sorted(self.state.files) if not name.endswith(".txt")]
        outputs = self.history.outputs[self.checkout]
        name = self.rng.choice(names + [name for name in outputs if not is_source(name)])
        self.event.disk.append(("protect", name))
        return self.say(f"{name} is made read-only")

    def touch(self) -> bool:
        names = [name for name in sorted(self.state.files) if not name.endswith(".txt")]
        name = self.rng.choice(names)
        how = self.rng.choice(["touch", "rewrite"])
        self.event.disk.append((how, name))
        return self.say(f"{how} {name}")

    def damage(self) -> bool:
        found = self.history.outputs[self.checkout]
        if not found:
            return False
        for name in self.rng.sample(found, min(len(found), self.rng.choice([1, 1, 2, 5]))):
            how = self.rng.choice(["delete", "truncate", "replace", "extend"])
            how = "delete" if is_source(name) else how
            self.event.disk.append((how, name))
            self.say(f"{how} {name}")
        return True

    def say(self, words: str) -> bool:
        self.event.words.append(words)
        return True


_COPIES = re.compile(r"\.(h|hip|c|cu|txt|bin|text)$|/SConscript$")


def is_source(name: str) -> bool:
    """Return whether a file is for the compiler: those that SCons copies, it does not watch."""
    return _COPIES.search(name) is not None


_MAIN = "int main(void) { return 0; }\n"
_SOURCES = (".hip", ".c", ".cu")
_KINDS: dict[str, tuple[Callable[[_Chooser], bool], int]] = {
    "edit": (_Chooser.edit, 16),
    "comment": (_Chooser.comment, 5),
    "appear": (_Chooser.appear, 14),
    "vanish": (_Chooser.vanish, 5),
    "delete": (_Chooser.delete, 2),
    "error": (_Chooser.error, 2),
    "flags": (_Chooser.flags, 6),
    "arch_flags": (_Chooser.arch_flags, 4),
    "defines": (_Chooser.defines, 3),
    "words": (_Chooser.words, 3),
    "second": (_Chooser.second, 4),
    "targets": (_Chooser.targets, 8),
    "search_path": (_Chooser.search_path, 3),
    "earlier": (_Chooser.earlier, 8),
    "as_other_checkout": (_Chooser.as_other_checkout, 5),
    "touch": (_Chooser.touch, 5),
    "damage": (_Chooser.damage, 8),
    "add_source": (_Chooser.add_source, 4),
    "remove_source": (_Chooser.remove_source, 3),
    "rename": (_Chooser.rename, 4),
    "link": (_Chooser.link, 5),
    "one_file_or_two": (_Chooser.one_file_or_two, 14),
    "surroundings": (_Chooser.surroundings, 40),
    "decider": (_Chooser.decider, 3),
    "linker": (_Chooser.linker, 3),
    "protect": (_Chooser.protect, 2),
    "edit_body": (_Chooser.edit_body, 70),
    "edit_beginning": (_Chooser.edit_beginning, 40),
}
_OF_PCH = {"edit_body", "edit_beginning"}
_LINES = (
    "// a comment\n",
    "/* one\n   of several lines */\n",
    "// a comment that goes on \\\nhere\n",
    "#define SCALE{0} {0}\n",
    "#undef SCALE\n#define SCALE {0}\n",
    "#undef SCALE\n#define SCALE \\\n    {0}\n",
    "#undef SCALE\n",
    "#if __has_include(<asked.h>)\n#include <asked.h>\n#endif\n",
    "#undef NAMED\n#define NAMED <h9.h>\n#include NAMED\n",
    '#define TEXT{0} "// no comment"\n',
    "%:define DIGRAPH{0} 0\n",
    "static int code{0};\n",
)
"""Lines before, between and behind the includes with which a source begins."""
_MODES = {"build": 63, "subset": 8, "kill": 9, "die": 7, "save": 10, "clean": 3}


def choose(
    seed: object, checkout: str, history: History, without: frozenset[str] = frozenset()
) -> Event:
    """Choose what happens next in a checkout; nothing of what is named in `without`."""
    rng = random.Random(f"change {seed}")
    last = history.states[checkout][-1]
    event = Event([], checkout, last, replace=rng.random() < 0.4, jobs=rng.choice([1, 2]))
    chooser = _Chooser(rng, checkout, history, last.copy(), event, without)
    if last.broken:
        chooser.earlier()
    mode = rng.choices(list(_MODES), list(_MODES.values()))[0]
    mode = "build" if mode in without else mode
    passes = history.passes[checkout]
    if mode == "clean" and not last.broken:
        event.mode = mode
        chooser.say("all is removed, with scons -c")
    elif mode in ("kill", "die", "save") and passes and not last.broken:
        _in_mid_build(chooser, mode, passes)
    else:
        _change(chooser, rng.choice([1, 1, 1, 2]))
        if mode == "subset" and not chooser.state.broken and not event.disk:
            _subset(chooser, passes)
    event.state = chooser.state
    return event


def _change(chooser: _Chooser, number: int) -> None:
    without = chooser.without | (set() if chooser.state.pch else _OF_PCH)
    names = [name for name in _KINDS if name not in without]
    done = 0
    while done < number:
        name = chooser.rng.choices(names, [_KINDS[name][1] for name in names])[0]
        done += _KINDS[name][0](chooser)


def _in_mid_build(chooser: _Chooser, mode: str, passes: dict[str, dict[str, Any]]) -> None:
    rng, event = chooser.rng, chooser.event
    if mode == "save" and chooser.state.decider == "timestamp-newer":
        mode = "die"  # an output that is newer than the saved file is current, for make
    before = chooser.state.copy()
    chooser.edit_source()
    edited = event.words[-1].split()[-1].rsplit("/", 1)[-1].split(".")[0]
    found = sorted(n for n in passes if Path(n).name.startswith(f"{edited}."))
    if not found:
        return
    event.mode, event.target = mode, rng.choice(found)
    state = chooser.state
    if mode == "save":
        read = [name for name in passes[event.target]["files"] if name in state.files]
        read = [name for name in sorted(read) if state.has_value(name)]
        name = rng.choice(read) if read else state.source_file(state.sources[0])
        event.then = state.with_new_value(name, rng.randint(1, 99))
        chooser.say(f"{name} is saved while clang compiles {event.target}")
    else:
        event.then = before if rng.random() < 0.6 else state
        what = "scons is killed while clang compiles" if mode == "kill" else "clang dies in"
        undone = ", and the edit is undone" if event.then is before else ""
        chooser.say(f"{what} {event.target}{undone}")


def _subset(chooser: _Chooser, passes: dict[str, dict[str, Any]]) -> None:
    archs = [name for name in chooser.state.archs if chooser.state.layout != "repository"]
    there = [name for name in sorted(passes) if any(arch in name for arch in chooser.state.archs)]
    choices = archs + there[:1]
    if choices:
        chooser.event.mode, chooser.event.target = "subset", chooser.rng.choice(choices)
        chooser.say(f"only {chooser.event.target} is built")
