"""Target IDs as names on the command line, beside files and folders of the same name."""

from __future__ import annotations

import pytest

from tests.scons.conftest import SCONSTRUCT, Project, passes

BUNDLE = "env.OffloadBundle('k.hip')\n"
FOLDER = "SConscript('SConscript', exports='env', variant_dir='gfx906', duplicate=0)\n"
SCONSCRIPT = "Import('env')\nenv.Command('made.txt', [], Touch('$TARGET'))\n"


XNACK = passes("k.hip", "gfx90a:xnack+")
ARCHS = "env['OFFLOAD_ARCH'] = ['{}', 'gfx1100']\n" + BUNDLE
CHOSEN = {  # what the SConstruct has, what is asked for, what is compiled, and a file that is made
    "processor": (BUNDLE, ["gfx90a"], XNACK, "k.gfx90a_xnack+.co"),
    "target ID": (BUNDLE, ["gfx90a:xnack+"], XNACK, "k.gfx90a_xnack+.co"),
    "alias": (BUNDLE, ["offload:gfx90a:xnack+"], XNACK, "k.gfx90a_xnack+.co"),
    "order of features": (
        ARCHS.format("gfx90a:sramecc-:xnack+"),
        ["gfx90a:xnack+:sramecc-"],
        passes("k.hip", "gfx90a:sramecc-:xnack+"),
        "k.gfx90a_sramecc-_xnack+.co",
    ),
    "old name": (ARCHS.format("gfx803"), ["fiji"], passes("k.hip", "gfx803"), "k.gfx803.co"),
    "old name of a list": (
        ARCHS.format("fiji"),
        ["gfx803"],
        passes("k.hip", "gfx803"),
        "k.gfx803.co",
    ),
    "VariantDir alone": (
        BUNDLE + "VariantDir('gfx906', 'src')\nenv.Install('out', 'gfx906/a.txt')\n",
        *(["gfx906"], [], "gfx906/a.txt"),
    ),
    "file of a folder below": (BUNDLE, ["gfx906"], passes("k.hip", "gfx906"), "k.gfx906.co"),
    "alias of the user": (
        BUNDLE + "env.Alias('gfx906', env.Command('x', [], Touch('$TARGET')))\n",
        *(["gfx906"], [], "x"),
    ),
    "default of a SConscript": (
        BUNDLE + "Default(env.Alias('offload:gfx906'))\n",
        *([], passes("k.hip", "gfx906"), "k.gfx906.co"),
    ),
}


@pytest.mark.parametrize(("body", "asked", "compiled", "made"), CHOSEN.values(), ids=CHOSEN.keys())
def test_what_a_name_builds(
    project: Project, body: str, asked: list[str], compiled: list[str], made: str
) -> None:
    """A target ID in any spelling builds its device code alone; a name of the user's is that."""
    project.write("src/a.txt", "")
    project.write("sub/gfx906", "")
    assert project.sconstruct(body).build(*asked) == compiled
    assert (project.folder / made).exists()


RDC = "env['OFFLOAD_RDC'] = True\nlib = env.OffloadArchive('lib', 'lib.hip')\n"
PARTS = "['k.hip', 'runtime.c'"
CHAINS = {
    "archive": RDC,
    "archive-as-source": f"{RDC}env.OffloadProgram('prog', {PARTS}, lib])\n",
    "archive-as-library": f"{RDC}env.OffloadProgram('prog', {PARTS}], OFFLOAD_LIBS=lib)\n",
    "archive-in-libs": f"{RDC}env.OffloadSharedLibrary('prog', {PARTS}], LIBS=[lib])\n",
    "device-archive": f"{RDC}env.OffloadDeviceArchive('dsa', lib)\n",
    "relocatable-library": "env['OFFLOAD_RDC'] = True\n"
    f"env.OffloadProgram('prog', {PARTS}, env.OffloadStaticLibrary('lib', 'lib.hip')])\n",
    "kpack-of-archive": f"{RDC}env.OffloadProgram('prog', {PARTS}, lib], OFFLOAD_KPACK=True)\n",
    "kpack": f"env.OffloadProgram('prog', {PARTS}, 'lib.hip'], OFFLOAD_KPACK=True)\n",
    "static-library": "env.OffloadStaticLibrary('lib', ['lib.hip', 'k.hip'])\n",
    "relocatable": f"env.OffloadProgram('prog', {PARTS}, 'lib.hip'], OFFLOAD_RDC=True)\n",
    "unbundled": "env.OffloadUnbundle('again', env.OffloadBundle('lib.hip'))\n",
    "bundle-with-host": "env.OffloadBundle('lib.hip', OFFLOAD_BUNDLE_HOST=True)\n",
    "extracted": "env.OffloadExtract('again', env.OffloadPackage('lib.hip'))\n",
    "linked-given-code": "env['OFFLOAD_RDC'] = True\n"
    f"env.OffloadProgram('prog', {PARTS}, env.OffloadObject('lib.hip')])\n",
}


def test_chains(project: Project) -> None:
    """A target ID compiles for that target alone, whatever chain its device code goes through."""
    compiled = {}
    for name, body in CHAINS.items():
        for file in ("k.hip", "runtime.c"):
            project.write(f"{name}/{file}", (project.folder / file).read_text())
        project.write(f"{name}/lib.hip", "__attribute__((device)) int lib(int x) { return x; }\n")
        project.write(f"{name}/SConscript", f"Import('env')\nenv = env.Clone()\n{body}")
    project.sconstruct("env.SConscript(Glob('*/SConscript'), exports='env')\n")
    for line in project.build("gfx906"):
        source, target = line.split()
        compiled.setdefault(source.split("/")[0], []).append(target)
    assert {*compiled} == {*CHAINS}
    assert {name: targets for name, targets in compiled.items() if {*targets} != {"gfx906"}} == {}


def test_target_that_is_not_built(project: Project) -> None:
    """A target ID that no SConscript builds is not a target; what is built is told."""
    run = project.sconstruct(BUNDLE).fails("gfx1100")
    assert "nothing is built for gfx1100, but for gfx906, gfx90a, gfx90a:xnack+" in run.errors
    assert "Do not know how to make File target `gfx1100'" in run.errors
    for name in ("offload:gfx90b", "gfx90b"):
        errors = project.run(name).errors
        assert "nothing is built for gfx90b" in errors
        assert "did you mean gfx90a?" in errors


@pytest.mark.parametrize("first", [True, False], ids=["folder-first", "folder-last"])
@pytest.mark.parametrize("how", ["default", "command-line"])
def test_variant_dir(project: Project, how: str, first: bool) -> None:
    """A variant folder called as a target ID is meant by its name, before and after it exists."""
    project.write("SConscript", SCONSCRIPT)
    body = FOLDER + BUNDLE if first else BUNDLE + FOLDER
    project.sconstruct(body + ("Default('gfx906')\n" if how == "default" else ""))
    arguments = [] if how == "default" else ["gfx906"]
    for _ in range(2):
        run = project.run(*arguments)
        assert (run.status, run.compiles) == (0, []), run.errors
        assert (project.folder / "gfx906/made.txt").exists()
    assert ("device code is offload:gfx906" in run.errors) == (how == "command-line")
    assert project.build("offload:gfx906") == passes("k.hip", "gfx906")


USES = {
    "install": ("env.Install('gfx906', 'k.hip')\n", "gfx906/k.hip"),
    "install-as": ("env.InstallAs('gfx906', 'k.hip')\n", "gfx906"),
    "command": ("env.Command('gfx906', 'k.hip', Copy('$TARGET', '$SOURCE'))\n", "gfx906"),
    "program": ("env.Program('gfx906', 'runtime.c')\n", "gfx906"),
    "offload-program": ("env.OffloadProgram('gfx906', ['k.hip', 'runtime.c'])\n", "gfx906"),
    "depends": (
        "env.Command('gfx906', [], Touch('$TARGET'))\n"
        "env.Depends(env.Command('x', [], Touch('$TARGET')), 'gfx906')\nDefault('x')\n",
        "gfx906",
    ),
}


@pytest.mark.parametrize(("body", "made"), USES.values(), ids=USES.keys())
def test_names_in_sconscripts(project: Project, body: str, made: str) -> None:
    """A name in a SConscript is that of a file, where a target ID is called so as well."""
    project.sconstruct("env.OffloadDeviceObject('o', 'k.hip')\n" + body).build()
    assert (project.folder / made).is_file()
    project.assert_up_to_date()


def test_called_in_a_folder(project: Project) -> None:
    """``scons -u gfx906`` in a folder below builds the device code, too."""
    project.sconstruct(BUNDLE)
    (project.folder / "sub").mkdir()
    Project(project.folder / "sub", project.environment).done("-u", "gfx906")
    assert (project.folder / "k.gfx906.co").exists()
    assert not (project.folder / "k.hipfb").exists()


def test_clean_one_target(project: Project) -> None:
    """``scons -c gfx906`` removes that target's device code alone."""
    project.sconstruct(BUNDLE).build()
    project.build("-c", "gfx906")
    assert not (project.folder / "k.gfx906.co").exists()
    assert (project.folder / "k.gfx90a_xnack+.co").exists()


def test_unknown_target(project: Project) -> None:
    """A target ID that this version does not know is a name where it is built."""
    run = project.sconstruct(
        "node = env.OffloadDeviceObject('k.hip', OFFLOAD_ARCH='gfx9999:xnack+:sramecc-',\n"
        "    OFFLOAD_ALLOW_UNKNOWN_ARCH=True)\n",
        SCONSTRUCT,
    ).run("-n", "gfx9999")
    assert run.status == 0
    assert "HIP [gfx9999:sramecc-:xnack+] k.hip" in run.output
