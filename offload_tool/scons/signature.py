"""The signatures of commands, of which most words are the same for all nodes of a builder call.

SCons substitutes all variables of each node's command, which takes a fifth of a build with nothing
to do. Here a word ``$NAME`` is substituted once for the nodes that share the environment in which
`VARIABLE` is, unless it depends on a node or on variables of a node's own::

    $_OFFLOAD_PASS_FLAGS $CCFLAGS $_CPPDEFFLAGS $_OFFLOAD_INCLUDES -o $TARGET $SOURCE
    $_OFFLOAD_PASS_FLAGS -O3      -DNDEBUG      -Iinclude          -o $TARGET $SOURCE

The others are put in if they are texts without a variable. The result is what SCons's own
substitution gives; where that is not certain, SCons substitutes the command. A build may change
variables in place at any time, so each use compares them with a copy.

SCons itself signs ``["-DA", "-DB"]`` as ``["-DA -DB"]``, and two blanks as one. Here a blank within
an argument has a mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import Any

import SCons.Errors
from SCons.Subst import SUBST_SIG

from offload_tool.scons import compat
from offload_tool.scons.types import Environment, Node
from offload_tool.scons.values import Copy, references

VARIABLE = "_OFFLOAD_SHARED_TEXTS"
_WORDS = re.compile(r"(?:\$\w+|[^${}\s]+)(?: (?:\$\w+|[^${}\s]+))*")
_SPECIAL = re.compile(r"[${}\n]")
"""What SCons would read as more than the text itself."""
_MARKED_BLANKS = {ord(" "): "\0 ", ord("\t"): "\0\0 ", ord("\n"): "\0\0\0 "}
"""No argument has a zero byte, and messages leave it out."""
_OF_NODES = re.compile(r"(?:CHANGED_|UNCHANGED_)?(?:SOURCE|TARGET)S?")


class SharedTexts:
    """The commands of the nodes that share one environment: the value of `VARIABLE` in it."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Words, list[str], Copy | None]] = {}
        """The words, the variables on which they depend, and the values of these."""

    def words(self, env: Environment, layers: list[dict[str, Any]], name: str, node: Node) -> Words:
        """Return the words of a command that serve all nodes which override the same variables."""
        at = next(number for number, layer in enumerate(layers) if VARIABLE in layer)
        own, common = tuple(chain.from_iterable(layers[:at])), layers[at:]
        key = (name, own, node.cwd)
        words, names, before = self._known.get(key, (None, [], None))
        if before is None or not before.is_equal(_values(names, common)):
            words, names = _shared_words(env, name, node, frozenset(own))
            self._known[key] = (words, names, Copy(_values(names, common)))
        return words


Words = list[str] | None
"""Texts, each of one or several words, and variables ``$NAME``; None if SCons has to read them."""


def _shared_words(
    env: Environment, name: str, node: Node, own: frozenset[str]
) -> tuple[Words, list[str]]:
    """Return the words of a command, and the variables on which they depend."""
    names, command = [name], env.get(name)
    if not isinstance(command, str) or not _WORDS.fullmatch(command) or name in own:
        return None, names
    words: list[str] = []
    for word in command.split(" "):
        text, read = _shared(env, word, node, own)
        names += read
        if text.startswith("$") or not words or words[-1].startswith("$"):
            words.append(text)
        elif text:
            words[-1] = f"{words[-1]} {text}".lstrip(" ")
    return words, names


def _values(names: Iterable[str], layers: list[dict[str, Any]]) -> list[Any]:
    return [next((each[name] for each in layers if name in each), None) for name in names]


def _shared(
    env: Environment, word: str, node: Node, own: frozenset[str]
) -> tuple[str, Iterable[str]]:
    """Return a word after substitution and the variables that were read, or as it is."""
    if word.startswith("$"):
        found = references([word[1:]], env.get)
        is_shared = found.is_plain and found.names.isdisjoint(own)
        if is_shared and not any(map(_OF_NODES.fullmatch, found.names)):
            with suppress(SCons.Errors.UserError):  # a pair of $( and $) in two variables
                env.subst_target_source(word, SUBST_SIG, [node], node.sources)
                text = _substituted(env, word, [node], node.sources)
                if not _SPECIAL.search(text):
                    return text, found.names
    return word, ()


def signed_text(env: Environment, name: str, target: list[Node], source: list[Node]) -> str | None:
    """Return the arguments of the command in a variable, as SCons signs them.

    None if the variable has no text.
    """
    if not isinstance(env.get(name), str):
        return None
    text = _of_shared_words(env, name, target, source)
    return _substituted(env, f"${name}", target, source) if text is None else text


def _substituted(env: Environment, text: str, target: list[Node], source: list[Node]) -> str:
    lines = env.subst_list(text, SUBST_SIG, target, source)
    return "\n".join(" ".join(map(marked, line)) for line in lines)


def marked(arg: Any) -> str:
    """Return an argument with a mark at each blank."""
    return str(arg).translate(_MARKED_BLANKS)


def _of_shared_words(
    env: Environment, name: str, target: list[Node], source: list[Node]
) -> str | None:
    # Between the builds of one process, a folder of CPPPATH may become a header map.
    shared: SharedTexts | None = None if compat.is_interactive() else env.get(VARIABLE)
    layers = compat.layers_of(env) if shared is not None else None
    words = shared.words(env, layers, name, target[0]) if shared is not None and layers else None
    if words is None:
        return None
    texts = []
    for word in words:
        text = _text(env, word, target, source) if word.startswith("$") else word
        if _SPECIAL.search(text):
            return None
        texts.append(text)
    return " ".join(filter(None, texts))


def _text(env: Environment, word: str, target: list[Node], source: list[Node]) -> str:
    """Return the arguments of a variable, as SCons signs them; "$" if that is not certain."""
    if word == "$TARGET":
        return marked(target[0].for_signature())
    if word == "$SOURCE" and source:
        return marked(source[0].for_signature())
    given = env.get(word[1:])
    if not isinstance(given, (str, list)):
        return "$"
    items = given.split() if isinstance(given, str) else given
    return " ".join(marked(item) if isinstance(item, str) else "$" for item in items)
