"""A browser for pages of ``offload-tool report``, and a reader of their HTML."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.conftest import missing


class Parsed(HTMLParser):
    """The elements of a page, and its tables' body cells as text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self._table = self._part = ""
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "table":
            self._table = dict(attrs)["id"] or ""
            self.tables[self._table] = []
        elif tag in ("thead", "tbody", "tfoot"):
            self._part = tag
        elif tag == "tr" and self._part == "tbody":
            self.tables[self._table].append([])
        elif tag in ("td", "th") and self._part == "tbody":
            self.tables[self._table][-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.tables[self._table][-1][-1] += data


@dataclass
class Browser:
    """Headless Chromium, with its messages and requests since the last `open`."""

    driver: Any
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, page: Path, *, scheme: str = "light", media: str = "", width: int = 1200) -> Any:
        """Load a page under these preferences; return the driver."""
        self.command(
            "Emulation.setEmulatedMedia",
            media=media,
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.resize(width)
        self.driver.get("about:blank")
        self.collect()
        self.console.clear()
        self.requests.clear()
        self.driver.get(page.as_uri())
        return self.driver

    def resize(self, width: int) -> None:
        """Set the window's width in CSS pixels."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )

    def command(self, name: str, **parameters: Any) -> Any:
        """Run a command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(name, parameters)

    def collect(self) -> None:
        """Record the page's messages and requests so far."""
        self.console += [entry["message"] for entry in self.driver.get_log("browser")]
        for entry in self.driver.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])

    def press(self, *keys: str) -> Any:
        """Type keys; return the element that then has the focus."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()
        return self.driver.switch_to.active_element

    def find(self, selector: str) -> Any:
        """Return the first element that a CSS selector matches."""
        return self.driver.find_element("css selector", selector)

    def contrasts(self) -> list[tuple[float, str]]:
        """Return each visible text with its contrast to the background."""
        found: list[tuple[float, str]] = self.driver.execute_script("""
            const luminance = (color) => {
              const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map((c) => {
                c /= 255;
                return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
              });
              return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const behind = (element) => {
              const tile = element.closest(".slice");
              if (tile) return getComputedStyle(tile.querySelector("path.surface")).fill;
              for (; element; element = element.parentElement) {
                const color = getComputedStyle(element).backgroundColor;
                if (!color.endsWith(", 0)")) return color;
              }
            };
            const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            const found = [];
            for (let node; (node = walker.nextNode()); ) {
              const element = node.parentElement;
              if (!node.data.trim() || !element.checkVisibility()) continue;
              if (element.closest("select")) continue; // drawn by the system
              const style = getComputedStyle(element);
              const text = element.closest("svg") ? style.fill : style.color;
              const both = [luminance(text), luminance(behind(element))];
              const [low, high] = both.sort((a, b) => a - b);
              found.push([(high + 0.05) / (low + 0.05), node.data]);
            }
            return found;
        """)
        return found

    def column(self, table: str, number: int) -> list[str]:
        """Return the text of a column of a table's body, from the top."""
        cells: list[str] = self.driver.execute_script(
            "return [...document.getElementById(arguments[0]).tBodies[0].rows]"
            ".map((row) => row.cells[arguments[1]].textContent)",
            table,
            number,
        )
        return cells


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
    options.add_argument("--disable-dev-shm-usage")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # root cannot use the sandbox
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(programs[1]))
    yield Browser(driver)
    driver.quit()
