"""A terminal that nobody sees, for what programs say to a user's terminal."""

from __future__ import annotations

import os
import termios
import threading
import tty
from contextlib import suppress
from types import TracebackType

_AT_ONCE = 1 << 16


class Terminal:
    """Keeps what is written to it. Programs get the `descriptor`.

    :raises OSError: there are no terminals, or not so many.
    """

    def __init__(self) -> None:
        self._ours, self.descriptor = os.openpty()
        try:
            tty.setraw(self.descriptor)  # line ends stay as they are
        except termios.error as error:
            raise OSError(*error.args) from error
        self._said: list[bytes] = []
        self._reader: threading.Thread | None = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # which is how the end is told
            while data := os.read(self._ours, _AT_ONCE):
                self._said.append(data)

    def end(self) -> bytes:
        """Return what was written, once all programs have ended."""
        if self._reader is not None:
            os.close(self.descriptor)
            self._reader.join()
            self._reader = None
            os.close(self._ours)
        return b"".join(self._said)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.end()
