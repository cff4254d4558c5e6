"""Which files are the program's own: of an installed package only where it is the program itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytracer._library_files import counted_as_program, installed_package, is_installed_program, is_library_file

SITE = "/opt/env/lib/python3.11/site-packages"


def installed(tmp_path: Path, name: str, origin: object, record: str | None = None) -> str:
    """A site-packages with one distribution whose pip record of its origin is `origin`."""
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    about = site / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "direct_url.json").write_text(origin if isinstance(origin, str) else json.dumps(origin))
    if record is not None:
        (about / "RECORD").write_text(record)
    return str(site)


def test_installed_packages_are_libraries() -> None:
    """And the standard library; the user's files are not."""
    assert is_library_file(f"{SITE}/trl/trainer.py")
    assert is_library_file("/usr/lib/python3.11/threading.py")
    assert not is_library_file("/home/user/job/train.py")


def test_a_package_that_is_counted_is_the_program_as_long_as_it_is() -> None:
    """Its modules, compiled or not, and a single module; another package whose name begins alike is not."""
    with counted_as_program(["mine"]):
        for file in (f"{SITE}/mine/train.py", f"{SITE}/mine.py", f"{SITE}/mine/_C.cpython-311-x86_64-linux-gnu.so"):
            assert is_installed_program(file), file
            assert not is_library_file(file), file
        with counted_as_program(["more"]):
            assert not is_library_file(f"{SITE}/mine/train.py")
        assert is_library_file(f"{SITE}/mine_too/train.py")
        assert is_library_file(f"{SITE}/other/mine/train.py")
    assert is_library_file(f"{SITE}/mine/train.py")


def test_what_training_stands_on_is_never_the_program() -> None:
    """Whoever builds torch by himself, or names it, looks for the error of his program."""
    with counted_as_program(["torch", "numpy"]):
        assert is_library_file(f"{SITE}/torch/nn/functional.py")
        assert is_library_file(f"{SITE}/numpy/core.py")
    assert installed_package(f"{SITE}/torch/nn/functional.py") is None
    assert installed_package(f"{SITE}/trl/trainer.py") == "trl"
    assert installed_package("/home/user/job/train.py") is None


def test_what_pip_installed_from_a_folder_that_is_there_is_the_program(tmp_path: Path) -> None:
    """`pip install .`: package and module, also of a folder whose name is escaped in the URL."""
    source = tmp_path / "my project"
    source.mkdir()
    origin = {"url": f"file://{tmp_path}/my%20project", "dir_info": {}}
    record = "mine/train.py,sha256=x,10\nmine_cli.py,,\nmine-1.0.dist-info/RECORD,,\n../../../bin/mine,,\n"
    site = installed(tmp_path, "mine", origin, record)
    assert not is_library_file(f"{site}/mine/train.py")
    assert not is_library_file(f"{site}/mine_cli.py")
    assert is_library_file(f"{site}/yours/train.py")


@pytest.mark.parametrize(
    "origin",
    [
        pytest.param({"url": "file:///home/conda/feedstock_root/work", "dir_info": {}}, id="built elsewhere"),
        pytest.param({"url": "https://example.org/mine.git", "vcs_info": {"vcs": "git"}}, id="from git"),
        pytest.param({"url": "file:///tmp", "archive_info": {}}, id="a wheel"),
        pytest.param({"dir_info": {}}, id="no url"),
        pytest.param([], id="no object"),
        pytest.param("{", id="damaged"),
    ],
)
def test_what_came_from_elsewhere_is_a_library(tmp_path: Path, origin: object) -> None:
    """conda's packages have the folder of the machine that built them."""
    assert is_library_file(f"{installed(tmp_path, 'mine', origin, 'mine/train.py,,')}/mine/train.py")


def test_a_package_without_its_list_of_files_is_a_library(tmp_path: Path) -> None:
    """As after an interrupted installation."""
    site = installed(tmp_path, "mine", {"url": f"file://{tmp_path}", "dir_info": {}})
    assert is_library_file(f"{site}/mine/train.py")
