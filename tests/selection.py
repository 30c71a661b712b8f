"""Which tests the README's command runs; all others have the marker ``full``, which CI runs too.

The default set takes at most five minutes on two cores. It has one case for each builder, layout,
command and row of the promise table. A file that no rule below names is in it as a whole, so that
a new file of quick tests needs no entry here. Where the command line names files or folders, all
of their tests run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

_T = TypeVar("_T")

MOST_CASES: dict[str, int] = {
    "tests/cli/test_compile_*": 1,
    "tests/cli/*": 2,
    "tests/clang/*": 2,
    "tests/documents/*": 12,
    "tests/manifest/test_pass_run.py": 99,
    "tests/manifest/*": 2,
    "tests/nvidia/*": 2,
    "tests/passes/*": 2,
    "tests/pch/*": 2,
    "tests/run/*": 2,
    "tests/toolchain/*": 2,
    "tests/launch/*": 1,
    "tests/pch_constructs/*": 2,
    "tests/untrusted/*": 2,
    "tests/sccache_dist/*": 1,
    "tests/toolchains/*": 4,
    "tests/formats/targets/test_bundle_entry_id_llvm.py": 1,
    "tests/formats/test_damage.py": 20,
    "tests/formats/*": 3,
    "tests/operations/*": 2,
    "tests/containers/*": 2,
}
"""In these files, how many cases of one parametrised test are in the default set."""

NAMED: dict[str, tuple[str, ...]] = {
    "tests/driver/test_driver.py": ("test_what_is_wrong_is_seen[[]a needless compile]",),
    "tests/driver/*": (),
    "tests/test_examples.py": ("test_saxpy[[]clang-22]", "test_rdc_library[[]clang-22]"),
    "tests/test_cmake.py": ("test_build[[]Ninja]",),
    "tests/test_make.py": ("test_program", "test_header_of_one_target"),
    "tests/test_meson.py": (
        "test_program",
        "test_rebuilds[[]a header of one*",
        "test_error_in_a_source",
    ),
    "tests/fuzz/*": (),
    "tests/launch/test_pch.py": ("test_edits[[]--no-offload-new-driver]", "test_two_at_once"),
    "tests/gpu/test_pack.py": ("test_table",),
    "tests/gpu/*": (),
    "tests/test_docs.py": ("test_other_tools", "test_every_page*", "test_page[[]why]"),
    "tests/scons/test_openmp_driver.py": (
        "test_bytes_are_the_drivers[[]22-cpp--O1]",
        "test_bytes_are_the_drivers[[]22-c--O0 -g]",
        "test_flags_of_the_host_stay_there[[]22]",
        "test_libraries_of_the_program[[]22]",
    ),
    "tests/scons/test_rebuild_table.py": ("*-HIP]", "test_table_is_complete"),
    "tests/scons/test_aliases.py": ("test_what_a_name_builds[[]*", "test_unknown_target"),
    "tests/scons/test_archives.py": ("test_change[[]one target*",),
    "tests/scons/test_builders.py": (
        "test_compressed_bundle*",
        "test_device_objects",
        "test_flags_reach_the_right_passes",
        "test_program_finds_its_bundle",
        "test_wrapped_bundle_registers",
    ),
    "tests/scons/test_builders_reference.py": ("*",),
    "tests/scons/test_calls.py": ("test_expands_no_command_line_of_each_node",),
    "tests/scons/test_caches.py": ("test_checkouts_share_a_cache[[]hip*",),
    "tests/scons/test_command_line.py": ("test_option*",),
    "tests/scons/test_common_builders.py": (
        "test_same_as_ours",
        "test_library[[]static]",
        "test_library[[]library*",
    ),
    "tests/scons/test_compat.py": ("*",),
    "tests/scons/test_cuda.py": ("test_program_with_cubins",),
    "tests/scons/test_cuda_rdc.py": ("test_one_image_of_all_sources",),
    "tests/scons/test_dependencies.py": (
        "test_after_a_change[[]generated headers of*",
        "test_chain_of_variant_folders[[]0-]",
    ),
    "tests/scons/test_errors.py": (
        "test_compile_error",
        "test_wrong_sconscript*",
        "test_place_of_a_mistake",
    ),
    "tests/scons/test_installed.py": ("test_construction_variables", "test_c_stays_c"),
    "tests/scons/test_kpack.py": ("test_every_kernel_gets_its_own_code[[]program]",),
    "tests/scons/test_launchers.py": ("test_second_checkout_hits*",),
    "tests/scons/test_link_inputs.py": (
        "test_library_that_nothing_describes[[]HIP, new driver-source]",
        "test_library_with_its_own_device_link[[]CUDA, new form]",
        "test_unused_sections[[]HIP, new driver-lld]",
    ),
    "tests/scons/test_manifests.py": (
        "test_header_that_appears",
        "test_damaged_entry",
        "test_damaged_output[[]relocatable]",
    ),
    "tests/scons/test_observing.py": (
        "test_summary",
        "test_explain_names_the_changed_header",
        "test_comparison",
    ),
    "tests/scons/test_offload_drivers.py": ("test_program_registers_what_clangs_own_does*",),
    "tests/scons/test_openmp.py": ("test_nodes_of_a_source",),
    "tests/scons/test_precompiled.py": ("test_why_not", "test_copied_checkout"),
    "tests/scons/test_rdc.py": ("test_image_is_what_clang_links",),
    "tests/scons/test_sources.py": ("test_wrong_sources",),
    "tests/scons/test_unseen_inputs.py": ("test_as_a_clean_build[[]link becomes a copy-by-*",),
    "tests/scons/test_variables.py": ("*",),
    "tests/scons/test_folders.py": ("test_header_that_becomes_a_folder",),
    "tests/scons/*": (),
}
"""Of these files, the tests of the default set; the first pattern that fits a file counts."""

SLOW: dict[str, tuple[str, ...]] = {
    "tests/clang/test_options.py": ("test_which_take_the_next_word",),
    "tests/cli/test_compile.py": ("test_flags_that_mend",),
    "tests/cli/test_compile_pch.py": ("test_changes_of_headers",),
    "tests/formats/bitcode/test_bitstream.py": ("test_very_long_records",),
    "tests/formats/bundle/test_decompress.py": ("test_memory_is_bounded*",),
    "tests/site/test_reference.py": ("test_ids",),
    "tests/toolchain/test_capability_check.py": (
        "test_newest_that_can",
        "test_none_can",
        "test_refusal_is_not_remembered",
    ),
    "tests/untrusted/test_limits.py": ("test_long_tables_end",),
    "tests/cli/test_bundler.py": ("test_random_runs[[][1-9]*",),
    "tests/cli/test_report.py": (
        *("test_30_000_kernels", "test_axe*", "test_requests_are_seen", "test_hostile_names*"),
    ),
    "tests/cli/test_packager.py": ("test_extraction_is_llvms",),
    "tests/launch/test_launchers.py": ("test_what_is_compiled*",),
    "tests/launch/test_edit_trials.py": ("test_edits*", "test_stale_object_is_found"),
    "tests/launch/test_memory.py": (
        *("test_killed_while_compiling", "test_long_name", "test_messages_*"),
        *("test_other_encoding", "test_time_in_a_system_header", "test_times_of_files"),
    ),
    "tests/formats/targets/test_bundle_entry_id_llvm.py": (
        *("test_kinds_and_target_ids*", "test_triples_serve_each_other_as_in_llvm*"),
    ),
    "tests/manifest/test_source_text.py": ("test_equal_code_is_equal_for_clang",),
    "tests/toolchain/test_disk_cache.py": ("test_bounded",),
    "tests/operations/test_wheels.py": ("test_kernels",),
    "tests/cli/test_cuda_link.py": ("test_no_assembler", "test_program"),
    "tests/formats/bundle/test_compressed.py": (
        "test_bytes_do_not_depend_on_the_cores[[]3*-12[]]",
        "test_frames_up_to_128_mib_decode_everywhere",
        "test_long_input*",
        "test_no_empty_last_job*",
        "test_size_compared_with_llvm*",
    ),
    "tests/formats/objects/elf/test_edit_sections.py": ("test_more_than_65280_sections",),
    "tests/formats/test_zip_writer.py": ("test_many_members",),
    "tests/launch/test_jobserver.py": ("test_no_more_processes_than_tokens*",),
    "tests/manifest/test_include_search.py": ("test_nothing_is_missed",),
    "tests/toolchain/test_select.py": (
        "TestEmbedded::test_compiles_and_links_without_home_or_path",
    ),
    "tests/operations/test_bundle.py": ("test_memory_does_not_grow_with_the_images",),
    "tests/operations/test_splitting_trees.py": ("test_pip_installs",),
    "tests/pch_constructs/test_pch_constructs.py": ("test_project", "test_compositions*"),
    "tests/pch_constructs/test_launched.py": ("test_constructs*", "test_another_output_is_seen"),
    "tests/io/test_files.py": (
        *("test_comparing_takes_no_memory_for_the_content", "test_many_pieces_take_little_memory"),
    ),
}
"""Of these files, tests that are not in the default set though a rule above names them."""


def chosen(names: Iterable[str]) -> set[str]:
    """Return those of the tests, given by their node IDs, that are in the default set."""
    found, cases = set(), Counter[str]()
    of_file = {}
    for name in names:
        file, _, test = name.partition("::")
        if file not in of_file:
            of_file[file] = [_first_fitting(rules, file) for rules in (NAMED, MOST_CASES, SLOW)]
        named, most, slow = of_file[file]
        if named is not None:
            is_chosen = any(fnmatchcase(test, pattern) for pattern in named)
        else:
            function = name.partition("[")[0]
            cases[function] += 1
            is_chosen = most is None or cases[function] <= most
        if is_chosen and not any(fnmatchcase(test, pattern) for pattern in slow or ()):
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
        for rule in (*MOST_CASES, *NAMED, *SLOW)
        if not any(fnmatchcase(file, rule) for file in by_file)
    ]
    for rule, patterns in (*NAMED.items(), *SLOW.items()):
        tests = [test for file in by_file if fnmatchcase(file, rule) for test in by_file[file]]
        gone += [
            f"{rule}::{pattern}"
            for pattern in patterns
            if not any(fnmatchcase(t, pattern) for t in tests)
        ]
    return gone


def _first_fitting(rules: Mapping[str, _T], file: str) -> _T | None:
    return next((rule for pattern, rule in rules.items() if fnmatchcase(file, pattern)), None)
