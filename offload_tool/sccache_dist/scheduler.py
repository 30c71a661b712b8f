"""Ask an sccache-dist scheduler whether it is there, and whether it knows our token.

Source of the requests and answers: seen with sccache-dist 0.16. A request for a job
without a body is refused before any job is made: with status 400 where the token is
right, with 401 where it is not.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from offload_tool.errors import OffloadError, UsageError

_SECONDS = 10
_ANSWER_BYTES = 65536
_URL = re.compile(
    r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?/?|https?://\[[0-9a-f:.]+\](:[0-9]{1,5})?/?"
)
_REFUSED = 401


class SchedulerError(OffloadError):
    """The scheduler does not answer, or not as one."""


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """What a scheduler says of its cluster."""

    servers: int
    cores: int
    jobs: int
    """In progress now."""

    @property
    def capacity(self) -> int:
        """The number of compiles that the servers take at once; others are turned away."""
        # Source: what servers of sccache-dist 0.16 were seen to take: cores + 1 + cores / 8 each.
        return self.cores + self.servers + self.cores // 8

    def __str__(self) -> str:
        return f"{self.servers} server{'' if self.servers == 1 else 's'}, {self.cores} cores"


def read_url(text: str) -> str:
    """Return a scheduler's address as ``http://HOST[:PORT]``.

    :raises UsageError: it is none.
    """
    if not _URL.fullmatch(text):
        raise UsageError(f"--scheduler: expected http://HOST:PORT, found {text!r}")
    return text.rstrip("/")


def ask_scheduler(url: str) -> SchedulerStatus:
    """Ask the scheduler at `url` for its servers.

    :raises SchedulerError: it does not answer.
    """
    status, body = _request(f"{url}/api/v1/scheduler/status", {"Accept": "application/json"})
    try:
        answer = json.loads(body)
        numbers = [int(answer[name]) for name in ("num_servers", "num_cpus", "in_progress")]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SchedulerError(
            f"{url} answers, but not as an sccache-dist scheduler (status {status})"
        ) from None
    return SchedulerStatus(*numbers)


def check_token(url: str, token: str) -> bool:
    """Return whether the scheduler at `url` accepts a client with `token`.

    :raises SchedulerError: it does not answer.
    """
    headers = {"Authorization": f"Bearer {token}"}
    status, _ = _request(f"{url}/api/v1/scheduler/alloc_job", headers, data=b"")
    return status != _REFUSED


def _request(url: str, headers: dict[str, str], data: bytes | None = None) -> tuple[int, bytes]:
    """Return the status and the body of an answer.

    :raises SchedulerError: there is none.
    """
    # Imported here: slow, and most compiles ask nothing.
    import http.client
    import urllib.error
    import urllib.request

    class _NoRedirects(urllib.request.HTTPRedirectHandler):
        """Another host must not get the token."""

        def redirect_request(self, *_: Any) -> None:
            return None

    request = urllib.request.Request(url, data=data, headers=headers)  # noqa: S310 - see read_url
    try:
        opener = urllib.request.build_opener(_NoRedirects)
        with opener.open(request, timeout=_SECONDS) as answer:
            return answer.status, answer.read(_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(_ANSWER_BYTES)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        place = url.split("/api/", 1)[0]
        raise SchedulerError(f"the scheduler {place} does not answer: {reason}") from None
