"""Which libraries serve a torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer import _paths as paths
from pytracer import _torch_libraries as torch_libraries
from pytracer._errors import RecordingError
from pytracer._torch_libraries import Torch, in_directory, libraries, made

GIT = "cf30153c4c131c8164ee7798e5022d810682e2cb"


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with libraries for two torches, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(paths, "_PACKAGE", tmp_path)
    for minor in ("2.9", "2.13"):
        (tmp_path / "_torch" / minor).mkdir(parents=True)
        (tmp_path / "_torch" / minor / "libpytracer_torch.so").touch()
    return tmp_path


def build_for(torch: Torch) -> Path:
    """What `pytracer build` leaves."""
    path = made(torch).path()
    path.parent.mkdir(parents=True)
    path.touch(mode=0o644)
    return path


@pytest.mark.parametrize("version", ["2.13.0", "2.13.1", "2.13.0+cu130", "2.13.0+rocm7.2", "2.13.0.post1"])
def test_release_is_served_by_the_library_for_its_minor_version(version: str, package: Path) -> None:
    """Patch releases and builds for other devices have the same C++ classes."""
    assert libraries(Torch(version, GIT)) == (package / "_torch" / "2.13", "2.13")


@pytest.mark.parametrize(
    "version", ["2.13.0.dev20260101+cu130", "2.13.0a0+b558c98.nv26.05", "2.13.0rc3", "2.14.0", "3", "nonsense"]
)
def test_what_is_no_release_is_never_guessed(version: str) -> None:
    """A vendor's snapshot of 2.13 is not 2.13. The message says what there is, and what to type."""
    with pytest.raises(RecordingError) as refused:
        libraries(Torch(version, GIT))
    assert str(refused.value) == (
        f"pytracer has hooks for torch 2.9 and 2.13, this is torch {version}; `pytracer build` adds them for this one"
    )


def test_library_built_for_one_torch_serves_only_that(package: Path) -> None:
    """The same version from another commit is another torch."""
    nightly = Torch("2.16.0.dev20261101+cpu", GIT)
    path = build_for(nightly)
    assert libraries(nightly) == (path.parent, f"2.16.0.dev20261101+cpu {GIT}")
    with pytest.raises(RecordingError):
        libraries(nightly._replace(git="0" * 40))


def test_own_build_comes_before_the_packages(package: Path) -> None:
    """Its user asked for it."""
    release = Torch("2.13.0", GIT)
    path = build_for(release)
    assert libraries(release).directory == path.parent


def test_build_of_another_pytracer_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core that it was linked to is another one."""
    nightly = Torch("2.16.0.dev20261101+cpu", GIT)
    build_for(nightly)
    monkeypatch.setattr(torch_libraries, "__version__", "99")
    with pytest.raises(RecordingError):
        libraries(nightly)


@pytest.mark.parametrize("writable", ["library", "directory"])
def test_library_that_others_can_write_is_refused(writable: str) -> None:
    """It would run in the job. The message names the command that mends it."""
    nightly = Torch("2.16.0.dev20261101+cpu", GIT)
    path = build_for(nightly)
    place = path if writable == "library" else path.parent
    place.chmod(0o777)
    with pytest.raises(RecordingError, match=f"chmod go-w {place}"):
        libraries(nightly)


def test_version_is_read_without_importing_torch(tmp_path: Path) -> None:
    """From version.py, whose types and other names do not matter."""
    (tmp_path / "version.py").write_text(
        "from typing import Optional\n__version__ = '2.16.0'\ncuda: Optional[str] = None\n", encoding="utf-8"
    )
    assert in_directory(tmp_path) == Torch("2.16.0", "")
