"""What agents read beside the pages: ``llms.txt`` lists every page, and the skill file has its head."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest
from chunkmill.engine.agents.tools import TOOLS
from chunkmill.engine.cli.commands import commands
from places import REPOSITORY

yaml = pytest.importorskip("yaml")

DOCS = REPOSITORY / "docs"
LINK = re.compile(r"- \[([^\]]+)\]\(([^)\s]+)\)(?:: (\S.*))?")


def listed() -> dict[str, list[str]]:
    """The pages of each section of ``llms.txt``, in their order."""
    sections: dict[str, list[str]] = {}
    for line in (DOCS / "llms.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            sections[line[3:]] = []
        elif line.startswith("- "):
            link = LINK.fullmatch(line)
            assert link is not None, line
            list(sections.values())[-1].append(link[2])
    return sections


def pages(entry: Any) -> list[str]:
    """The pages of an entry of the navigation."""
    if isinstance(entry, str):
        return [entry]
    return [
        page
        for value in entry.values()
        for one in (value if isinstance(value, list) else [value])
        for page in pages(one)
    ]


def test_llms_txt_lists_the_pages_of_the_navigation() -> None:
    navigation = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    wanted = {name: pages(section) for section in navigation for name in section}
    found = listed()
    assert list(found) == list(wanted), "docs/llms.txt has a section for each of mkdocs.yml"
    for name, section in wanted.items():
        assert found[name] == section, f"'## {name}' of docs/llms.txt lists its pages: - [TITLE](PAGE.md): WHAT IT HAS"


def test_llms_txt_has_the_parts_of_its_format() -> None:
    lines = (DOCS / "llms.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# chunkmill" and lines[2].startswith("> ")
    assert [line for line in lines if line.startswith("#")][1:] == [f"## {name}" for name in listed()]
    assert all((DOCS / page).is_file() for section in listed().values() for page in section)


def test_the_skill_file_has_a_name_and_a_description() -> None:
    path = DOCS / "skills" / "chunkmill" / "SKILL.md"
    _, head, body = path.read_text(encoding="utf-8").split("---\n", 2)
    about = yaml.safe_load(head)
    assert about.keys() == {"name", "description"}
    assert about["name"] == path.parent.name and 0 < len(about["description"]) <= 1024
    assert len(body.split()) < 1_000
    used = set(re.findall(r"^\$ chunkmill (\S+)", body, re.MULTILINE))
    assert used <= set(commands.list_commands(click.Context(commands))) and len(used) > 4


def test_the_page_names_each_tool_and_limit() -> None:
    page = (DOCS / "agents.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(TOOLS)
    limits = {
        name: str(option.default)
        for option in commands.commands["mcp"].params
        for name in option.opts
        if name.startswith("--max")
    }
    shown = dict(re.findall(r"^\| `(--max\S+)` \| .* \| (.*) \|$", page, re.MULTILINE))
    assert {name: value.replace(",", "") for name, value in shown.items()} == limits
