"""The one door to what SCons does not promise: each private name that this package uses.

They are looked for when this module is loaded, so that a version of SCons that lacks one is
refused by name, and not half-way through a build. Known to have all: SCons 4.6 to 4.11.
"""

from __future__ import annotations

import functools
import os
import sys
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import SCons
import SCons.Action
import SCons.CacheDir
import SCons.Errors
import SCons.Executor
import SCons.Node
import SCons.Node.FS
import SCons.Node.Python
import SCons.PathList
import SCons.Subst
import SCons.Tool
import SCons.Util

from offload_tool.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from offload_tool.scons.protocols import Environment, FileSystem, Node

__all__ = [
    "adopt",
    "builds_in",
    "cache_is_forced",
    "cache_is_readonly",
    "content_changed",
    "copy_again",
    "does_execute",
    "folder_is_known",
    "forget_scan",
    "include_flags",
    "is_interactive",
    "only_source_differs",
    "replace_implicit",
    "was_damaged",
]

T = TypeVar("T")

_NEEDED = (
    (SCons.Node.Node, "_children_reset", "del_binfo", "children", "get_stored_info"),
    (SCons.Node.FS.File, "is_up_to_date", "retrieve_from_cache", "push_to_cache", "visited"),
    (SCons.Node.FS.File, "get_cachedir_bsig", "get_csig"),
    (SCons.Node.FS.File, "RDirs"),
    (SCons.PathList, "PathList"),
    (SCons.CacheDir, "cache_force", "cache_readonly"),
    (SCons.Action, "execute_actions"),
    (SCons.Node, "interactive", "arg2nodes_lookups"),
    (SCons.Node.Python.Value, "get_csig", "get_ninfo"),
    (SCons.Executor.Executor, "get_contents", "get_all_sources", "get_sources"),
    (SCons.Node.FS, "Save_Strings"),
    (SCons.Tool.Tool, "__call__"),
)
for _owner, *_names in _NEEDED:
    for _name in _names:
        if not hasattr(_owner, _name):
            raise UsageError(
                f"SCons {SCons.__version__} has no {_owner.__name__}.{_name}, which this package "
                "needs; known to work are SCons 4.6 to 4.11"
            )


def adopt(node: Any, node_class: type) -> None:
    """Make a file node one of a class of ours, as SCons does with entries that become files."""
    if type(node) is SCons.Node.FS.Entry:  # nobody has asked yet what it is
        node.disambiguate()
    if type(node) is SCons.Node.FS.File or issubclass(node_class, type(node)):
        node.__class__ = node_class


def add_source(node: Any, source: Node) -> None:
    """Give a node that has a builder another source, which is none of its sources yet.

    (The executor's own method compares it with each of them, for each source.)
    """
    node.add_source([source])
    node.get_executor().get_sources().append(source)


def replace_implicit(node: Any, nodes: list[Node]) -> None:
    """Replace what a scan has found of a node that was built."""
    node.implicit = nodes
    node.implicit_set = set(nodes)
    node._children_reset()
    node.del_binfo()


def copy_again(node: Any) -> None:
    """Let a file in a variant folder be what it is a copy of now; it goes where that is gone."""
    node.linked = False
    node.srcnode().clear()
    node.clear()
    node.exists()


def forget_scan(node: Any) -> None:
    """Let the scanner of a node be asked again: what it says may be another thing later."""
    node._memo.pop("get_found_includes", None)


def content_changed(node: Any, against: Any = None, *, remember: bool = False) -> bool:
    """Tell whether a derived file is of other content of its children than it was.

    As `SCons.Node.Node.changed`, with content for each child, whatever Decider is set.
    `against` is the node whose stored information counts: `node`, or its file in a Repository.
    """
    if against is None and "changed" in node._memo:
        return bool(node._memo["changed"])
    found = _content_changed(node, against or node)
    if remember:
        node._memo["changed"] = found
    return found


def _content_changed(node: Any, against: Any) -> bool:
    info = against.get_stored_info().binfo
    before = [*info.bsourcesigs, *info.bdependsigs, *info.bimplicitsigs]
    children = node.children()
    differs = len(children) != len(before)
    before += [None] * (len(children) - len(before))
    for child, known in zip(children, before, strict=False):
        # Each child is looked at, so that its signature is there when this is stored.
        if child.get_csig() != getattr(known, "csig", None):
            differs = True
    contents = node.get_executor().get_contents()
    return differs or bool(info.bactsig != SCons.Util.hash_signature(contents))


def other_was_built(node: Any, against: Any = None) -> bool:
    """Tell whether a child that was made in this run is of other content than the one before.

    Deciders that go by time do not tell: SCons compares whole seconds. To be asked before them,
    for they may take over what was stored as the child's own signature.
    """
    info = (against or node).get_stored_info().binfo
    before = [*info.bsourcesigs, *info.bdependsigs, *info.bimplicitsigs]
    for child, known in zip(node.children(), before, strict=False):
        digest = getattr(known, "csig", None)
        if digest and child.get_state() == SCons.Node.executed and child.get_csig() != digest:
            return True
    return False


def only_source_differs(node: Any) -> bool:
    """Tell whether, of all that a file was made of, its first source alone is another one now.

    By what is known already: nothing is read, and nothing noted that SCons would store.
    """
    info = node.get_stored_info().binfo
    before = [*info.bsourcesigs, *info.bdependsigs, *info.bimplicitsigs]
    children = node.children()
    contents = node.get_executor().get_contents()
    if len(children) != len(before) or info.bactsig != SCons.Util.hash_signature(contents):
        return False
    others = [
        child
        for child, known in zip(children, before, strict=True)
        if _looks_different(child, known)
    ]
    return bool(others == node.sources[:1])


def _looks_different(child: Any, known: Any) -> bool:
    now, then = (getattr(info, "csig", None) for info in (child.get_ninfo(), known))
    if now and then:
        return bool(now != then)
    looks = ("timestamp", "size")
    if not all(hasattr(known, look) and hasattr(child, f"get_{look}") for look in looks):
        return False
    return any(getattr(known, look) != getattr(child, f"get_{look}")() for look in looks)


def was_damaged(node: Any) -> bool:
    """Tell whether a derived file is no longer what SCons has stored of it.

    Its time does not tell: SCons stores whole seconds.
    """
    digest = getattr(node.get_stored_info().ninfo, "csig", None)
    return digest is not None and bool(node.get_csig() != digest)


def include_flags(
    target: list[Any],
    source: list[Any],
    env: Environment,
    for_signature: bool,  # noqa: ARG001
) -> list[Any]:
    """Give the flags of ``CPPPATH``, each one word whatever its folder is called.

    As SCons's ``$_CPPINCFLAGS``, but part of signatures: the search path decides what is found.
    """
    folders = SCons.PathList.PathList(env.get("CPPPATH") or []).subst_path(env, target, source)
    found = target[0].RDirs(folders) if target else folders
    before, after = (
        env.subst(text) if "$" in text else text for text in (env["INCPREFIX"], env["INCSUFFIX"])
    )
    return [SCons.Subst.Literal(f"{before}{folder}{after}") for folder in found]


def folder_is_known(fs: FileSystem, name: str) -> bool:
    """Tell whether SCons has a node for a folder; without one, it builds nothing there."""
    try:
        fs.Dir(name, create=False)
    except (SCons.Errors.UserError, TypeError):  # TypeError: what it has there is a file
        return False
    return True


def builds_in(folder: str) -> bool:
    """Tell whether this process may build something in a folder: it has a node for that."""
    return folder_is_known(SCons.Node.FS.get_default_fs(), folder)


def cache_is_forced() -> bool:
    """Tell whether ``--cache-populate`` was given."""
    return bool(SCons.CacheDir.cache_force)


def cache_is_readonly() -> bool:
    """Tell whether ``--cache-readonly`` was given."""
    return bool(SCons.CacheDir.cache_readonly)


def is_interactive() -> bool:
    """Tell whether this process may build several times: ``--interactive``."""
    return bool(SCons.Node.interactive)


def does_execute() -> bool:
    """Tell whether actions do something: not with ``-n``."""
    return bool(SCons.Action.execute_actions)


def keep_command(node: Any) -> None:
    """Let SCons keep how a node is made when it is done, for who looks at it afterwards."""
    node.attributes.keep_targetinfo = True


def contents(node: Any) -> bytes:
    """Give what SCons signs of how a node is made."""
    return bytes(node.get_executor().get_contents())


def all_sources(node: Any) -> list[Any]:
    """Give the sources of how a node is made."""
    return list(node.get_executor().get_all_sources())


def waits_for(node: Any) -> list[Any]:
    """Give what has to be made before a node, and is not a dependency of it."""
    return list(node.prerequisites or ())


def known_inputs(node: Any) -> list[Any]:
    """Give all that a node was found to depend on, or has to wait for."""
    return [
        *(node.implicit or ()),
        *waits_for(node),
        *node.sources,
        *node.depends,
    ]


class LateValue(SCons.Node.Python.Value):  # type: ignore[misc]
    """A value that is looked at when every SConscript has been read."""

    def __init__(self, name: str, sign: Callable[[], str]) -> None:
        super().__init__(name)
        self._sign = sign

    def get_csig(self) -> str:
        """Give what `sign` gives now, a digest."""
        self.get_ninfo().csig = csig = self._sign()
        return csig


def look_up_also(lookup: Callable[..., Any]) -> None:
    """Let SCons ask `lookup` for names of its command line that nothing else knows."""
    lookups = SCons.Node.arg2nodes_lookups  # an environment asks these, and so does its main
    if lookup not in lookups:
        lookups.append(lookup)  # behind that of aliases: the user's own come first


def blame_caller(function: Any) -> None:
    """Let SCons show what a function raises with the line of the SConscript that called it.

    SCons takes the deepest line that is not in its own files for the user's mistake: with this
    function counted as SCons's, that is the line.
    """
    place = str(PurePath(SCons.Errors.__file__).with_name("offload.py"))
    function.__code__ = function.__code__.replace(co_filename=place)


def generates_ninja() -> bool:
    """Tell whether SCons's tool ``ninja`` has taken the build over: SCons then builds nothing."""
    tool = sys.modules.get("SCons.Tool.ninja_tool")
    return getattr(tool, "NINJA_STATE", None) is not None


def after_each_tool(call: Callable[[], None]) -> None:
    """Let SCons call a function whenever it has loaded a tool into an environment."""
    load = SCons.Tool.Tool.__call__
    if hasattr(load, "offload_calls"):  # one environment has done this already
        return

    @functools.wraps(load)
    def load_and_call(self: Any, env: Environment, *arguments: Any, **keywords: Any) -> None:
        load(self, env, *arguments, **keywords)
        call()

    load_and_call.offload_calls = call  # type: ignore[attr-defined]
    blame_caller(load_and_call)
    SCons.Tool.Tool.__call__ = load_and_call


def of_build(env: Environment, make: Callable[[], T]) -> T:
    """Give what there is once in a build: it belongs to the file system that SCons builds in."""
    known: dict[Any, Any] = vars(env.fs).setdefault("offload_of_build", {})
    if make not in known:
        known[make] = make()
    found: T = known[make]
    return found


@contextmanager
def at_top(env: Environment) -> Iterator[None]:
    """Be in the folder in which SCons runs commands, not in that of the SConscript being read.

    What a compiler is asked is asked where it is run, so that a relative name in its flags, in
    PATH or in a variable of the shell means in both the same, and the same in each SConscript.
    SCons also spells nodes in variables as it does in commands: elsewhere `str(node)` is relative
    to the SConscript. Names that are to become nodes are looked up before.
    """
    fs, place = env.fs, os.getcwd()  # noqa: PTH109 - often called
    top, folder = fs.Top, fs.getcwd()
    fs.chdir(top)
    os.chdir(top.get_abspath())
    try:
        yield
    finally:
        os.chdir(place)
        fs.chdir(folder)


def has_read_all() -> bool:
    """Tell whether every SConscript has been read: from then on SCons keeps nodes' names."""
    return bool(SCons.Node.FS.Save_Strings)


def existing(nodes: Iterable[Any]) -> Iterator[Any]:
    """Give the nodes that are there, or that will be."""
    return (node for node in nodes if node.has_builder() or node.rexists())
