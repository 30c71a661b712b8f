"""Links: files and folders of a checkout that have several names, and copies in their places.

Which of two names are one file decides what ``#pragma once`` and ``#import`` leave out, and where
``#include_next`` goes on. Each function changes a state and says what it did, or gives nothing
where it does not apply.
"""

from __future__ import annotations

import random
import re

from tests.driver.state import State

_NUMBER = re.compile(r"(\d+)\.h$")
_TWICE = """\
#pragma once
#ifdef N_{0}
#undef F{0}
#define F{0} {2}
#else
#define N_{0} 0
#define F{0} {1}
#endif
"""


def add_twice(rng: random.Random, state: State, number: int) -> None:
    """Let a source include two headers of one text, which tell whether they are one file."""
    source = state.source_file(rng.choice(state.sources))
    folders = [f"{state.base}{folder}/" for folder in state.path if folder != "made"]
    text = _TWICE.format(number, rng.randint(1, 49), rng.randint(50, 99))
    directive = rng.choice(["#include", "#import"])
    names = [f"h{number}.h", f"n{number}.h"]
    for name in names:
        state.files[rng.choice(folders) + name] = text
    head = "".join(f"{directive} <{name}>\n" for name in names)
    used = state.files[source].replace("] = OWN;", f"] = OWN + F{number};")
    state.files[source] = head + used


def change_links(rng: random.Random, state: State) -> str | None:
    """Change one link, if there is one or can be."""
    ways = [_link, _link, _link_hard, _copy, _copy, _link_folder, _copy_folder]
    if state.layout == "variant1":
        return None  # SCons copies anew what has other bytes, and not what is another file
    return rng.choice(ways)(rng, state)


def searched_folders(state: State) -> list[str]:
    """Name the folders of headers that may be links: nothing but headers is made in them."""
    found = [f"{state.base}{folder}" for folder in state.path if folder != "made"]
    args = [word.removeprefix("-I").split("=")[-1] for word in state.flags.get("CCFLAGS", ())]
    args += state.variables.values()
    return [*found, *(word for word in args if re.fullmatch(r"flag\d", word))]


def _pair(rng: random.Random, state: State) -> tuple[str, str] | None:
    """Name a header and another file that may be in its place: mostly one that fits."""
    pinned = {*state.links.values(), *state.hard.values()}
    headers = [name for name in sorted(state.files) if _NUMBER.search(name)]
    names = [name for name in headers if name not in pinned]
    pairs = [(one, two) for one in names for two in headers if one != two]
    fit = [pair for pair in pairs if _number(pair[0]) == _number(pair[1])]
    equal = [(one, two) for one, two in fit if state.files[one] == state.files[two]]
    for found, chance in ((equal, 0.6), (fit, 0.9), (pairs, 0.3)):
        if found and rng.random() < chance:
            return rng.choice(found)
    return None


def _number(name: str) -> str:
    found = _NUMBER.search(name)
    return found[1] if found else ""


def _link(rng: random.Random, state: State, *, is_hard: bool = False) -> str | None:
    """Put a link in the place of a header."""
    pair = _pair(rng, state)
    if pair is None:
        return None
    name, target = pair
    del state.files[name]
    (state.hard if is_hard else state.links)[name] = target
    return f"{name} becomes a {'hard ' * is_hard}link to {target}"


def _link_hard(rng: random.Random, state: State) -> str | None:
    return _link(rng, state, is_hard=True)


def _copy(rng: random.Random, state: State) -> str | None:
    """Put an equal copy in the place of a link."""
    found = [n for n in [*state.links, *state.hard] if state.target(n) in state.files]
    if not found:
        return None
    name = rng.choice(sorted(found))
    text = state.files[state.target(name)]
    state.links.pop(name, None)
    state.hard.pop(name, None)
    state.files[name] = text
    return f"{name} becomes a copy of what it led to"


def _link_folder(rng: random.Random, state: State) -> str | None:
    """Put a link to another folder in the place of one: with its headers, or with other ones."""
    linked = {*state.links, *state.links.values(), *state.hard, *state.hard.values()}
    folders = [name for name in searched_folders(state) if name not in linked]
    fixed = [name for name in linked if "/" in name]
    free = [name for name in folders if not any(n.startswith(f"{name}/") for n in fixed)]
    if not free:
        return None
    name = rng.choice(free)
    others = [folder for folder in dict.fromkeys(folders) if folder != name]
    if others and rng.random() < 0.5:
        target = rng.choice(others)
        state.files = {n: text for n, text in state.files.items() if not n.startswith(f"{name}/")}
    else:
        number = len({n.split("/")[1] for n in state.files if n.startswith("folders/")})
        target = f"folders/f{number}"
        moved = re.compile(rf"^{re.escape(name)}/")
        state.files = {moved.sub(f"{target}/", n): text for n, text in state.files.items()}
    state.links[name] = target
    return f"the folder {name} becomes a link to {target}"


def _copy_folder(rng: random.Random, state: State) -> str | None:
    """Put a folder with the same headers in the place of a link to one."""
    found = [n for n in sorted(state.links) if n in searched_folders(state)]
    if not found:
        return None
    name = rng.choice(found)
    target = state.real(name)
    del state.links[name]
    inside = [n for n in state.files if n.startswith(f"{target}/")]
    for other in inside:
        state.files[f"{name}/{other[len(target) + 1 :]}"] = state.files[other]
    return f"the folder {name} becomes a copy of {target}"
