"""Run the packed programs on this machine's GPU; print a table, and all failures.

Needs Python 3.8 or later and the GPU's driver, and nothing else::

    python3 run.py [--only WORD] [--markdown FILE]

The exit status is 0 if each case printed what was predicted for this device when it was packed,
1 if one did not, and 2 if there is no GPU for which something was packed.
"""

# ruff: noqa: T201 - it prints what it finds.

from __future__ import annotations

import argparse
import ctypes
import fnmatch
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
CASE_SECONDS, ALL_SECONDS = 60, 225
AT_ONCE = 4
PASSED, FAILED, SKIPPED = "passed", "FAILED", "skipped"
FAILS = "fails"
"""What another compiler's program does."""

COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
BINARY_VERSION = 6  # CU_FUNC_ATTRIBUTE_BINARY_VERSION
NO_BINARY = ("CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_INVALID_PTX")
NO_BINARY += ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION",)


class GpuError(Exception):
    """A call of a driver failed."""


class Device(NamedTuple):
    """A GPU."""

    target: str
    name: str
    driver: str
    cuda: tuple = (99, 0)  # the version that an NVIDIA driver supports


class Driver:
    """NVIDIA's driver: what is needed to load a module and start a kernel of it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        self._device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(self._device), 0)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(text))
            raise GpuError(f"{name}: {(text.value or b'unknown').decode()}")

    def device(self) -> Device:
        numbers = []
        for attribute in COMPUTE_CAPABILITY:
            value = ctypes.c_int()
            self._call("cuDeviceGetAttribute", ctypes.byref(value), attribute, self._device)
            numbers.append(str(value.value))
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, 256, self._device)
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        cuda = (version.value // 1000, version.value % 1000 // 10)
        driver = " ".join(filter(None, (_kernel_driver(), f"CUDA {cuda[0]}.{cuda[1]}")))
        return Device(f"sm_{''.join(numbers)}", name.value.decode(), driver, cuda)

    def begin(self) -> None:
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)

    def run(self, image: bytes, kernel: str) -> tuple[list[int], int]:
        """Load a module, and start its kernel, which writes two numbers.

        Return the numbers, and the processor that the code is for.
        """
        module, function, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        self._call("cuModuleLoadData", ctypes.byref(module), image)
        try:
            name = kernel.encode()
            self._call("cuModuleGetFunction", ctypes.byref(function), module, name)
            self._call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(8))
            said = (ctypes.c_int * 2)(-1, -1)
            self._call("cuMemcpyHtoD_v2", memory, said, ctypes.c_size_t(8))
            pointers = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.pointer(memory), ctypes.c_void_p))
            self._call("cuLaunchKernel", function, *[1] * 6, 0, None, pointers, None)
            self._call("cuCtxSynchronize")
            self._call("cuMemcpyDtoH_v2", said, memory, ctypes.c_size_t(8))
            self._call("cuMemFree_v2", memory)
            binary = ctypes.c_int()
            self._call("cuFuncGetAttribute", ctypes.byref(binary), BINARY_VERSION, function)
            return list(said), binary.value
        finally:
            self._call("cuModuleUnload", module)


def _kernel_driver() -> str:
    try:
        fields = Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return ""
    return next((word for word in fields if word.count(".") >= 1 and word[0].isdigit()), "")


def amd_device() -> Device:
    """Return the first GPU of AMD's, by what the kernel says; raise `GpuError` if there is none."""
    runtime = ctypes.CDLL("libamdhip64.so")
    count = ctypes.c_int()
    if runtime.hipGetDeviceCount(ctypes.byref(count)) or not count.value:
        raise GpuError("HIP's runtime finds no GPU")
    for path in sorted(Path("/sys/class/kfd/kfd/topology/nodes").glob("*/properties")):
        rows = (line.split() for line in path.read_text().splitlines())
        properties = {row[0]: row[1] for row in rows if len(row) == 2}
        number = int(properties.get("gfx_target_version", "0"))
        if number:
            major, minor, step = number // 10000, number // 100 % 100, number % 100
            return Device(f"gfx{major}{minor}{step:x}", "AMD GPU", "")
    raise GpuError("the kernel lists no AMD GPU")


def load_module(path: str, kernel: str) -> None:
    """Print the line of a module's kernel, as the programs do."""
    driver = Driver()
    driver.begin()
    (target, version), binary = driver.run(Path(path).read_bytes(), kernel)
    print(f"{kernel}: target {target} binary {binary} version {version}")


def load_sets(folder: str, target: str) -> None:
    """Load each of the fat binaries in a folder, and print those that do not do as predicted.

    ``sets.json`` has the place of each in ``sets.bin``, and the number that the kernel of the
    predicted image writes, for each device; null if the device is to refuse it.
    """
    driver = Driver()
    driver.begin()
    blob = Path(folder, "sets.bin").read_bytes()
    loaded = 0
    for each in json.loads(Path(folder, "sets.json").read_text()):
        if target not in each["expected"]:
            continue
        begin, size = each["places"][target if target in each["places"] else ""]
        expected = each["expected"][target]
        try:
            found: int | str | None = driver.run(blob[begin : begin + size], "which")[0][0]
        except GpuError as error:
            found = str(error)
            if expected is None and found.endswith(NO_BINARY):
                found = None
        if found != expected:
            print(f"{each['name']}: expected {expected or 'to be refused'}, found {found}")
        loaded += 1
    print(f"{loaded} fat binaries")


@dataclass
class Result:
    """What came of a case."""

    name: str
    about: str
    outcome: str
    seconds: float = 0.0
    reason: str = ""
    reference_of: str = ""


@dataclass
class Runner:
    """Runs cases on the devices of this machine."""

    folder: Path
    devices: dict[str, Device | str]
    cuda: tuple[int, ...]
    """The version of CUDA that the packed files are of."""
    ends: float

    def run(self, case: dict[str, Any]) -> Result:
        """Run a case, within its time."""
        result = Result(case["name"], case["about"], SKIPPED)
        result.reference_of = case.get("reference_of", "")
        device = self.devices[case["api"]]
        if isinstance(device, str):
            result.reason = device
            return result
        expected = case["expected"].get(device.target)
        if expected is None:
            result.reason = f"has nothing for {device.target}"
            return result
        if "broken" in expected:
            result.outcome, result.reason = FAILED, expected["broken"]
            return result
        if "older_driver" in expected and device.cuda < self.cuda:
            expected = {**expected, "lines": [expected["older_driver"]], "status": 1}
            result.about += "; the driver is older: refused"
        left = self.ends - time.monotonic()
        if left < 1:
            result.outcome, result.reason = FAILED, "no time was left"
            return result
        began = time.monotonic()
        result.reason = self._reason(case["api"], expected, min(left, CASE_SECONDS))
        result.seconds = time.monotonic() - began
        result.outcome = FAILED if result.reason else PASSED
        return result

    def _reason(self, api: str, expected: dict[str, Any], seconds: float) -> str:
        """Return why a case fails, '' if it does not."""
        words = [
            word.format(here=self.folder, python=sys.executable) for word in expected["command"]
        ]
        environment = {**os.environ, **expected["environment"]}
        if "libraries" in expected:
            words = self._with_libraries(words, environment, self.folder / expected["libraries"])
        try:
            done = subprocess.run(
                words,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"did not end within {seconds:.0f} seconds"
        except OSError as error:
            return str(error)
        found = sorted(done.stdout.decode(errors="replace").splitlines())
        lines, status = expected["lines"], expected.get("status", 0)
        if done.returncode == status and found == lines:
            return ""
        reasons = [f"exit status {done.returncode}"] if done.returncode != status else []
        reasons += [f"expected: {line}" for line in lines if line not in found]
        reasons += [f"found:    {line}" for line in found if line not in lines]
        return "\n".join(reasons or ["the same lines, but not as often"])

    def _with_libraries(
        self, words: list[str], environment: dict[str, str], libraries: Path
    ) -> list[str]:
        """Return a command with OpenMP's libraries, and their C library where ours is older."""
        environment["LD_LIBRARY_PATH"] = str(libraries)
        ours = tuple(map(int, platform.libc_ver()[1].split(".")[:2] or (0,)))
        own = libraries / "glibc"
        if ours >= (2, 36) or not own.exists():
            return words
        path = f"{own}:{libraries}:/usr/lib/x86_64-linux-gnu:/usr/lib64:/lib64"
        return [str(own / "ld-linux-x86-64.so.2"), "--library-path", path, *words]


def write_table(results: Sequence[Result], heading: Sequence[str], form: str) -> str:
    """Return a table, as text or as Markdown."""
    rows = [("case", "result", "seconds", "what it shows")]
    for each in results:
        seconds = f"{each.seconds:.1f}" if each.outcome != SKIPPED else ""
        rows.append((each.name, each.outcome, seconds, each.about))
    if form == "markdown":
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, "|---|---|--:|---|")
        return "\n".join(["; ".join(heading), "", *lines])
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}"
        for row in rows
    ]
    return "\n".join([*heading, "", *lines])


def find_devices() -> dict[str, Device | str]:
    """Return this machine's GPU for each runtime, or why there is none."""
    found: dict[str, Device | str] = {}
    ways = (
        ("cuda", lambda: Driver().device(), "NVIDIA driver"),
        ("hip", amd_device, "HIP runtime"),
    )
    for api, find, needed in ways:
        try:
            found[api] = find()
        except GpuError as error:
            found[api] = str(error)
        except OSError as error:
            found[api] = f"no {needed} ({error})"
    found["openmp"] = found["cuda"]
    return found


def headings(devices: dict[str, Device | str], made: dict[str, str]) -> list[str]:
    """Return lines that say on what the cases ran, and of what they were made."""
    cards = dict.fromkeys(each for each in devices.values() if isinstance(each, Device))
    lines = [
        f"{card.name} ({card.target}), driver {card.driver or 'unknown'}, "
        f"glibc {platform.libc_ver()[1]}"
        for card in cards
    ]
    return [*lines, "packed with " + ", ".join(f"{key} {text}" for key, text in made.items())]


def run_cases(
    folder: Path, devices: dict[str, Device | str], only: Sequence[str] = ()
) -> list[Result]:
    """Run the cases of a packed folder, all or those that match a pattern."""
    content = json.loads((folder / "cases.json").read_text())
    cases = content["cases"]
    if only:
        cases = [c for c in cases if any(fnmatch.fnmatch(c["name"], f"*{o}*") for o in only)]
    cuda = tuple(map(int, content["made"].get("CUDA", "0").split(".")))
    runner = Runner(folder, devices, cuda, time.monotonic() + ALL_SECONDS)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(runner.run, cases))
    for each in results:
        if each.reference_of and each.outcome == FAILED:
            each.outcome = FAILS
        for other in results:
            if other.name == each.reference_of and other.outcome == FAILED:
                other.reason += f"\n{each.name}: {each.outcome}"
                other.reason += f"\n  {each.reason}".replace("\n", "\n  ") if each.reason else ""
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there, too")
    parser.add_argument("--load", nargs=2, metavar=("FILE", "KERNEL"), help=argparse.SUPPRESS)
    parser.add_argument("--load-sets", nargs=2, metavar=("DIR", "ID"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.load or options.load_sets:
        try:
            load_module(*options.load) if options.load else load_sets(*options.load_sets)
        except (GpuError, OSError) as error:
            print(error)
            return 1
        return 0
    devices = find_devices()
    if not any(isinstance(each, Device) for each in devices.values()):
        print("no GPU: " + "; ".join(dict.fromkeys(map(str, devices.values()))))
        return 2
    made = json.loads((HERE / "cases.json").read_text())["made"]
    results = run_cases(HERE, devices, options.only)
    heading = headings(devices, made)
    print(write_table(results, heading, "text"))
    failures = [each for each in results if each.outcome == FAILED]
    for each in failures:
        print(f"\n{FAILED}: {each.name} ({each.about})\n  " + each.reason.replace("\n", "\n  "))
    passing = {each.name for each in results if each.outcome == PASSED}
    for each in (each for each in results if each.outcome == FAILS):
        what = "passes" if each.reference_of in passing else "does not pass either"
        print(f"\n{each.name} fails, {each.reference_of} {what}:\n  " + each.reason)
    counts = {what: [each.outcome for each in results].count(what) for what in (PASSED, SKIPPED)}
    print(
        f"\n{counts[PASSED]} passed, {len(failures)} failed, {counts[SKIPPED]} skipped, "
        f"in {sum(each.seconds for each in results):.0f} seconds of programs"
    )
    if options.markdown:
        options.markdown.write_text(write_table(results, heading, "markdown") + "\n")
    return 1 if failures or not counts[PASSED] else 0


if __name__ == "__main__":
    sys.exit(main())
