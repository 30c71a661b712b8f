"""The one door to what SCons does not promise: each private name that this package uses.

They are looked for when this module is loaded, so that a version of SCons that lacks one is
refused by name, and not half-way through a build. Known to have all: SCons 4.6 to 4.11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import SCons
import SCons.Action
import SCons.CacheDir
import SCons.Node
import SCons.Node.FS
import SCons.PathList
import SCons.Subst
import SCons.Util

from offload_tool.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "adopt",
    "cache_is_forced",
    "cache_is_readonly",
    "content_changed",
    "copy_again",
    "does_execute",
    "folder_is_known",
    "forget_scan",
    "include_flags",
    "is_interactive",
    "replace_implicit",
    "was_damaged",
]

_NEEDED = (
    (SCons.Node.Node, "_children_reset", "del_binfo", "children", "get_stored_info"),
    (SCons.Node.FS.File, "is_up_to_date", "retrieve_from_cache", "push_to_cache", "visited"),
    (SCons.Node.FS.File, "get_cachedir_bsig", "get_csig"),
    (SCons.Node.FS.File, "RDirs"),
    (SCons.PathList, "PathList"),
    (SCons.CacheDir, "cache_force", "cache_readonly"),
    (SCons.Action, "execute_actions"),
    (SCons.Node, "interactive"),
)
for _owner, *_names in _NEEDED:
    for _name in _names:
        if not hasattr(_owner, _name):
            raise UsageError(
                f"SCons {SCons.__version__} has no {_owner.__name__}.{_name}, which this package "
                "needs; known to work are SCons 4.6 to 4.11"
            )


def adopt(node: Any, kind: type) -> None:
    """Make a file node one of a class of ours, as SCons does with entries that become files."""
    if type(node) is SCons.Node.FS.Entry:  # nobody has asked yet what it is
        node.disambiguate()
    if type(node) is SCons.Node.FS.File or issubclass(kind, type(node)):
        node.__class__ = kind


def replace_implicit(node: Any, nodes: list[Any]) -> None:
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


def content_changed(node: Any, against: Any) -> bool:
    """Tell whether a derived file is of other content of its children than it was.

    As `SCons.Node.Node.changed`, with content for each child, whatever Decider is set.
    `against` is the node whose stored information counts: `node`, or its file in a Repository.
    """
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


def was_damaged(node: Any) -> bool:
    """Tell whether a derived file is no longer what SCons has stored of it.

    Its time does not tell: SCons stores whole seconds.
    """
    digest = getattr(node.get_stored_info().ninfo, "csig", None)
    return digest is not None and bool(node.get_csig() != digest)


def include_flags(target: Any, source: Any, env: Any, for_signature: bool) -> list[Any]:  # noqa: ARG001
    """Give the flags of ``CPPPATH``, each one word whatever its folder is called.

    As SCons's ``$_CPPINCFLAGS``, but part of signatures: the search path decides what is found.
    """
    folders = SCons.PathList.PathList(env.get("CPPPATH") or []).subst_path(env, target, source)
    found = target[0].RDirs(folders) if target else folders
    before, after = env.subst("$INCPREFIX"), env.subst("$INCSUFFIX")
    return [SCons.Subst.Literal(f"{before}{folder}{after}") for folder in found]


def folder_is_known(fs: Any, name: str) -> bool:
    """Tell whether SCons has a node for a folder; without one, it builds nothing there."""
    try:
        fs.Dir(name, create=False)
    except SCons.Errors.UserError:
        return False
    return True


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


def existing(nodes: Iterable[Any]) -> Iterator[Any]:
    """Give the nodes that are there, or that will be."""
    return (node for node in nodes if node.has_builder() or node.rexists())
