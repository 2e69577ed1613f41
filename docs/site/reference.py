"""The reference, from docstrings: read from the sources, nothing is imported.

``python docs/site/reference.py data`` prints one of its pages.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

PAGES = {
    "federation": ("The front door", ("eris.federation", "eris.session", "eris.callbacks",
                                      "eris.runtimes.faults", "eris.model_file")),
    "methods": ("Methods", ("eris.methods.*",)),
    "rules": ("Server rules, plans and compressors",
              ("eris.core.rules", "eris.core.shards", "eris.core.compress", "eris.core.combine")),
    "training": ("Training", ("eris.training.trainer", "eris.training.population",
                              "eris.training.torch", "eris.training.sklearn",
                              "eris.training.flower", "eris.training.personal",
                              "eris.training.scaffold", "eris.training.given",
                              "eris.training.options", "eris.training.statistics",
                              "eris.training.flat", "eris.training.evaluation")),
    "data": ("Data", ("eris.data.own", "eris.data.partition", "eris.data.splits",
                      "eris.data.images", "eris.data.cache")),
    "audit": ("Audit", ("eris.audit.call", "eris.audit.attack", "eris.audit.watch",
                        "eris.audit.membership", "eris.audit.one_run", "eris.audit.roc")),
    "theory": ("Theory", ("eris.theory.*",)),
    "observers": ("Transcripts and observers", ("eris.protocol.transcript",
                                                "eris.protocol.observers")),
}  # fmt: skip
"""Of each page its title, and the modules whose public names it has; ``room.*``: a whole room."""

Definition = ast.ClassDef | ast.FunctionDef


def written(page: str) -> str:
    """A page of the reference."""
    title, modules = PAGES[page]
    parts = [f"# {title}", "From the docstrings; every example in them is run by a test."]
    for path in _files(modules):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = [one for one in tree.body if isinstance(one, Definition) and _public(one)]
        if found:
            name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
            parts += [f"## {name}", prose(ast.get_docstring(tree) or "")]
            parts += [text for one in found for text in _described(one)]
    return "\n\n".join(parts) + "\n"


def _files(modules: tuple[str, ...]) -> Iterator[Path]:
    for module in modules:
        place = SOURCE / module.removesuffix(".*").replace(".", "/")
        if not module.endswith(".*"):
            yield place.with_suffix(".py")
            continue
        yield from (path for path in sorted(place.glob("*.py")) if path.name[0] != "_")


def _public(one: Definition) -> bool:
    return not one.name.startswith("_")


def _described(one: Definition) -> Iterator[str]:
    """A heading, how it is called, what its docstring says; of a class its fields and methods."""
    yield f"### {one.name}"
    if isinstance(one, ast.FunctionDef):
        yield f"```python\n{_signature(one)}\n```"
    yield prose(ast.get_docstring(one) or "")
    if isinstance(one, ast.ClassDef):
        inner = [each for each in one.body if isinstance(each, ast.FunctionDef)]
        made = next((each for each in inner if each.name == "__init__"), None)
        fields = [each for each in one.body if isinstance(each, ast.AnnAssign)]
        shown = [f"    {ast.unparse(each)}" for each in fields if not _hidden(each)]
        if made is not None:
            yield f"```python\n{_signature(made, one.name)}\n```"
        elif shown:
            yield "\n".join(["```python", f"class {one.name}:", *shown, "```"])
        methods = [each for each in inner if _public(each) and ast.get_docstring(each)]
        yield "\n".join(f"- {_line(each)}" for each in methods if not _long(each))
        for each in filter(_long, methods):
            yield f"#### {one.name}.{each.name}"
            yield f"```python\n{_signature(each)}\n```"
            yield prose(ast.get_docstring(each) or "")


def _long(method: ast.FunctionDef) -> bool:
    """Whether a method has more to say than a line of a list can hold."""
    return "\n\n" in (ast.get_docstring(method) or "")


def _line(method: ast.FunctionDef) -> str:
    """A method in a list: how it is called, without types, and what it does.

    >>> _line(ast.parse("def f(self, a, *, b=1):\\n    'Do it.'").body[0])
    '`f(a, *, b)`: Do it.'
    """
    asked = method.args
    names = [each.arg for each in asked.posonlyargs + asked.args if each.arg not in ("self", "cls")]
    names += ["*", *(each.arg for each in asked.kwonlyargs)] if asked.kwonlyargs else []
    made = any(isinstance(each, ast.Name) and each.id == "property"
               for each in method.decorator_list)  # fmt: skip
    shown = method.name if made else f"{method.name}({', '.join(names)})"
    return f"`{shown}`: {prose(ast.get_docstring(method) or '')}".replace("\n", "\n  ")


def _hidden(field: ast.AnnAssign) -> bool:
    return isinstance(field.target, ast.Name) and field.target.id.startswith("_")


def _signature(function: ast.FunctionDef, name: str | None = None) -> str:
    """How it is called, on one line or one line an argument."""
    arguments = ast.unparse(function.args).removeprefix("self, ").removeprefix("self")
    returns = f" -> {ast.unparse(function.returns)}" if function.returns and not name else ""
    line = f"{name or function.name}({arguments}){returns}"
    if len(line) <= 100:
        return line
    return f"{name or function.name}(\n    {_folded(arguments)}\n){returns}"


def _folded(arguments: str) -> str:
    """A comma outside of brackets begins a line."""
    depth, made = 0, ""
    for place, letter in enumerate(arguments):
        depth += (letter in "([{") - (letter in ")]}")
        made += letter
        if letter == "," and not depth and arguments[place + 1 : place + 2] == " ":
            made += "\n   "
    return made


def prose(docstring: str) -> str:
    """A docstring as Markdown: examples are blocks, references are code.

    >>> prose("See :class:`Fit`.")
    'See `Fit`.'
    >>> prose("One.\\n\\n>>> 1 + 1\\n2").splitlines()
    ['One.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    docstring = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", docstring)
    paragraphs = re.split(r"\n\s*\n", docstring)
    made: list[str] = []
    for paragraph in paragraphs:
        if ">>>" not in paragraph:
            made.append(paragraph)
            continue
        before, _, example = paragraph.partition(">>>")
        made += [before.rstrip()] if before.strip() else []
        made.append(f"```pycon\n>>>{example.rstrip()}\n```")
    return "\n\n".join(made)


if __name__ == "__main__":
    print(written(sys.argv[1]))
