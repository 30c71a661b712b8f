"""The builders: methods of a construction environment that return ordinary SCons nodes.

`objects`, `containers` and `programs` declare the nodes. This module parses users' arguments, and
reports errors with the SConscript's line.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import SCons.Errors
import SCons.Node
import SCons.Node.FS
import SCons.Util

from offload_tool.errors import CompilerError, OffloadError, UsageError
from offload_tool.formats.targets.compile_target import parse_target
from offload_tool.passes import openmp
from offload_tool.scons import compat, found_tools
from offload_tool.scons.builders import containers, objects, programs, standard
from offload_tool.scons.builders.compile_commands import offload_compilation_database
from offload_tool.scons.builders.report import offload_report
from offload_tool.scons.graph.call_cache import KINDS, call_of
from offload_tool.scons.graph.units import kind_of, path_from_top, source_nodes
from offload_tool.scons.state.build_log import offload_progress
from offload_tool.scons.state.node_info import info_of
from offload_tool.scons.types import Environment, Node


def add_builders(env: Environment) -> None:
    """Add the builders to a construction environment, as methods."""
    for name, method in (
        ("OffloadDeviceObject", objects.offload_device_object),
        ("OffloadHostObject", objects.offload_host_object),
        ("OffloadBundle", containers.offload_bundle),
        ("OffloadUnbundle", containers.offload_unbundle),
        ("OffloadArchive", objects.offload_archive),
        ("OffloadDeviceArchive", objects.offload_device_archive),
        ("OffloadPackage", containers.offload_package),
        ("OffloadExtract", containers.offload_extract),
        ("OffloadRepack", containers.offload_repack),
        ("OffloadWrapper", containers.offload_wrapper),
        ("OffloadObject", objects.offload_object),
        ("OffloadStaticLibrary", objects.offload_static_library),
        ("OffloadSharedLibrary", programs.offload_shared_library),
        ("OffloadProgram", programs.offload_program),
        ("OffloadKpack", offload_kpack),
        ("OffloadReport", offload_report),
        ("OffloadCompilationDatabase", offload_compilation_database),
    ):
        env.AddMethod(_as_builder(name, method), name)
        compat.adopt_method(env, name, standard.BuilderMethod)  # which TryBuild accepts
    for name, query in (
        ("OffloadDeviceRuntime", offload_device_runtime),
        ("OffloadHostRuntime", offload_host_runtime),
        ("OffloadCudaToolkit", offload_cuda_toolkit),
        ("OffloadRocmFlags", offload_rocm_flags),
        ("OffloadCudaFlags", offload_cuda_flags),
    ):
        env.AddMethod(_as_query(query), name)
    env.AddMethod(offload_progress, "OffloadProgress")


def extend_builders(env: Environment) -> None:
    """Make SCons's own builders in a construction environment accept offload sources."""
    shared_object = functools.partial(objects.offload_object, shared=True)
    module = functools.partial(programs.host_link_nodes, builder="LoadableModule")
    standard.accept_offload_sources(
        env,
        {
            "Object": _as_builder("OffloadObject", objects.offload_object),
            "StaticObject": _as_builder("OffloadObject", objects.offload_object),
            "SharedObject": _as_builder("SharedObject", shared_object),
            "StaticLibrary": _as_builder("OffloadStaticLibrary", objects.offload_static_library),
            "Library": _as_builder("OffloadStaticLibrary", objects.offload_static_library),
            "SharedLibrary": _as_builder("OffloadSharedLibrary", programs.offload_shared_library),
            "LoadableModule": _as_builder("LoadableModule", module),
            "Program": _as_builder("OffloadProgram", programs.offload_program),
        },
        lambda name: functools.partial(_check, name),
    )


_NOT_GIVEN = object()
_READ_TARGETS = frozenset(
    f"Offload{what}"
    for what in ("Bundle", "Unbundle", "DeviceArchive", "Package", "Extract", "Wrapper")
)


def _as_builder(name: str, method: Any) -> Any:
    """Call `method` as SCons calls builders: (env, source), or (env, target, source)."""

    def builder(
        env: Environment, target: Any = None, source: Any = _NOT_GIVEN, **overrides: Any
    ) -> Any:
        srcdir, chdir = overrides.pop("srcdir", ""), overrides.pop("chdir", False)
        if standard.is_check(overrides):
            return _check(standard.OF_CHECKS[name], env, target, source, **overrides)
        call = call_of(env, overrides)
        local = call.env
        if method is offload_compilation_database:
            return SCons.Node.NodeList(method(local, _one_name(local, target)))
        if local["OFFLOAD_TARGETS"] and name not in _READ_TARGETS:
            raise UsageError(
                f"{name}: OFFLOAD_TARGETS does not apply: the builder takes the target IDs of "
                f"OFFLOAD_ARCH or of its sources; it is for {', '.join(sorted(_READ_TARGETS))}"
            )
        if chdir:
            raise UsageError(f"{name}: chdir does not apply; commands run in the top folder")
        if source is _NOT_GIVEN:
            target, source = None, target
        target = _one_name(local, target)
        if srcdir:  # as SCons does
            items = SCons.Util.flatten([source])
            source = [os.path.join(srcdir, x) if SCons.Util.is_String(x) else x for x in items]
        try:
            nodes = source_nodes(local, source)
        except UsageError as error:
            what = name if target is None else f"{name} of '{target}'"
            raise UsageError(f"{what}: {error}") from None
        kinds = filter(None, (kind_of(local, node) for node in nodes))
        return SCons.Node.NodeList(method(call.for_kinds(kinds), target, nodes))

    builder.__doc__ = method.__doc__
    return _with_scons_errors(builder)


def _as_query(method: Any) -> Any:
    """Return the method of an environment that calls `method` with its variables read."""

    @functools.wraps(method)
    def query(env: Environment, *arguments: Any) -> Any:
        return method(call_of(env, {}).env, *arguments)

    return _with_scons_errors(query)


def _with_scons_errors(method: Any) -> Any:
    """Convert errors to SCons's, which show the line of the SConscript."""

    @functools.wraps(method)
    def call(*arguments: Any, **overrides: Any) -> Any:
        try:
            with compat.reporting_name_clashes():
                return method(*arguments, **overrides)
        except (OffloadError, SCons.Errors.UserError) as error:
            raise SCons.Errors.UserError(str(error)) from None

    compat.blame_caller(call)
    return call


@_with_scons_errors
def _check(name: str, env: Environment, target: Any, source: Any, **overrides: Any) -> Any:
    """Declare the file of a check of a ``Configure`` context, as SCons's builder of a name."""
    local = call_of(env, overrides).env
    builder = standard.builder_of_scons(env, name)
    return standard.check(local, builder, name, target, SCons.Util.flatten([source]))


def offload_kpack(env: Environment, target: str | None, sources: list[Node]) -> list[Node]:
    """Return the kpack archives that programs, libraries and objects load, for installation."""
    found: dict[Node, None] = {}
    for node in sources:
        archives = info_of(node).kpack_archives
        if not archives:
            raise UsageError(
                f"'{node}' was built without OFFLOAD_KPACK; set it there to have kpack archives"
            )
        found.update(dict.fromkeys(archives))
    return list(found)


def offload_device_runtime(env: Environment, target_id: str) -> list[str]:
    """Return the OpenMP device runtime linked into images for `target_id`; [] for none.

    ``scons -c`` and ``scons -h`` query no compiler: this, and the host runtime, are then there.
    """
    if not compat.is_build():
        return ["libompdevice.a"]
    found = found_tools.device_runtimes(env, parse_target(target_id))
    return [str(compat.exact_file(env.fs, name)) for name in found]


def offload_host_runtime(env: Environment) -> str | None:
    """Return the compiler's own OpenMP runtime; without one, no program links."""
    if not compat.is_build():
        return "libomptarget.so"
    return openmp.host_runtime(found_tools.toolchain(env))


def offload_cuda_toolkit(env: Environment) -> str | None:
    """Return the folder of the CUDA toolkit that sources compile with; None if none is usable."""
    try:
        found = found_tools.toolchain(env.Override({KINDS: "cuda"}), lenient=False)
    except CompilerError:
        return None
    return found.cuda or None


def offload_rocm_flags(env: Environment) -> dict[str, list[Any]]:
    """Return what C++ sources and links need of the ROCm in use, for ``env.MergeFlags``.

    This is ``CPPDEFINES`` and ``CPPPATH``, as ``hipconfig --cpp_config`` prints them, and ``LIBS``,
    ``LIBPATH`` and ``RPATH`` of ``libamdhip64``. Folders that compilers search anyway are left out.
    Without a ROCm, it is an error.
    """
    return _runtime_flags(env, "hip")


def offload_cuda_flags(env: Environment) -> dict[str, list[Any]]:
    """Return what C++ sources and links need of the CUDA toolkit in use, for ``env.MergeFlags``.

    This is ``CPPPATH``, and ``LIBS``, ``LIBPATH`` and ``RPATH`` of ``libcudart``. An installation
    without ``libcudart.so``, such as NVIDIA's wheels, gives ``libcudart_static.a`` and the
    libraries that it needs. Without a toolkit, it is an error.
    """
    return _runtime_flags(env, "cuda")


def _runtime_flags(env: Environment, kind: str) -> dict[str, list[Any]]:
    if not compat.is_build():
        return {}
    found = found_tools.runtime_library(env, kind)
    folders = [found.folder] if found.folder else []
    return {
        "CPPDEFINES": [*found.defines],
        "CPPPATH": [*found.headers],
        "LIBS": [
            compat.exact_file(env.fs, name) if os.sep in name else name for name in found.libraries
        ],
        "LIBPATH": folders,
        "RPATH": folders if found.is_shared else [],
    }


def _one_name(env: Environment, target: Any) -> str | None:
    names = SCons.Util.flatten([target]) if target is not None else []
    if len(names) > 1:
        raise UsageError(f"expected one target name, found {len(names)}")
    if not names:
        return None
    if isinstance(names[0], SCons.Node.FS.Base):
        return path_from_top(names[0])
    return str(env.subst(os.fspath(names[0])))
