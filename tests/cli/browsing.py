"""A browser for pages of ``offload-tool report``."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import missing


@dataclass
class Browser:
    """Headless Chromium, with its messages and requests since the last `open`."""

    driver: Any
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, page: Path, fragment: str = "", *, scheme: str = "light") -> Any:
        """Load a page in a colour scheme; return the driver."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get("about:blank")
        self.collect()
        self.console.clear()
        self.requests.clear()
        self.driver.get(page.as_uri() + fragment)
        return self.driver

    def collect(self) -> None:
        """Record the page's messages and requests so far."""
        self.console += [entry["message"] for entry in self.driver.get_log("browser")]
        for entry in self.driver.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def follow(self, selector: str) -> None:
        """Click a link to another view; return when the page shows that view.

        The browser dispatches "hashchange" later than the click; the page listens to it first.
        """
        self.driver.execute_async_script(
            "addEventListener('hashchange', () => arguments[1](), { once: true });"
            "arguments[0].click()",
            self.find(selector),
        )

    def rows(self, selector: str) -> list[list[str]]:
        script = (
            "return [...document.querySelector(arguments[0]).tBodies[0].rows]"
            ".map((row) => [...row.cells].map((cell) => cell.textContent))"
        )
        rows: list[list[str]] = self.driver.execute_script(script, selector)
        return rows


def headless_chromium() -> Iterator[Browser]:
    """Yield one headless Chromium, as Debian packages it; close it at the end."""
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        missing("selenium")
    programs = [shutil.which("chromium"), shutil.which("chromedriver")]
    if None in programs:
        missing("chromium or chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0] or ""
    options.add_argument("--headless=new")
    options.add_argument("--window-size=1200,900")
    options.add_argument("--disable-dev-shm-usage")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # root cannot use the sandbox
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(programs[1]))
    yield Browser(driver)
    driver.quit()
