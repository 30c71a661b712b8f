"""Which tests the README's command runs; all others have the marker ``full``, which CI runs too.

The default set takes at most six minutes on two cores. It has one case for each builder, layout,
command and row of the promise table. A file that no rule below names is in it as a whole, so that
a new file of quick tests needs no entry here. Where the command line names files or folders, all
of their tests run.
"""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["chosen", "without_tests"]

_T = TypeVar("_T")

MOST_CASES: dict[str, int] = {
    "tests/cli/*": 4,
    "tests/clang/*": 4,
    "tests/manifest/*": 4,
    "tests/nvidia/*": 4,
    "tests/passes/*": 4,
    "tests/pch/*": 4,
    "tests/run/*": 4,
    "tests/toolchain/*": 4,
    "tests/launch/*": 2,
    "tests/pch_constructs/*": 4,
    "tests/untrusted/*": 4,
    "tests/sccache_dist/*": 2,
    "tests/toolchains/*": 4,
}
"""In these files, how many cases of one parametrised test are in the default set."""

NAMED: dict[str, tuple[str, ...]] = {
    "tests/driver/test_driver.py": (
        "test_random_project[[]1]",
        "test_stale_output_is_seen",
        "test_needless_compile_is_seen",
    ),
    "tests/driver/*": (),
    "tests/test_examples.py": ("test_saxpy[[]clang-22]", "*rdc*"),
    "tests/fuzz/*": ("test_no_findings",),
    "tests/scons/test_rebuild_table.py": ("*-HIP]", "test_table_is_complete"),
    "tests/scons/test_aliases.py": ("test_target_id_on_the_command_line*", "test_unknown_target"),
    "tests/scons/test_archives.py": (
        "test_archive_is_what_llvm_reads",
        "test_one_target_of_one_member",
    ),
    "tests/scons/test_builders.py": (
        "test_bundle_is_what_llvm_makes",
        "test_bundle_of_nodes_and_files",
        "test_clean",
        "test_compressed_bundle*",
        "test_device_objects",
        "test_dry_run",
        "test_flags_reach_the_right_passes",
        "test_program_finds_its_bundle",
        "test_unbundle",
    ),
    "tests/scons/test_bundle_options.py": ("test_file_types*", "test_mistakes*"),
    "tests/scons/test_caches.py": ("test_actions_are_thin", "test_checkouts_share_a_cache[[]hip*"),
    "tests/scons/test_command_line.py": ("test_option*",),
    "tests/scons/test_common_builders.py": ("test_same_as_ours", "test_static_library*"),
    "tests/scons/test_compat.py": ("*",),
    "tests/scons/test_cuda.py": ("test_flags_of_one_target", "test_program_with_cubins"),
    "tests/scons/test_cuda_rdc.py": ("test_one_image_of_all_sources", "test_flags_of_one_target"),
    "tests/scons/test_dependencies.py": (
        "test_generated_headers_of_generated_headers",
        "test_has_include",
        "test_header_appears_earlier_on_the_path",
        "test_variant_folder*",
    ),
    "tests/scons/test_errors.py": ("test_compile_error", "test_wrong_sconscript*"),
    "tests/scons/test_installed.py": ("test_construction_variables", "test_c_stays_c"),
    "tests/scons/test_kpack.py": ("test_what_is_made_again", "test_what_is_refused*"),
    "tests/scons/test_launchers.py": ("test_second_checkout_hits*",),
    "tests/scons/test_manifest_caches.py": ("test_header_that_appears", "test_damaged_entry"),
    "tests/scons/test_manifest_damage.py": ("test_killed_scons",),
    "tests/scons/test_manifest_inputs.py": ("test_files_of_flags*",),
    "tests/scons/test_null_builds.py": ("*",),
    "tests/scons/test_observing.py": ("test_summary", "test_explain_names_the_changed_header"),
    "tests/scons/test_offload_drivers.py": ("test_program_registers_what_clangs_own_does*",),
    "tests/scons/test_openmp.py": ("test_program", "test_flags_of_one_target"),
    "tests/scons/test_openmp_archives.py": ("test_archives_are_what_llvm_makes",),
    "tests/scons/test_packages.py": (
        "test_extract",
        "test_mistakes*",
        "test_package_is_what_llvm_makes",
        "test_wrapper_is_what_llvm_makes",
    ),
    "tests/scons/test_precompiled.py": ("test_changes", "test_why_not"),
    "tests/scons/test_rdc.py": ("test_image_is_what_clang_links", "test_flags_of_one_target"),
    "tests/scons/test_rebuilds.py": ("test_sconstruct_head_is_what_users_write",),
    "tests/scons/test_report_node.py": ("test_report",),
    "tests/scons/test_sources.py": ("test_wrong_sources*",),
    "tests/scons/test_variables.py": ("*",),
    "tests/scons/test_folders.py": ("test_header_that_becomes_a_folder",),
    "tests/scons/test_given_times.py": ("test_another_release_with_the_same_time[[]*Bundle*",),
    "tests/scons/test_launcher_lookups.py": ("test_second_checkout_hits_directly",),
    "tests/scons/*": (),
}
"""Of these files, the tests of the default set; the first pattern that fits a file counts."""


def chosen(names: Iterable[str]) -> set[str]:
    """Return those of the tests, given by their node IDs, that are in the default set."""
    found, cases = set(), Counter[str]()
    for name in names:
        file, _, test = name.partition("::")
        named = _first_fitting(NAMED, file)
        if named is not None:
            is_chosen = any(fnmatchcase(test, pattern) for pattern in named)
        else:
            most = _first_fitting(MOST_CASES, file)
            function = name.partition("[")[0]
            cases[function] += 1
            is_chosen = most is None or cases[function] <= most
        if is_chosen:
            found.add(name)
    return found


def without_tests(names: Iterable[str]) -> list[str]:
    """Return the rules to which none of these tests belongs."""
    by_file: dict[str, list[str]] = {}
    for name in names:
        file, _, test = name.partition("::")
        by_file.setdefault(file, []).append(test)
    gone = [
        rule
        for rule in (*MOST_CASES, *NAMED)
        if not any(fnmatchcase(file, rule) for file in by_file)
    ]
    for rule, patterns in NAMED.items():
        tests = [test for file in by_file if fnmatchcase(file, rule) for test in by_file[file]]
        gone += [
            f"{rule}::{pattern}"
            for pattern in patterns
            if not any(fnmatchcase(t, pattern) for t in tests)
        ]
    return gone


def _first_fitting(rules: Mapping[str, _T], file: str) -> _T | None:
    return next((rule for pattern, rule in rules.items() if fnmatchcase(file, pattern)), None)
