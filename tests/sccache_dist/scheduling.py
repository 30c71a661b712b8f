"""A scheduler that answers as sccache-dist 0.16 was seen to, and schedules nothing."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Scheduler(http.server.BaseHTTPRequestHandler):
    """Answers as sccache-dist 0.16 was seen to."""

    status = b'{"num_servers":1,"num_cpus":8,"in_progress":0}'

    def do_GET(self) -> None:
        self.answer(200, self.status)

    def do_POST(self) -> None:
        right = self.headers["Authorization"] == "Bearer right"
        self.answer(400 if right else 401, b"")

    def answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[str]:
    """Yield the URL of a scheduler that is there in the block."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scheduler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
