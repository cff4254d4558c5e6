"""The package that a command line runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer._started_package import is_file_of_user, runs_text, started_package

SITE = "/opt/env/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("argv", "package"),
    [
        (("python3.11", "-m", "mine.cli.train", "--lr", "1"), "mine"),
        (("/opt/env/bin/python", "-u", "-X", "dev", "-W", "ignore", "-m", "mine"), "mine"),
        (("python", "-u", f"{SITE}/mine/cli/train.py"), "mine"),
        (("python", "train.py", "-m", "mine"), None),
        (("python", "/home/user/job/train.py"), None),
        (("python", "-c", "import mine", "-m", "mine"), None),
        (("python", "-m", "torch.distributed.run", "-m", "mine"), None),
        (("python", "-m", "pytest", "tests"), None),
        (("python", "-m", "http.server"), None),
        (("python", "-m"), None),
        (("python",), None),
        (("bash", "-m", "mine"), None),
        ((), None),
    ],
)
def test_the_module_or_file_that_is_run_names_it(argv: tuple[str, ...], package: str | None) -> None:
    """Not a user's script, a runner of programs, or a module of Python's."""
    assert started_package(argv) == package


@pytest.mark.parametrize(
    ("text", "package"),
    [
        (
            "import re\nimport sys\nfrom mine.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n",
            "mine",
        ),
        ("import sys\nfrom re import sub\nfrom mine import main\nsys.exit(main())\n", "mine"),
        ("from .mine import main\n", None),
        ("from torch.distributed.run import main\n", None),
        ("import sys\n", None),
        ("#!/bin/sh\nexec python -m 'mine\n", None),
    ],
)
def test_a_console_script_names_it_by_what_it_imports(tmp_path: Path, text: str, package: str | None) -> None:
    """As pip, setuptools and uv write them."""
    script = tmp_path / "mine-train"
    script.write_text(text)
    assert started_package(["python", str(script)]) == package


def test_a_script_of_another_machine_names_nothing(tmp_path: Path) -> None:
    """Nor does one without rights."""
    assert started_package(["python", str(tmp_path / "absent")]) is None


def test_a_console_script_is_no_file_of_the_users() -> None:
    """It only starts the package."""
    assert is_file_of_user("/home/user/job/train.py")
    assert not is_file_of_user("/opt/env/bin/mine-train")
    assert not is_file_of_user("<string>")
    assert not is_file_of_user(f"{SITE}/mine/train.py")


@pytest.mark.parametrize(
    ("argv", "own"),
    [
        (("python3.11", "-u", "-c", "import mine; mine.train()"), True),
        (("python", "-X", "dev", "-c", "step()"), True),
        (("python", "-B", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()", "-x"), False),
        (("python", "-c", "from multiprocess.resource_tracker import main;main(7)"), False),
        (("python", "train.py", "-c", "conf.yaml"), False),
        (("timeout", "-c"), False),
        ((), False),
    ],
)
def test_text_of_a_command_line_is_the_program(argv: tuple[str, ...], own: bool) -> None:
    """Not that by which multiprocessing starts a child."""
    assert runs_text(argv) is own
