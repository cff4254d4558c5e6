"""Functions of analyses that are imported when they are first called: what a stand-in can be used for, and reports."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytracer._late import late_functions
from pytracer.analyze.engine import build_report
from pytracer.decode.job.merge import load_job
from pytracer.render.json import render_json
from tests.golden.reports import GOLDEN, unpacked
from tests.support.cli import ROOT

PACKAGE = "pytracer.analyze"
FILES = sorted((ROOT / "pytracer" / "analyze").rglob("*.py"))
ARCHIVES = ("ddp-use-after-free", "collective-mismatch", "sigkill")
# Prints the report of a run as the command line makes it, and how many modules that took.
PROGRAM = """
import sys
from pathlib import Path
from pytracer._late import late_functions

with late_functions("pytracer.analyze"):
    from pytracer.analyze.engine import build_report
    from pytracer.decode.job.merge import load_job
    from pytracer.render.json import render_json

    print(render_json(build_report(load_job(Path(sys.argv[1])))))
print(sum(name.startswith("pytracer.analyze.") for name in sys.modules), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def sources() -> dict[Path, ast.Module]:
    """Every file of the analyses, parsed."""
    return {path: ast.parse(path.read_text()) for path in FILES}


def late_imports(tree: ast.Module) -> Iterator[tuple[ast.ImportFrom, ast.alias]]:
    """What a module binds stand-ins for, by the rule of `late_functions`."""
    for node in tree.body:
        own = isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}.")
        if isinstance(node, ast.ImportFrom) and own and all(name.name.islower() for name in node.names):
            yield from ((node, name) for name in node.names)


def is_function(sources: dict[Path, ast.Module], module: str, name: str) -> bool:
    """Whether it is one there, or one that was imported there."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    if not path.exists():
        return False
    tree = sources.get(path) or ast.parse(path.read_text())
    if any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body):
        return True
    imported = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    named = (node for node in imported if name in (part.name for part in node.names))
    return any(is_function(sources, node.module or "", name) for node in named)


def test_what_is_imported_late_is_a_function_that_is_there(sources: dict[Path, ast.Module]) -> None:
    """Each resolves, and nothing but functions has a name in lower case: no module of a package, no constant."""
    found = {(node.module or "", alias.name) for tree in sources.values() for node, alias in late_imports(tree)}
    assert len(found) > 1000
    assert not [f"{module}:{name}" for module, name in sorted(found) if not is_function(sources, module, name)]


def test_no_function_is_needed_as_an_object_while_its_importer_is_imported(sources: dict[Path, ast.Module]) -> None:
    """A stand-in can be called and kept in a table; it is no decorator, no default and no method."""
    for path, tree in sources.items():
        names = {alias.asname or alias.name for _, alias in late_imports(tree)}
        used = {name.id for place in _at_import(tree) for name in ast.walk(place) if isinstance(name, ast.Name)}
        assert not names & used, path


def _at_import(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield from (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults))
        elif isinstance(node, ast.ClassDef):
            yield from (*node.decorator_list, *node.bases)
            yield from (
                part.value for part in node.body if isinstance(part, (ast.Assign, ast.AnnAssign)) and part.value
            )


@pytest.mark.parametrize("name", ARCHIVES)
def test_report_is_the_same_of_a_part_of_the_modules(name: str, tmp_path: Path) -> None:
    """Byte for byte; and what nothing asked for is not imported."""
    run = unpacked(GOLDEN / "0.1" / f"{name}.tar.xz", tmp_path)
    late = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(run)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert late.stdout.strip() == render_json(build_report(load_job(run))).strip(), late.stderr
    assert int(late.stderr) < len(FILES) * 0.8


def test_first_call_gives_its_importer_the_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class is imported at once; a function when it is called, and later calls go to it directly."""
    package = tmp_path / "lately"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "users.py").write_text(
        "from lately.counts import Count\nfrom lately.words import said\nfrom lately.words import said as again\n"
    )
    (package / "counts.py").write_text("class Count: pass\n")
    (package / "words.py").write_text("def said(word, *, twice=False):\n    return word * (1 + twice)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with late_functions("lately"):
        import lately.users as users  # type: ignore[import-not-found]
    assert "lately.counts" in sys.modules and "lately.words" not in sys.modules
    assert users.said("a", twice=True) == "aa" and users.again("b") == "b"
    assert users.said is sys.modules["lately.words"].said
