"""What this package uses of SCons's environments and nodes, for type checkers.

SCons has no types. These are the parts of its public interface that are used here; what it does
not promise is used in `compat` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol


class Node(Protocol):
    """A file of the build; values and aliases are nodes as well."""

    attributes: Any
    """Where whoever likes may keep what belongs to a node."""
    name: str
    dir: Folder
    fs: FileSystem
    env: Environment
    builder: Any
    sources: list[Node]
    depends: list[Node]

    def add_dependency(self, depend: list[Node]) -> None:
        """Make this node depend on others."""

    def add_source(self, source: list[Node]) -> None:
        """Add sources to this node."""

    def add_prerequisite(self, prerequisite: list[Node]) -> None:
        """Make this node wait for others, which are not dependencies of it."""

    def children(self, scan: bool = True) -> list[Node]:
        """Return all that this node depends on."""

    cwd: Folder
    """The folder of the SConscript that has declared it."""

    def exists(self) -> bool:
        """Return whether the file is there."""

    def rexists(self) -> bool:
        """Return whether the file is there, or in a repository."""

    def is_derived(self) -> bool:
        """Return whether it is built."""

    def is_under(self, dir: Folder) -> bool:  # noqa: A002 - as SCons calls it
        """Return whether it is in a folder, at any depth."""

    def isdir(self) -> bool:
        """Return whether it is a folder."""

    def has_builder(self) -> bool:
        """Return whether it is built, or has a builder that says nothing."""

    def has_explicit_builder(self) -> bool:
        """Return whether someone has declared how it is built."""

    def get_abspath(self) -> str:
        """Return its absolute path."""

    def get_internal_path(self) -> str:
        """Return its path relative to the top folder."""

    def get_build_env(self) -> Environment:
        """Return the environment in which it is built."""

    def get_csig(self) -> str:
        """Return the signature of its content."""

    def get_suffix(self) -> str:
        """Return its suffix, with the dot."""

    def get_state(self) -> int:
        """Return how far the build is with it."""

    def get_text_contents(self) -> str:
        """Return its content as text."""

    def rfile(self) -> Node:
        """Return the file in a repository that stands for it, or itself."""

    def srcnode(self) -> Node:
        """Return the file of the source folder, of one in a variant folder; or itself."""


class Folder(Node, Protocol):
    """A folder of the build."""

    duplicate: bool
    """Whether a variant folder gets copies of the sources."""

    def File(self, name: str) -> Node:
        """Return the node of a file in it."""

    def getRepositories(self) -> list[Folder]:
        """Return the top folders of repositories."""

    def srcnode(self) -> Folder:
        """Return the source folder of a variant folder, or itself."""

    def rdir(self) -> Folder:
        """Return the folder in a repository that stands for it, or itself."""


class FileSystem(Protocol):
    """All nodes of files."""

    Top: Folder

    def getcwd(self) -> Folder:
        """Return the folder whose SConscript is being read."""

    def chdir(self, dir: Folder) -> None:  # noqa: A002 - as SCons calls it
        """Make names relative to another folder."""

    def File(self, name: str, directory: Folder | None = None, create: bool = True) -> Node:
        """Return the node of a file."""

    def Dir(self, name: str, directory: Folder | None = None, create: bool = True) -> Folder:
        """Return the node of a folder."""

    def Entry(self, name: str, directory: Any = None, create: bool = True) -> Node:
        """Return the node of what may be either."""


class Environment(Protocol):
    """A construction environment."""

    fs: FileSystem

    def __getitem__(self, key: str) -> Any:
        """Return a construction variable."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return a construction variable, or `default`."""

    def subst(self, string: str, *, target: Any = None, source: Any = None) -> str:
        """Replace variables in a text."""

    def subst_list(self, string: Any, *, target: Any = None, source: Any = None) -> list[list[Any]]:
        """Replace variables in commands; return the words of each."""

    def Override(self, overrides: dict[str, Any]) -> Environment:
        """Return this environment with some variables replaced."""

    def SetDefault(self, **variables: Any) -> None:
        """Set what is not set."""

    def Replace(self, **variables: Any) -> None:
        """Set variables."""

    def Dictionary(self) -> dict[str, Any]:
        """Return all variables."""

    def Split(self, arg: Any) -> list[Any]:
        """Return a list, of a list or of a text with blanks."""

    def arg2nodes(self, args: Any, node_factory: Any = None) -> list[Any]:
        """Return the nodes of names."""

    def File(self, name: Any, *args: Any) -> Any:
        """Return the node of a file, or those of several."""

    def Dir(self, name: Any, *args: Any) -> Any:
        """Return the node of a folder, or those of several."""

    def Value(self, value: Any) -> Node:
        """Return the node of a value."""

    def Alias(self, target: str, source: Any = None) -> list[Node]:
        """Return the node of a name for others."""

    def Depends(self, target: Any, dependency: Any) -> Any:
        """Make nodes depend on others."""

    def Clean(self, target: Any, files: Iterable[Any]) -> Any:
        """Add to what ``scons -c`` removes."""

    def NoCache(self, target: Any) -> Any:
        """Keep nodes out of a ``CacheDir``."""

    def Precious(self, target: Any) -> Any:
        """Keep outputs while they are made anew."""

    def SideEffect(self, side_effect: Any, target: Any) -> Any:
        """Prevent nodes that have one side effect from being built together."""

    def AddPreAction(self, files: Any, action: Any) -> Any:
        """Run an action before those of nodes."""

    def AddMethod(self, function: Callable[..., Any], name: str) -> None:
        """Add a method to the environment."""

    def get_CacheDir(self) -> Any:
        """Return the cache in use."""
