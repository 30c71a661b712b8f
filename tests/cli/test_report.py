"""The page of ``offload-tool report``: its content, and its behaviour in Chromium."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from offload_tool import report
from offload_tool.cli import main
from offload_tool.operations.bundle import Compression
from offload_tool.report import sizes
from tests.cli.browsing import Browser, Parsed
from tests.conftest import Capture
from tests.operations.fatbins import HOST, make_bundle

TARGETS = {"gfx90a": 60_000, "gfx1100": 30_000, "gfx1201:xnack-": 9_000}
HOSTILE_TARGET = "<b>&amp;</b><script>document.title='hacked'</script>"
HOSTILE_MEMBER = "<img src=x onerror=\"document.title='hacked'\"> & \u202e%{label}.o"


def sized_bundle(
    path: Path, targets: dict[str, int], compression: Compression | None = None
) -> Path:
    """Write a bundle of images of these sizes, with an empty host entry."""
    images = {HOST: b"", **{target: bytes(size) for target, size in targets.items()}}
    return make_bundle(path, images, alignment=1, compression=compression)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of a bundle, and a zip file of two more, with hostile names.

    They have 100,000 bytes in total, with 60, 30, 9 and 1 % for the targets.
    """
    folder = tmp_path_factory.mktemp("report") / "in"
    folder.mkdir()
    halves = {target: size // 2 for target, size in TARGETS.items()}
    sized_bundle(folder / "plain.hipfb", halves)
    packed = sized_bundle(folder / "packed", halves, Compression()).read_bytes()
    hostile = sized_bundle(folder / "hostile", {HOSTILE_TARGET: 1000}).read_bytes()
    with zipfile.ZipFile(folder / "x.zip", "w") as archive:
        archive.writestr("lib/packed.hipfb", packed)
        archive.writestr(HOSTILE_MEMBER, hostile)
    (folder / "packed").unlink()
    (folder / "hostile").unlink()
    return folder


@pytest.fixture(scope="module")
def page(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report on `inputs`."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    assert main(["report", str(inputs), "-o", str(path)]) == 0
    return path


# -- the file ----------------------------------------------------------------------------


def test_tables(page: Path, inputs: Path) -> None:
    """The file has complete tables: sizes, shares and stored bytes in each row."""
    tables = Parsed(page.read_text()).tables
    assert list(tables) == ["targets", "files", "members", "containers", "places"]
    assert [[row[0], *row[2:5]] for row in tables["targets"]] == [
        ["gfx90a", "2", "60,000", "60.0%"],
        ["gfx1100", "2", "30,000", "30.0%"],
        ["gfx1201:xnack-", "2", "9,000", "9.0%"],
        [HOSTILE_TARGET, "1", "1,000", "1.0%"],
    ]
    # One file is stored; the other one holds compressed zeros, and the hostile bundle.
    files = {row[0]: row[3:] for row in tables["files"]}
    assert list(files) == [str(inputs / "x.zip"), str(inputs / "plain.hipfb")]
    assert files[str(inputs / "plain.hipfb")] == [
        *("49,500", "49.5%", f"{(inputs / 'plain.hipfb').stat().st_size:,}")
    ]
    assert int(files[str(inputs / "x.zip")][2].replace(",", "")) < 2500
    assert [row[1] for row in tables["members"]] == [
        *("lib/packed.hipfb", HOSTILE_MEMBER.replace("\u202e", r"\u202e"))
    ]
    assert [row[3] for row in tables["containers"]] == ["bundle", "compressed-bundle", "bundle"]
    assert len(tables["places"]) == 7


def test_self_contained(page: Path) -> None:
    """No element refers to anything outside of the page, and its policy forbids it."""
    elements = Parsed(page.read_text()).elements
    references = [
        value
        for _, attributes in elements
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "action", "data", "poster")
    ]
    assert set(references) == {"#tables", "#places", "#sizes", "#kernels"}
    assert not {"link", "img", "iframe", "object"} & {tag for tag, _ in elements}
    policy = next(a["content"] for t, a in elements if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert not {
        "'unsafe-eval'",
        "'unsafe-inline'",
        "'unsafe-hashes'",
        "http:",
        "https:",
        "*",
        "data:",
    } & set(policy.split())


def test_hostile_names(page: Path) -> None:
    """Names from files are text: no name becomes an element or ends a script."""
    text = page.read_text()
    assert sum(tag == "script" for tag, _ in Parsed(text).elements) == 4
    assert not any(name.startswith("on") for _, a in Parsed(text).elements for name in a)
    assert HOSTILE_TARGET not in text
    assert HOSTILE_MEMBER not in text
    assert "\u202e" not in text


def test_equal_bytes(page: Path, inputs: Path, tmp_path: Path) -> None:
    """Equal inputs give equal bytes, under any name and at any time."""
    os.utime(inputs / "plain.hipfb", (1, 1))
    assert main(["report", str(inputs), "-o", str(tmp_path / "other.html")]) == 0
    assert (tmp_path / "other.html").read_bytes() == page.read_bytes()


def test_broken_file(inputs: Path, tmp_path: Path, capsys: Capture) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes((inputs / "plain.hipfb").read_bytes()[:-1])
    old = tmp_path / "r.html"
    old.write_text("old")
    assert main(["report", str(inputs), str(broken), "-o", str(old)]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(f"offload-tool: error: '{broken}', offset ")
    assert captured.err.count("\n") == 1
    assert old.read_text() == "old"


def test_broken_file_in_a_folder(inputs: Path, tmp_path: Path, capsys: Capture) -> None:
    """A broken file in a folder is named on the page of the others, with exit status 1."""
    data = (inputs / "plain.hipfb").read_bytes()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "good").write_bytes(data)
    (tmp_path / "in" / "<b>ad").write_bytes(data[:-1])
    page = tmp_path / "r.html"
    assert main(["report", str(tmp_path / "in"), "-o", str(page)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("offload-tool: error: ")
    assert "/<b>ad" in error
    assert "1 file" in page.read_text()
    assert "/&lt;b&gt;ad" in page.read_text()
    assert [row[0] for row in Parsed(page.read_text()).tables["files"]] == [
        str(tmp_path / "in" / "good")
    ]


@pytest.mark.parametrize(("count", "last"), [(100, None), (102, "and 2 more")])
def test_many_broken_files(inputs: Path, tmp_path: Path, count: int, last: str | None) -> None:
    """The page names the first hundred broken files, and counts the rest."""
    broken = (inputs / "plain.hipfb").read_bytes()[:-1]
    for number in range(count):
        (tmp_path / f"broken{number}").write_bytes(broken)
    page = tmp_path.parent / f"{count}.html"
    assert main(["report", str(inputs), str(tmp_path), "-o", str(page)]) == 1
    text = page.read_text()
    assert len(set(re.findall(r"broken\d+", text))) == 100
    assert re.findall(r"<li>(and .* more)</li>", text) == ([last] if last else [])


def test_without_plotly(
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    """Without the optional library, the error says what to install, and no page is written."""
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    page = tmp_path / "r.html"
    assert main(["report", str(inputs), "-o", str(page)]) == 1
    assert "pip install plotly" in capsys.readouterr().err
    assert not page.exists()


def test_no_device_code(tmp_path: Path) -> None:
    sized_bundle(tmp_path / "b", {"gfx90a": 0})
    page = tmp_path / "r.html"
    assert main(["report", str(tmp_path / "b"), "-o", str(page)]) == 0
    text = page.read_text()
    assert "There are no bytes of device code." in text
    assert 'id="treemap"' not in text
    assert len(text) < 100_000  # without the plotting library
    assert Parsed(text).tables["targets"][0][0] == "gfx90a"


def _cells(page: Path) -> list[dict[str, Any]]:
    """Return the data of the picture."""
    found = re.search('id="cells">(.*?)</script>', page.read_text())
    assert found is not None
    cells: list[dict[str, Any]] = json.loads(found[1])["cells"]
    return cells


def test_many_images(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If there are too many images, the smallest are drawn as one tile per target."""
    monkeypatch.setattr(sizes, "_TILES", 2)
    page = tmp_path / "r.html"
    assert main(["report", str(inputs), "-o", str(page)]) == 0
    cells = _cells(page)
    assert [cell["place"] for cell in cells] == [
        *("plain.hipfb", "packed.hipfb"),
        *["smaller ones"] * 3,
    ]
    assert sum(cell["bytes"] for cell in cells) == 100_000
    assert len(Parsed(page.read_text()).tables["places"]) == 7


def test_files_of_one_name(inputs: Path, tmp_path: Path) -> None:
    """The picture labels a file by the last part of its path; by the whole path if ambiguous."""
    for name in ("a/same", "b/same", "b/other"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(inputs / "plain.hipfb", tmp_path / name)
    page = tmp_path / "r.html"
    assert main(["report", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(page)]) == 0
    paths = [str(tmp_path / "a/same"), str(tmp_path / "b/same"), "other"]
    assert {cell["file"] for cell in _cells(page)} == set(paths)


def _luminance(color: str) -> float:
    """Return the relative luminance of WCAG 2 for ``#rrggbb``."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("color", sizes._COLORS)
def test_tile_colors(color: str) -> None:
    """A tile's white text is readable (4.5:1), and the tile contrasts with both pages (3:1)."""
    style = Path(report.__file__).with_name("page.css").read_text()
    pages = re.findall(r"--page: (#[0-9a-f]{6});", style)
    assert len(pages) == 2
    assert _contrast(color, "#ffffff") >= 4.5
    assert all(_contrast(color, background) >= 3 for background in pages)


# -- the page in a browser ---------------------------------------------------------------


def test_no_request(browser: Browser, page: Path) -> None:
    """The page makes no requests, and the browser reports no errors."""
    browser.open(page)
    browser.find("#treemap .slice")
    browser.collect()
    assert browser.requests == [page.as_uri()]
    assert browser.console == []


def test_requests_are_seen(browser: Browser, page: Path, tmp_path: Path) -> None:
    """`test_no_request` would detect requests, as a page with some shows; the policy works."""
    foreign = '<img src="nowhere.png"><script>1</script><img src="http://127.0.0.1:9/x.png">'
    foreign += '<style>p { color: red; }</style><p style="color: red">'
    text = page.read_text()
    bad = tmp_path / "bad.html"
    bad.write_text(text.replace("<header>", foreign + "<header>"))
    browser.open(bad)
    browser.collect()
    assert sum("Content Security Policy" in message for message in browser.console) == 5
    bad.write_text(re.sub("<meta http-equiv[^>]*>", "", bad.read_text()))
    browser.open(bad)
    browser.collect()
    assert len(browser.requests) == 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_picture(browser: Browser, page: Path, scheme: str) -> None:
    """In both colour schemes, each target's share of the picture is its share of the bytes."""
    from PIL import Image

    browser.open(page, scheme=scheme)
    picture = Image.open(io.BytesIO(browser.find("#treemap").screenshot_as_png)).convert("RGB")
    colors = {color: count for count, color in picture.getcolors(1 << 24) or []}
    area = picture.width * picture.height
    assert area > 300_000
    assert len(colors) > 50  # text is antialiased
    hexes = [sizes._COLORS[number] for number in range(4)]
    counts = [colors.get(tuple(bytes.fromhex(color[1:])), 0) for color in hexes]
    assert sum(counts) > 0.85 * area
    shares = [count / sum(counts) for count in counts]
    assert shares == pytest.approx([0.60, 0.30, 0.09, 0.01], abs=0.02)


def test_schemes_differ(browser: Browser, page: Path) -> None:
    """The page is dark if the user prefers that, and light on paper."""
    background = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    light = browser.open(page).execute_script(background)
    dark = browser.open(page, scheme="dark").execute_script(background)
    paper = browser.open(page, scheme="dark", media="print").execute_script(background)
    assert min(light) > 230
    assert max(dark) < 40
    assert paper == [255, 255, 255]


def test_sort_with_the_mouse(browser: Browser, page: Path) -> None:
    """A click on a header sorts by it, a second one reverses; the state is exposed."""
    browser.open(page)
    by_size = ["gfx90a", "gfx1100", "gfx1201:xnack-", HOSTILE_TARGET]
    assert browser.column("targets", 0) == by_size
    size, name = "#targets th:nth-child(4)", "#targets th:nth-child(1)"
    assert browser.find(size).get_attribute("aria-sort") == "descending"
    browser.find(f"{size} button").click()
    assert browser.column("targets", 0) == by_size[::-1]
    assert browser.find(size).get_attribute("aria-sort") == "ascending"
    browser.find(f"{name} button").click()
    # Numbers in names count as numbers: 90 before 1100.
    assert browser.column("targets", 0) == [HOSTILE_TARGET, "gfx90a", "gfx1100", "gfx1201:xnack-"]
    assert browser.find(size).get_attribute("aria-sort") is None
    assert browser.find(name).get_attribute("aria-sort") == "ascending"
    assert browser.column("files", 2) == ["4", "3"]  # other tables do not change


def test_keyboard(browser: Browser, page: Path) -> None:
    """By keyboard only: skip to the tables, sort one; each step is visible."""
    from selenium.webdriver.common.keys import Keys

    driver = browser.open(page)
    skip = browser.press(Keys.TAB)
    assert skip.text == "Skip to the tables"
    assert skip.rect["y"] >= 0
    assert browser.press(Keys.ENTER).get_attribute("id") == "tables"
    browser.press(Keys.TAB)  # the scrolling region
    button = browser.press(Keys.TAB)
    assert (button.tag_name, button.text) == ("button", "Target ID")
    outline = "const s = getComputedStyle(arguments[0]); return [s.outlineStyle, s.outlineWidth]"
    assert driver.execute_script(outline, button) == ["solid", "3px"]
    before = browser.column("targets", 0)
    browser.press(Keys.ENTER)
    after = browser.column("targets", 0)
    assert after != before
    assert sorted(after) == sorted(before)
    assert browser.find("#status").get_attribute("textContent") == "Sorted by Target ID, ascending."
    browser.press(Keys.SPACE)
    assert browser.column("targets", 0) == after[::-1]


def _labels(browser: Browser) -> list[str]:
    return [
        text.get_attribute("textContent")
        for text in browser.driver.find_elements("css selector", "#treemap text.slicetext")
    ]


def test_picture_with_the_keyboard(browser: Browser, page: Path) -> None:
    """The form above the picture offers by keyboard all that the mouse can do."""
    from selenium.webdriver.common.keys import Keys

    driver = browser.open(page)
    assert any(label.startswith("gfx1100  29.3 KiB") for label in _labels(browser))
    driver.execute_script("document.querySelector('input[name=first]').focus()")
    browser.press(Keys.ARROW_RIGHT)  # group by file
    assert any(label.startswith("plain.hipfb  48.3 KiB") for label in _labels(browser))
    select = browser.press(Keys.TAB)
    assert select.tag_name == "select"
    browser.press("plain")
    assert not any(label.startswith("x.zip") for label in _labels(browser))
    assert any(label.startswith("gfx90a") for label in _labels(browser))


def test_picture_with_the_mouse(browser: Browser, page: Path) -> None:
    """A click on a tile zooms in on it, and the form reflects that."""
    from selenium.webdriver import ActionChains

    browser.open(page)
    [tile] = [
        tile
        for tile in browser.driver.find_elements("css selector", "#treemap .slice")
        if tile.text.startswith("gfx1100")
    ]
    before = len(_labels(browser))
    heading = 10 - tile.rect["height"] // 2  # offset from the middle
    ActionChains(browser.driver).move_to_element_with_offset(tile, 0, heading).click().perform()
    assert len(_labels(browser)) < before
    assert not any(label.startswith("gfx90a") for label in _labels(browser))
    shown = browser.driver.execute_script("return level.selectedOptions[0].textContent")
    assert shown.startswith("gfx1100")


def test_hostile_names_in_the_browser(browser: Browser, page: Path) -> None:
    """A browser shows a hostile name as text and runs none of it, in the picture as well."""
    driver = browser.open(page)
    assert driver.title.startswith("Device code: ")
    assert HOSTILE_TARGET in browser.column("targets", 0)
    assert driver.find_elements("css selector", "img") == []
    driver.execute_script(
        "level.value = [...level.options].find((o) => o.text.startsWith('<b>')).value;"
        "level.dispatchEvent(new Event('change', { bubbles: true }))"
    )
    shown = [label for label in _labels(browser) if HOSTILE_TARGET in label]
    assert shown
    assert driver.find_elements("css selector", "#treemap a, #treemap script") == []
    assert driver.title.startswith("Device code: ")


def test_without_scripts(browser: Browser, page: Path) -> None:
    """Without JavaScript, the tables are the same, headers are no buttons, and a note explains."""
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        driver = browser.open(page)
        assert len(driver.find_elements("css selector", "#targets tbody tr")) == 4
        assert driver.find_elements("css selector", "thead button") == []
        assert not browser.find("#controls").is_displayed()
        assert "The picture needs JavaScript" in browser.find("noscript").text
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize(("media", "width"), [("", 320), ("print", 700)], ids=["phone", "paper"])
def test_narrow(browser: Browser, page: Path, media: str, width: int) -> None:
    """On a phone and on paper, only tables are wider than the page."""
    driver = browser.open(page)  # wide, as for printing
    if media:
        browser.command("Emulation.setEmulatedMedia", media=media)
    else:
        browser.open(page, width=width)
    browser.resize(width)
    wide = driver.execute_script(
        "return [...document.querySelectorAll('body *:not(.scroll *), caption')]"
        ".filter((e) => e.getBoundingClientRect().right > innerWidth).map((e) => e.outerHTML)"
    )
    assert wide == []
    assert browser.find("#treemap .main-svg").rect["width"] > width / 2
