"""Imports that fail, of programs that really run: folders that are not on the path, files in the way, circles."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from pytracer.report.job import ExceptionReport, PythonFrame

_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)


def said(
    folder: Path, files: dict[str, str], *command: str, created_ns: int | None = None, path: str | None = None
) -> str:
    """What is explained of the traceback that a program of these files prints; `path`: PATH, to find `python` by."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    python = shutil.which("python", path=path) if path is not None else sys.executable
    assert python is not None
    done = subprocess.run([python, *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    frames = [item.groupdict() for item in _FRAME.finditer(done.stderr)]
    stack = [
        PythonFrame(function=item["function"], file=item["file"], line=int(item["line"]))
        for item in reversed(frames)
        if not item["file"].startswith("<frozen")
    ]
    kind, _, message = done.stderr.strip().splitlines()[-1].partition(": ")
    snapshot: Any = SimpleNamespace(
        created_wall_ns=created_ns or time.time_ns() + 10**9,
        argv=("python", *command),
        environment={"PATH": path} if path is not None else {},
        step=None,
    )
    found = explained(snapshot, ExceptionReport(type=kind, message=message), stack)
    assert found.failure is None, found.failure
    return found.words or ""


TREE = {
    "app/models/unet.py": "def build(): ...\n",
    "app/models/__init__.py": "",
    "app/scripts/train.py": "import models\n",
}


def test_folder_above_the_script_is_named_with_the_way_to_start(tmp_path: Path) -> None:
    found = said(tmp_path, TREE, "app/scripts/train.py")
    assert found.startswith(
        "`models` is a folder of app/, which is not on sys.path: only the script's folder scripts/ is, and app/ lies "
        "above it."
    )
    assert f"Start it in {tmp_path}/app by `python -m scripts.train`" in found
    again = subprocess.run([sys.executable, "-m", "scripts.train"], cwd=tmp_path / "app", check=False)
    assert again.returncode == 0  # what is advised helps


def test_folder_inside_of_the_scripts_is_named(tmp_path: Path) -> None:
    files = {"train.py": "from nets.unet import build\n", "src/nets/unet.py": "def build(): ...\n"}
    found = said(tmp_path, files, "train.py")
    assert "`nets.unet` is a file of src/, " not in found  # nothing named nets was found at all
    assert f"Set PYTHONPATH={tmp_path}/src" in found


def test_module_mode_starts_from_the_folder_it_was_started_in(tmp_path: Path) -> None:
    files = {"train/run.py": "import losses\n", "train/__init__.py": "", "train/losses.py": ""}
    assert "`losses` is a file of train/, which is not on sys.path" in said(tmp_path, files, "-m", "train.run")


def test_nothing_is_said_of_a_package_that_is_not_there(tmp_path: Path) -> None:
    assert said(tmp_path, {"train.py": "import no_such_package_at_all\n", "data/x.txt": ""}, "train.py") == ""


def environment(folder: Path, *packages: str) -> tuple[str, Path]:
    """The folder of a new virtual environment's programs, and that of its packages."""
    venv.create(folder)
    site = next(folder.glob("lib/python3*/site-packages"))
    for name in packages:
        (site / name).mkdir()
        (site / name / "__init__.py").touch()
    return str(folder / "bin"), site


def test_package_that_is_missing_is_installed_by_the_python_of_the_process(tmp_path: Path) -> None:
    path, _ = environment(tmp_path / "jobs")
    found = said(tmp_path, {"train.py": "import zoo_of_models.nets\n"}, "train.py", path=path)
    assert found.startswith(f"`zoo_of_models` is not installed for the Python of this process, {path}/python:")
    assert f"`{path}/python -m pip install zoo_of_models`" in found


def test_package_of_another_python_is_found(tmp_path: Path) -> None:
    """`pip` was that of another environment."""
    path, _ = environment(tmp_path / "jobs")
    other, site = environment(tmp_path / "mine", "zoo_of_models")
    found = said(tmp_path, {"train.py": "import zoo_of_models\n"}, "train.py", path=f"{path}:{other}")
    assert found.startswith(f"The Python of this process, {path}/python, has no `zoo_of_models`, which is installed in")
    assert f"in {site}: start the program with the other one, or `{path}/python -m pip install" in found


def test_python_that_reads_the_recording_is_named_if_it_has_the_package(tmp_path: Path) -> None:
    """`venv/bin/pytracer run -- python train.py` without the environment's `bin` on PATH."""
    path, _ = environment(tmp_path / "jobs")
    found = said(tmp_path, {"train.py": "import pytest.no_such_part\n"}, "train.py", path=path)
    assert f"start the program with {sys.executable}, or `{path}/python -m pip install pytest`" in found


def test_package_is_named_as_it_is_installed(tmp_path: Path) -> None:
    path, _ = environment(tmp_path / "jobs")
    found = said(tmp_path, {"train.py": "from sklearn.svm import SVC\n"}, "train.py", path=path)
    assert f"`{path}/python -m pip install scikit-learn`" in found


def test_nothing_is_said_of_a_package_that_came_after_the_run(tmp_path: Path) -> None:
    path, site = environment(tmp_path / "jobs")
    files = {"train.py": "import zoo_of_models\n"}
    assert said(tmp_path, files, "train.py", path=path) != ""
    (site / "zoo_of_models").mkdir()
    snapshot_of_before = said(tmp_path, {"train.py": "import zoo_of_models.nets\n"}, "train.py", path=path)
    assert "not installed" not in snapshot_of_before


def test_folder_that_was_made_later_is_not_named(tmp_path: Path) -> None:
    assert said(tmp_path, TREE, "app/scripts/train.py", created_ns=1) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import lossess\n", "`lossess` is no module of {folder}/, but `losses` is: correct the name,"),
        ("from losses import dice\n", "losses.py defines no `dice`, but Tversky, focal_loss: correct the name, or"),
        ("from losses import focal_los\n", "`losses` has no `focal_los`, but `focal_loss`: correct the name."),
        ("import losses.dice\n", "`losses` is the file losses.py beside the script, no package: rename it, or the"),
    ],
)
def test_nearly_right_names_are_corrected(text: str, words: str, tmp_path: Path) -> None:
    files = {"train.py": text, "losses.py": "class Tversky: ...\ndef focal_loss(): ...\n"}
    assert words.format(folder=tmp_path.name) in said(tmp_path, files, "train.py")


@pytest.mark.parametrize(
    ("files", "script", "words"),
    [
        (
            {"random.py": "", "train.py": "import random\nrandom.seed(3)\n"},
            "train.py",
            "file random.py, and not Python's",
        ),
        (
            {"random.py": "", "train.py": "from random import seed\n"},
            "train.py",
            "file random.py, and not Python's own",
        ),
        ({"torch.py": "import torch\ntorch.nn\n"}, "torch.py", "file torch.py, and not the package `torch`"),
        ({"torch.py": "", "train.py": "import torch.nn\n"}, "train.py", "file torch.py, and not the package `torch`"),
        (
            {"datasets/__init__.py": "", "train.py": "from datasets import load_dataset\n"},
            "train.py",
            "folder datasets/, and not the package `datasets`",
        ),
    ],
)
def test_file_with_the_name_of_a_library_is_named(
    files: dict[str, str], script: str, words: str, tmp_path: Path
) -> None:
    assert words in said(tmp_path, files, script)


def test_file_that_python_never_takes_is_not_blamed(tmp_path: Path) -> None:
    """The look-alike: `time` is part of the interpreter."""
    assert said(tmp_path, {"time.py": "", "train.py": "import time\ntime.clock()\n"}, "train.py") == ""


def test_circle_is_told_by_both_lines(tmp_path: Path) -> None:
    files = {
        "train.py": "from model import Net\n",
        "model.py": "import os\nfrom blocks import Stage\n\nclass Net: ...\n",
        "blocks.py": "from model import Net\n\nclass Stage: ...\n",
    }
    found = said(tmp_path, files, "train.py")
    assert found.startswith(
        "model.py:2 imports `blocks` before line 4 defines `Net`, and blocks.py:1 imports `Net` from there: a circle."
    )


def test_version_of_a_package_without_the_name_is_told(tmp_path: Path) -> None:
    found = said(tmp_path, {"train.py": "from pytest import Tracer9x\n"}, "train.py")
    assert found.startswith(f"`Tracer9x` is not in pytest of pytest {pytest.__version__}, which is installed")


OTHERWISE = [
    (  # its own file, whatever a package is called
        {"datasets.py": "def get_loader(): ...\n", "train.py": "from datasets import get_loaders\n"},
        "`datasets` has no `get_loaders`, but `get_loader`: correct the name.",
    ),
    (  # a function's own variable cannot be imported
        {"utils.py": "def f():\n    loaded_data = 1\n", "train.py": "from utils import load_data\n"},
        "utils.py defines no `load_data`, but f: correct the name, or define it there.",
    ),
    ({"tensorboard/x.txt": "", "train.py": "import tensorboardX\n"}, ""),  # a folder of logs
    ({"a/util.py": "", "b/util.py": "", "train.py": "import util\n"}, ""),  # which of both is not known
    ({"apexx/setup.py": "", "a/train.py": "", "train.py": "import apexx.fused\n"}, ""),  # a clone: to be installed
    (  # a circle, in a file with the name of one of Python's
        {"profile.py": "from run import x\ndef go(): ...\n", "run.py": "from profile import go\nx = 1\n",
         "train.py": "import profile\n"},
        "profile.py:1 imports `run` before line 2 defines `go`, and run.py:1 imports `go` from there: a circle.",
    ),
    (  # Python imports that one itself, before the script's folder is searched
        {"types.py": "x = 1\n", "train.py": "import types\ntypes.NoneTypes\n"}, "",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("files", "words"), OTHERWISE)
def test_files_of_like_names_are_told_apart(files: dict[str, str], words: str, tmp_path: Path) -> None:
    found = said(tmp_path, files, "train.py")
    assert found.startswith(words) if words else not found, found


def test_what_a_library_lacks_is_no_file_of_the_program(tmp_path: Path) -> None:
    files = {"a/train.py": "import sys\nsys.path.append('site-packages')\nimport lib\n", "helper.py": "",
             "site-packages/lib.py": "import helper\n"}  # fmt: skip
    assert said(tmp_path, files, "a/train.py") == ""


NO_LIBRARY = {"site-packages/lut.py": "raise ImportError('libc10.so: cannot open shared object file: No such file')\n"}
ON_PATH = "import sys\nsys.path.append('site-packages')\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import lut\nimport torch\n", "torch is not imported yet at line 3 (`import torch` is at line 4): the"),
        ("import lut\n", "torch is not imported yet at line 3: the extension that this line imports is"),
        ("def go():\n    import lut\n    from torch import nn\ngo()\n", "move line 5 above line 4."),
        ("def go():\n    import lut\nimport torch\ngo()\n", ""),  # imported before: another version's library
        ("from torchvision import ops\nimport lut\n", ""),
    ],
)
def test_extension_before_torch_is_named_with_both_lines(text: str, words: str, tmp_path: Path) -> None:
    empty = {f"site-packages/{name}.py": "nn = ops = 1\n" for name in ("torch", "torchvision")}
    found = said(tmp_path, {**NO_LIBRARY, **empty, "train.py": ON_PATH + text}, "train.py")
    assert words in found if words else not found


HUB = {
    "utils.py": "def colour(): ...\n",
    "hub/det/hubconf.py": "def det():\n    from models.detector import Detector\n    return Detector()\n",
    "hub/det/models/__init__.py": "",
    "hub/det/models/detector.py": "from utils.general import pad\nclass Detector: ...\n",
    "hub/det/utils/__init__.py": "",
    "hub/det/utils/general.py": "pad = 1\n",
}
LOAD = (
    "import torch\ndef load():\n    {first}\n    {second}\n"
    "    torch.hub.load('hub/det', 'det', source='local')\nload()\n"
)


def test_module_of_a_hub_repository_was_taken_before(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    found = said(tmp_path, {**HUB, "train.py": LOAD.format(first="import utils", second="")}, "train.py")
    name = f"{tmp_path.name}/utils.py"
    assert found == (
        f"`utils` is already {name} that train.py:3 imported, and the repository det/ means its own: Python keeps one "
        "module of a name. Rename the program's `utils` and its imports, or call `sys.modules.pop('utils')` before "
        "train.py:5."
    )
    text = LOAD.format(first="import sys, utils", second="sys.modules.pop('utils')")
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=False, capture_output=True)
    assert done.returncode == 0  # what is advised helps


PARTS = {"utils.py": "x = 1\n", "part/net.py": "from utils import pad\n", "part/utils/__init__.py": "pad = 1\n"}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({**PARTS, "train.py": "from utils import x\nimport sys\nsys.path.append('part')\nimport net\n"},
         "/utils.py that train.py:1 imported, and the folder part/ means its own: Python keeps one module of a name."),
        ({**PARTS, "train.py": "import sys\nsys.path.append('part')\nimport net\n"},
         "/utils.py, and the folder part/ means its own: Python keeps one module of a name. Rename the"),
        # its own file, without that name
        ({"utils.py": "x = 1\n", "net.py": "from utils import pad\n", "train.py": "import utils\nimport net\n"},
         "utils.py defines no `pad`, but x: correct the name, or define it there."),
        # nothing else of that name
        ({"losses.py": "", "train.py": "import losses\nimport losses.dice\n"}, "`losses` is the file losses.py beside"),
        ({"losses.py": "", "losses/dice.py": "", "train.py": "import losses\nimport losses.dice\n"}, None),
    ],
)  # fmt: skip
def test_module_of_another_folder_was_taken_before(files: dict[str, str], words: str | None, tmp_path: Path) -> None:
    found = said(tmp_path, files, "train.py")
    assert words in found if words is not None else "means its own" not in found, found
