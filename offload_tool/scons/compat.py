"""All uses of SCons's private names by this package, but for its classes of nodes (`node_classes`).

Importing this module checks for them. A version of SCons that lacks one is rejected with its name,
instead of failing during a build. SCons 4.6 to 4.11 have all.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, TypeVar

import SCons
import SCons.Action
import SCons.Builder
import SCons.CacheDir
import SCons.Defaults
import SCons.Environment
import SCons.Errors
import SCons.Executor
import SCons.Node
import SCons.Node.FS
import SCons.Node.Python
import SCons.PathList
import SCons.Script
import SCons.Subst
import SCons.Taskmaster
import SCons.Tool
import SCons.Util

from offload_tool.errors import UsageError
from offload_tool.scons.types import Environment, FileSystem, Folder, Node

T = TypeVar("T")

_NEEDED = (
    (SCons.Node, "interactive", "arg2nodes_lookups"),
    (SCons.Node.Node, "_children_reset", "del_binfo", "children", "get_stored_info", "set_noclean"),
    (SCons.Node.Node, "add_to_implicit"),
    (SCons.Node.FS, "Save_Strings"),
    (SCons.Node.FS.File, "NodeInfo", "is_up_to_date", "retrieve_from_cache", "push_to_cache"),
    (SCons.Node.FS.File, "visited", "built", "explain", "released_target_info", "get_csig"),
    (SCons.Node.FS.File, "get_max_drift_csig", "changed_timestamp_newer", "get_cachedir_bsig"),
    (SCons.Node.FS.File, "changed_timestamp_match", "srcnode", "must_be_same", "RDirs"),
    (SCons.Node.FS.FileNodeInfo, "field_list", "merge"),
    (SCons.Node.FS.Dir, "srcdir_list", "get_all_rdirs"),
    (SCons.Node.Python.Value, "get_csig", "get_ninfo"),
    (SCons.Action, "execute_actions", "LazyAction", "FunctionAction", "_resolve_shell_env"),
    (SCons.Action.FunctionAction, "get_presig"),
    (SCons.Builder, "OverrideWarner"),
    (SCons.Builder.BuilderBase, "_create_nodes", "_execute"),
    (SCons.CacheDir, "cache_force", "cache_readonly"),
    (SCons.CacheDir.CacheDir, "cachepath", "is_enabled"),
    (SCons.Defaults, "_concat_ixes", "_defines"),
    (SCons.Environment, "CleanTargets", "OverrideEnvironment"),
    (SCons.Executor.Executor, "get_contents", "get_sources", "get_all_targets"),
    (SCons.PathList, "PathList"),
    (SCons.Subst, "escape_list"),
    (SCons.Taskmaster, "find_cycle"),
    (SCons.Taskmaster.Taskmaster, "cleanup"),
    (SCons.Tool.Tool, "__call__"),
    (SCons.Util, "MethodWrapper"),
)
for _owner, *_names in _NEEDED:
    for _name in _names:
        if not hasattr(_owner, _name):
            raise UsageError(
                f"SCons {SCons.__version__} has no {_owner.__name__}.{_name}, which this package "
                "needs; known to work are SCons 4.6 to 4.11"
            )


class AddedMethod(SCons.Util.MethodWrapper):  # type: ignore[misc]
    """A method that was added to an environment; clones of it have the same."""

    object: Any
    name: str


def adopt_method(env: Any, name: str, method_class: type) -> None:
    """Assign one of our classes to a method that was added to an environment."""
    method = getattr(env, name, None)
    if type(method) is SCons.Util.MethodWrapper:
        method.__class__ = method_class


def add_source(node: Any, source: Node) -> None:
    """Add a source to a node with a builder, if new (the executor takes quadratic time)."""
    if source not in node.sources_set:
        node.add_source([source])
        node.get_executor().get_sources().append(source)


def replace_implicit(node: Any, nodes: list[Node]) -> None:
    """Replace the implicit dependencies of a node that was built."""
    node.implicit = nodes
    node.implicit_set = set(nodes)
    node._children_reset()
    node.del_binfo()


def copy_again(node: Any) -> None:
    """Update a file copied to a variant folder; remove it if its source is gone."""
    node.linked = False
    node.srcnode().clear()
    node.clear()
    node.exists()


def implicit_of(node: Any) -> list[Any]:
    """Return the dependencies that a scanner has found for a node."""
    return list(node.implicit or ())


def variables_of(env: Environment, target: list[Any], source: list[Any]) -> dict[str, str]:
    """Return the environment variables of a command, as SCons sets them when it runs."""
    found = SCons.Action._resolve_shell_env(env, target, source)
    lists = ((name, SCons.Util.flatten([value])) for name, value in found.items())
    return {name: os.pathsep.join(map(str, values)) for name, values in lists}


def with_variables(env: Environment, add: Callable[[dict[str, Any]], dict[str, Any]]) -> list[Any]:
    """Return ``SHELL_ENV_GENERATORS`` by which commands have what `add` makes of their variables.

    A copy of ``env["ENV"]`` would not have what users change behind the builder call.
    """
    return [*env.get("SHELL_ENV_GENERATORS", ()), lambda _env, _target, _source, given: add(given)]


def command_of(action: Any) -> Any:
    """Return the command of an action, before substitution."""
    return action.cmd_list


def include_flags(
    target: list[Any], source: list[Any], env: Environment, for_signature: bool
) -> list[Any]:
    """Return the flags of CPPPATH, no name of them split, which are part of signatures."""
    found = SCons.PathList.PathList(env.get("CPPPATH") or []).subst_path(env, target, source)
    if target:
        node = target[0]
        pairs = ((_header_map(env.fs, folder, node.cwd), folder) for folder in found)
        found = [each for maps, folder in pairs for each in maps or node.RDirs((folder,))]
    names = [str(folder) for folder in found]
    flags = SCons.Defaults._concat_ixes(env["INCPREFIX"], names, env["INCSUFFIX"], env)
    return [SCons.Subst.Literal(flag) for flag in flags]


def header_folders(
    env: Environment, folder: Any = None, target: Any = None, source: Any = None
) -> tuple[Any, ...]:
    """Return the folders of ``CPPPATH``, as SCons's ``FindPathDirs``, without header maps."""
    base = folder or env.fs.getcwd()
    given = SCons.PathList.PathList(env.get("CPPPATH") or []).subst_path(env, target, source)
    folders = tuple(name for name in given if not _header_map(env.fs, name, base))
    return tuple(base.Rfindalldirs(folders))


def _header_map(fs: FileSystem, name: Any, base: Any) -> list[Any]:
    """Return the file with a folder's name, which clang takes for a header map."""
    node: Any = fs.Entry(name, base) if isinstance(name, str) else name
    return [file for file in (node, node.srcnode()) if file.isfile()][:1]


def exact_file(fs: FileSystem, name: str) -> Node:
    """Return the node of a file, by its path from the top folder; ``env.File`` substitutes."""
    return fs.File(name, fs.Top)


def file_node(fs: FileSystem, name: str) -> Node | None:
    """Return the node of a file, by its path from the top folder; None for a folder's name."""
    try:
        return exact_file(fs, name)
    except TypeError:
        return None


def folder_node(fs: FileSystem, name: str, *, create: bool = True) -> Folder | None:
    """Return a folder's node, by its path from the top; None for a file, or if it has none."""
    try:
        return fs.Dir(name, fs.Top, create)
    except (TypeError, SCons.Errors.UserError):
        return None


_NAME_CLASHES = (
    re.compile(r"Tried to lookup (Dir|File) '(.*)' as a (?:File|Dir)\.", re.DOTALL),
    re.compile(r"(Directory|File) (.*) found where (?:file|directory) expected\.", re.DOTALL),
)
"""SCons's messages: the type of the existing node, and its path."""


@contextmanager
def reporting_name_clashes() -> Iterator[None]:
    """Convert SCons's errors on clashes of names to errors of the user's, UsageError."""
    try:
        yield
    except TypeError as error:
        clash = next(filter(None, (each.fullmatch(str(error)) for each in _NAME_CLASHES)), None)
        if clash is None:
            raise
        is_a, wanted = ("file", "folder") if clash[1] == "File" else ("folder", "file")
        raise UsageError(
            f"'{clash[2]}' is a {is_a}, where a {wanted} is needed; rename it, or give the "
            "target another name"
        ) from None


def builds_in(folder: str) -> bool:
    """Return True if this process may build something in a folder: SCons has a node for it."""
    return folder_node(SCons.Node.FS.get_default_fs(), folder, create=False) is not None


def built_in(fs: FileSystem, name: str, suffix: str) -> list[Node]:
    """Return the nodes of files with a suffix that this build makes in a folder."""
    folder: Any = folder_node(fs, name, create=False)
    entries = folder.entries.items() if folder is not None else ()
    return [node for name, node in entries if name.endswith(suffix) and node.is_derived()]


def known_file(fs: FileSystem, path: str) -> Any:
    """Return the node of a file that exists or is built, uncached; None if there is none."""
    head, name = os.path.split(path)
    folder: Any = folder_node(fs, head or ".")
    folders = [] if folder is None else [folder, *folder.srcdir_list()]
    for each in (other for at in folders for other in at.get_all_rdirs()):
        known = each.entries.get(name)
        is_file = known is not None and not isinstance(known, SCons.Node.FS.Dir)
        if (is_file and known.is_derived()) or os.path.isfile(
            os.path.join(each.get_abspath(), name)
        ):
            return folder.File(name)
    return None


def cache_file(node: Any) -> str:
    """Return the path of a node's entry in its ``CacheDir``; "" if there is none."""
    cache = node.get_build_env().get_CacheDir()
    return str(cache.cachepath(node)[1]) if cache.is_enabled() else ""


def cache_folder(cache: Any, digest: str) -> str:
    """Return the folder of a ``CacheDir`` for the entry of a digest."""
    return os.path.join(cache.path, digest[: cache.config["prefix_len"]].upper())


def cache_is_readonly() -> bool:
    """Return True with ``--cache-readonly``."""
    return bool(SCons.CacheDir.cache_readonly)


def is_interactive() -> bool:
    """Return True if this process may build several times: ``--interactive``."""
    return bool(SCons.Node.interactive)


def does_execute() -> bool:
    """Return True if actions run: not with ``-n``."""
    return bool(SCons.Action.execute_actions)


OWN_SPAWN = "_OFFLOAD_SPAWN"
DEFINES = SCons.Defaults._defines
"""The function that makes flags of ``CPPDEFINES``."""


class PassCommandAction(SCons.Action.LazyAction):  # type: ignore[misc]
    """The command of a pass, which runs by its own function; other actions by ``SPAWN``.

    `signed_text` returns the command as SCons signs it, without SCons's substitution.
    """

    def __init__(self, name: str, signed_text: Callable[..., str | None], **keywords: Any) -> None:
        super().__init__(name, keywords)
        self._signed_text = signed_text

    def __call__(self, target: Any, source: Any, env: Any, *args: Any, **keywords: Any) -> Any:
        """Run the command; ``_OFFLOAD_SPAWN`` is the function."""
        local = env.Override({"SPAWN": env[OWN_SPAWN]})
        return super().__call__(target, source, local, *args, **keywords)

    def get_presig(self, target: Any, source: Any, env: Any, *args: Any, **keywords: Any) -> Any:
        """Return the command after substitution."""
        text = self._signed_text(env, self.var, target, source)
        own = super().get_presig
        return own(target, source, env, *args, **keywords) if text is None else text


def layers_of(env: Any) -> list[dict[str, Any]] | None:
    """Return the variables of an environment and of those that it overrides; None if any deletes.

    SCons keeps these dictionaries, and changes them in place.
    """
    overrides, base = _overrides(env)
    if any(vars(each).get("__deleted") for each in overrides):
        return None
    return [*(vars(each)["overrides"] for each in overrides), base._dict]


def override(env: Any, base: Any, variables: dict[str, Any]) -> Any:
    """Return an override of `env` as one layer above `base`, which `env` overrides in several.

    SCons looks for each variable and each attribute in one layer after the other.
    """
    overrides, below = _overrides(env, base)
    layers = ChainMap(variables, *(vars(each)["overrides"] for each in overrides))
    return SCons.Environment.OverrideEnvironment(below, dict(layers))


def _overrides(env: Any, base: Any = None) -> tuple[list[Any], Any]:
    """Return an override and all that it is over, down to `base` or a plain one, and that."""
    found = []
    while env is not base and isinstance(env, SCons.Environment.OverrideEnvironment):
        found.append(env)
        env = vars(env)["__subject"]
    return found, env


class SingleNodeBuilder(SCons.Builder.BuilderBase):  # type: ignore[misc]
    """A builder of one node at a time, which is given as it is, as are its variables.

    SCons's own copies the variables, and looks up all nodes by their names.
    """

    def _create_nodes(self, _env: Any, target: Any = None, source: Any = None) -> Any:
        return target, source

    def declare(
        self, env: Environment, node: Node, sources: list[Node], variables: dict[str, Any]
    ) -> None:
        """Make the builder the node's, with these sources and variables."""
        local = SCons.Environment.OverrideEnvironment(env, variables)
        no_warnings = SCons.Builder.OverrideWarner({})
        self._execute(local, [node], sources, no_warnings, self.executor_kw)


class SignedAction(SCons.Action.FunctionAction):  # type: ignore[misc]
    """A function as an action, signed by a text, as bytecode differs between Pythons."""

    def __init__(self, signed: str, run: Callable[..., int], **keywords: Any) -> None:
        super().__init__(lambda: None, keywords)  # SCons looks through all that it refers to
        self.execfunction = run
        self._signed = signed

    def __str__(self) -> str:
        return self._signed.strip()

    def get_presig(self, *_: Any, **__: Any) -> bytes:
        """Return the text."""
        return self._signed.encode()


def escaped(line: Any, quote: Callable[[str], str]) -> list[str]:
    """Return the words of a command as SCons quotes them for a shell."""
    return list(map(str, SCons.Subst.escape_list(line, quote)))


def ignored_files(node: Any) -> frozenset[str]:
    """Return the files that ``env.Ignore`` names for a node, by their paths."""
    files = (each for each in node.ignore if isinstance(each, SCons.Node.FS.Base))
    return frozenset(str(each.rfile().get_internal_path()) for each in files)


def has_more_actions(node: Any) -> bool:
    """Return True if a user has added pre- or post-actions to a node."""
    executor = node.get_executor()
    return bool(executor.pre_actions or executor.post_actions)


def keep_command(node: Any) -> None:
    """Make SCons keep a node's command after the build."""
    node.attributes.keep_targetinfo = True


def mark_shared(nodes: Iterable[Any]) -> None:
    """Mark objects for shared libraries, into which SCons links no others."""
    for node in nodes:
        node.attributes.shared = True


def contents(node: Any) -> bytes:
    """Return the bytes that SCons signs for a node's command."""
    return bytes(node.get_executor().get_contents())


def waits_for(node: Any) -> list[Any]:
    """Return a node's prerequisites, which are no dependencies."""
    return list(node.prerequisites or ())


def known_inputs(node: Any) -> list[Any]:
    """Return the known dependencies and prerequisites of a node; a built one may have none."""
    return [*(node.implicit or ()), *waits_for(node), *(node.sources or ()), *(node.depends or ())]


def without_made_of(files: Iterable[Any], node: Any) -> list[Any]:
    """Return files without those that are made of a node: words such as ``native`` may name one."""
    together = set(node.get_executor().get_all_targets())
    others: set[Any] = set()  # not made of it
    kept = []
    for file in files:
        seen, waiting = {file}, [file]
        while waiting and together.isdisjoint(seen):
            found = {*known_inputs(waiting.pop())} - seen - others
            seen |= found
            waiting += found
        if together.isdisjoint(seen):
            others |= seen
            kept.append(file)
    return kept


class LateValue(SCons.Node.Python.Value):  # type: ignore[misc]
    """A value that is computed after all SConscripts were read."""

    def __init__(self, name: str, sign: Callable[[], str]) -> None:
        super().__init__(name)
        self._sign = sign

    def get_csig(self) -> str:
        """Return the current digest from `sign`."""
        self.get_ninfo().csig = csig = self._sign()
        return csig


def add_lookup(lookup: Callable[..., Any]) -> None:
    """Make SCons try `lookup` for names on its command line that nothing else resolves."""
    lookups = SCons.Node.arg2nodes_lookups  # environments and SCons's main use this list
    if lookup not in lookups:
        lookups.append(lookup)  # after that of aliases, so that the user's have precedence


def blame_caller(function: Any) -> None:
    """Make SCons report a function's errors with the line of the SConscript that called it."""
    path = str(PurePath(SCons.Errors.__file__).with_name("offload.py"))
    function.__code__ = function.__code__.replace(co_filename=path)


_declared: list[Node] = []
"""The first node of ours, if any."""


def check_builder_of_nodes(node: Node) -> None:
    """Raise UsageError for a node that is declared while SCons's tool ``ninja`` is in use."""
    if not _declared:
        _declared.append(node)
    # That tool controls the build: SCons then builds nothing.
    if getattr(sys.modules.get("SCons.Tool.ninja_tool"), "NINJA_STATE", None) is not None:
        raise UsageError(
            f"'{node}' cannot be built through SCons's experimental tool 'ninja': its build.ninja "
            "would not say which headers a compile has read, and silently use stale outputs; "
            "build with scons itself, without that tool or --experimental=ninja, or let Ninja call "
            "`offload-tool compile` (docs/meson.md)"
        )


@functools.cache
def refuse_ninja_tool() -> None:
    """Reject SCons's tool ``ninja`` even if it is loaded after nodes of ours were declared.

    It takes control in every environment. For unknown actions, its build file lacks the headers
    that were read and all else that a manifest checks. A changed header left the old output, with
    exit status 0, and earlier nodes were not built. Source: SCons 4.11.1,
    ``SCons/Tool/ninja_tool``, read and run.
    """
    load = SCons.Tool.Tool.__call__

    @functools.wraps(load)
    def load_and_check(self: Any, env: Environment, *arguments: Any, **keywords: Any) -> None:
        load(self, env, *arguments, **keywords)
        try:
            for node in _declared:
                check_builder_of_nodes(node)
        except UsageError as error:
            raise SCons.Errors.UserError(str(error)) from None

    blame_caller(load_and_check)
    SCons.Tool.Tool.__call__ = load_and_check


@functools.cache
def suppress_false_cycles() -> None:
    """Stop SCons from reporting a dependency cycle after a failure if there is no cycle.

    With ``-k``, SCons may visit a node twice before it finds that a child failed; such a node stays
    among those that it later reports as a cycle. Source: SCons 4.11.1, observed, with five nodes of
    ``Command``.
    """
    report_cycles = SCons.Taskmaster.Taskmaster.cleanup

    @functools.wraps(report_cycles)
    def cleanup(self: Any) -> None:
        if SCons.Script.GetBuildFailures():
            found = (n for n in self.pending_children if SCons.Taskmaster.find_cycle([n], set()))
            self.pending_children = set(found)
        report_cycles(self)

    SCons.Taskmaster.Taskmaster.cleanup = cleanup


def of_build(env: Environment, make: Callable[[], T]) -> T:
    """Return the build's single instance of `make`, a type, stored on its SCons file system."""
    known: dict[Any, Any] = vars(env.fs).setdefault("offload_of_build", {})
    if make not in known:
        known[make] = make()
    found: T = known[make]
    return found


@contextmanager
def at_top(env: Environment) -> Iterator[None]:
    """Run in the folder in which SCons runs commands, not in that of the SConscript being read.

    Compiler queries run in the compiler's working directory. A relative name in flags, in PATH or
    in an environment variable then means the same in both, and in each SConscript.

    SCons also spells nodes in variables as in commands: elsewhere `str(node)` is relative to the
    SConscript. Convert names to nodes before entering.
    """
    fs, before = env.fs, os.getcwd()
    top, folder = fs.Top, fs.getcwd()
    fs.chdir(top)
    os.chdir(top.get_abspath())
    try:
        yield
    finally:
        os.chdir(before)
        fs.chdir(folder)


@functools.cache
def usual_path() -> str:
    """Return the PATH of commands that SCons sets on this platform."""
    return str(SCons.Environment.Base(tools=[])["ENV"].get("PATH", ""))


def has_read_all() -> bool:
    """Return True if all SConscripts were read: SCons then caches nodes' names."""
    return bool(SCons.Node.FS.Save_Strings)


def is_build() -> bool:
    """Return False for ``scons -c`` and ``scons -h``: they search and query no compiler."""
    return not (SCons.Script.GetOption("clean") or SCons.Script.GetOption("help"))
