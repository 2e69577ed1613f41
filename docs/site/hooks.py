"""What mkdocs does to pages of this repository: examples and docstrings become pages, too.

Pages link to examples and sources by their place in the repository. On the site an example is a
page; a source is not there, and its link becomes plain text.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

from reference import PAGES, written

ROOT = Path(__file__).parents[2]
OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)(?:#[^)]*)?\)")
RESULTS = re.compile(r"\[([^\]]+)\]\(results/[^)]*\)")
"""Files of figures: in the repository, not on the site."""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made: examples, the changelog, and the reference."""
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text(encoding="utf-8")
        title = code.partition('"""')[2].partition("\n")[0].rstrip('."')
        text = f"# {path.name}\n\n{title}.\n\n```python\n{code}```\n"
        files.append(File.generated(config, f"examples/{path.stem}.md", content=text))
    for name, place in (("CHANGELOG.md", "changelog.md"), ("CONTRIBUTING.md", "contributing.md")):
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, place, content=text))
    for page in PAGES:
        files.append(File.generated(config, f"reference/{page}.md", content=written(page)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links out of docs/ to the page that was made, or to nowhere."""
    up = page.file.src_uri.count("/")

    def inside(found: re.Match[str]) -> str:
        text, dots, target = found.groups()
        if dots.count("../") <= up:
            return found[0]
        example = re.fullmatch(r"examples/(\w+)\.py", target)
        return f"[{text}]({'../' * up}examples/{example[1]}.md)" if example else text

    return OUTSIDE.sub(inside, RESULTS.sub(r"\1", markdown))
