"""Links between the pages of the project lead somewhere."""

import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]

_CODE_BLOCK = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def _text(page: Path) -> str:
    """Return a page without its code blocks, in which `# ...` is no heading and `](...)` no link."""
    return _CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))


def _anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    anchors: set[str] = set()
    seen: Counter[str] = Counter()
    for title in re.findall(r"^#{1,6} +(.+?) *$", _text(page), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return anchors


def _broken(page: Path) -> list[str]:
    """Return the relative links of a page whose file or anchor does not exist."""
    broken = []
    for link in _LINK.findall(_text(page)):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = page.parent / name if name else page
        is_here = target.is_file() and target.resolve().is_relative_to(ROOT.resolve())
        if not is_here or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    """The file that a link names is in the project, and has the heading that its anchor names."""
    assert not _broken(page)


@pytest.mark.parametrize(
    ("link", "is_broken"),
    [
        ("other.md", False),
        ("other.md#two-words-and-code", False),
        ("#here-1", False),
        ("https://example.org/nothing", False),
        ("missing.md", True),
        ("other.md#nowhere", True),
        ("#nowhere", True),
        ("#no-heading", True),
        ("/etc/passwd", True),
    ],
)
def test_a_link_that_leads_nowhere_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str, *, is_broken: bool
) -> None:
    """The check above sees a missing file, a missing heading and a file outside, and takes no comment for a heading."""
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "other.md").write_text("# Two words, and `code`\n")
    page = tmp_path / "page.md"
    page.write_text(f"# Here\n\n# Here\n\n```\n# no heading\n[no link](nothing.md)\n```\n\n[a link]({link})\n")
    assert _broken(page) == ([link] if is_broken else [])


def test_every_page_can_be_reached_from_the_readme() -> None:
    """The README links every page of docs/."""
    linked = {link.partition("#")[0] for link in _LINK.findall(_text(ROOT / "README.md"))}
    assert sorted(page.name for page in (ROOT / "docs").glob("*.md") if f"docs/{page.name}" not in linked) == []


def test_every_test_that_reliability_names_exists() -> None:
    """A promise of docs/reliability.md is not shown by a test that was renamed or removed."""
    named = re.findall(r"`([\w/]+\.py)?::(test_\w+)`", (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8"))
    assert named
    file = ""
    for path, function in named:
        file = path or file
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {function}\(", source, re.MULTILINE), f"{file}::{function}"
