"""libpytracer_core through ctypes: the C interface declared in csrc/core/core.h."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytracer._version import __version__
from pytracer.blackbox.note_codes import NoteCode, coded
from pytracer.blackbox.numbers import Entry
from pytracer.record.bootstrap.dynamo import unseen

if TYPE_CHECKING:
    from pytracer._errors import PytracerError

ANNOUNCE = 1
STEP_CALLED = 1  # FileHeader.step_source


class _Held:
    """Has an attribute."""

    value: object


class Core:
    """The core of this process: the preloaded one, else the one beside this package.

    Raises:
        RecordingError: it is of another version of pytracer, whose calls may differ.
    """

    def __init__(self) -> None:
        self.lib = _find()
        self.lib.pytracer_start.argtypes = [ctypes.c_char_p, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t]
        self.lib.pytracer_journal.argtypes = [ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t]
        self.lib.pytracer_mark.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self.lib.pytracer_mark.restype = None
        self.lib.pytracer_record.argtypes = [ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t]
        self.lib.pytracer_record.restype = None
        self.lib.pytracer_announce.argtypes = [ctypes.c_char_p]
        self.lib.pytracer_announce.restype = None
        self.lib.pytracer_check_python.argtypes = [ctypes.c_char_p]
        self.lib.pytracer_device_events.restype = ctypes.c_uint32
        self.lib.pytracer_exception_recorded.argtypes = [ctypes.c_uint64]
        self.lib.pytracer_exception_recorded.restype = None
        self.lib.pytracer_check_objects.argtypes = [ctypes.c_uint64]
        self.held = ctypes.PyDLL(
            self.lib._name
        )  # functions called with the GIL held: ctypes releases it around those of `lib`
        self.held.pytracer_refresh_names.restype = ctypes.c_uint64
        self.held.pytracer_watch_exits.restype = None
        self.held.pytracer_step.argtypes = [ctypes.c_int64, ctypes.c_uint32]  # reads the addresses of named tensors
        self.held.pytracer_step.restype = None
        self.held.pytracer_name.argtypes = [ctypes.c_uint32] * 5 + [
            ctypes.c_uint64,
            ctypes.c_uint32,
            ctypes.c_uint64,
            ctypes.c_uint64,
        ]
        self.held.pytracer_name.restype = ctypes.c_uint32
        self.held.pytracer_name_gone.argtypes = [ctypes.c_uint32]
        self.held.pytracer_name_gone.restype = None
        for name in (
            "pytracer_stop",
            "pytracer_resume",
            "pytracer_count_hook_error",
            "pytracer_arm_thread",
            "pytracer_trim_at_exit",
            "pytracer_note_exit",
            "pytracer_note_wait",
        ):
            getattr(self.lib, name).restype = None
        for name in ("pytracer_black_box_path", "pytracer_directory", "pytracer_version"):
            getattr(self.lib, name).restype = ctypes.c_char_p
        if self.version != __version__:
            raise _mixed(self.version, preloaded=self.preloaded)

    @property
    @unseen
    def recording(self) -> bool:
        """True between start and stop."""
        return bool(self.lib.pytracer_recording())

    @property
    def has_box(self) -> bool:
        """Whether recording was ever started; a preloaded process creates its file on demand."""
        return bool(self.lib.pytracer_directory())

    @property
    def preloaded(self) -> bool:
        """Whether recording was started by the preloaded library's constructor."""
        return bool(self.lib.pytracer_preloaded())

    @property
    def directory(self) -> Path:
        """The run directory."""
        return Path(os.fsdecode(self.lib.pytracer_directory()))

    @property
    def version(self) -> str:
        """The version of pytracer that the core was built from."""
        return str(self.lib.pytracer_version().decode())

    @property
    def box(self) -> Path:
        """This process's file; created now, if there is none yet."""
        self.lib.pytracer_create_black_box()
        return Path(os.fsdecode(self.lib.pytracer_black_box_path()))

    def start(self, directory: Path, flags: int) -> None:
        """Creates the file and installs the handlers.

        Raises:
            OSError: no recording could be created; `errno` and `strerror` are the reason, the message the step.
        """
        problem = ctypes.create_string_buffer(256)
        error = self.lib.pytracer_start(os.fsencode(directory), flags, problem, len(problem))
        if error:
            raise OSError(error, f"{problem.value.decode()}: {os.strerror(error)}", str(directory))

    @unseen
    def journal(self, kind: int, data: dict[str, object] | str) -> int:
        """Appends a journal entry of `numbers.Entry`, as JSON or text; 0 if it did not fit (which is counted)."""
        text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"), default=str)
        payload = text.encode("utf-8", "replace")
        return int(self.lib.pytracer_journal(kind, payload, len(payload)))

    def note(self, code: NoteCode, text: str, subject: str = "") -> None:
        """A NOTE: something that a reader should know about the recording itself."""
        self.journal(Entry.NOTE, coded(code, text, subject))

    def announce(self, text: str) -> None:
        """One line on stderr, once in a run: a part of the recording is missing in every process."""
        self.lib.pytracer_announce(os.fsencode(text))

    def check_python(self) -> bool:
        """Walks this call's frames in the core and compares them; True if Python stacks can be trusted."""
        return self._pytracer_frame_check() == 1

    def check_objects(self) -> bool:
        """Lets the core find an object in every way in which the crash handler searches tensors; True if it can."""
        wanted = object()
        in_list, in_tuple, in_dict = [None, wanted], (None, wanted), {"key": wanted}
        one, other = _Held(), _Held()
        one.value = wanted
        vars(other)["value"] = (
            wanted  # creates the dict, which takes over what the interpreter had stored beside the object
        )
        assert (lambda: wanted)() is wanted  # a cell
        found = self.lib.pytracer_check_objects(id(wanted)) == 1
        del in_list, in_tuple, in_dict
        return bool(found)

    def _pytracer_frame_check(self) -> int:
        import sys

        name = sys._getframe().f_code.co_name if sys.version_info < (3, 11) else "Core._pytracer_frame_check"
        return int(self.lib.pytracer_check_python(name.encode()))


def _mixed(version: str, *, preloaded: bool) -> PytracerError:
    from pytracer import _paths as paths
    from pytracer._errors import RecordingError

    core, package = f"the core of pytracer {version}", f"the package is pytracer {__version__}"
    if not preloaded:
        return RecordingError(f"it comes with {core}, and {package}", paths.install_again())
    return RecordingError(
        f"{core} is preloaded, and {package}, of another environment",
        f"start the job by `{os.path.join(sys.prefix, 'bin', 'pytracer')} run`, or install the same version in both",
    )


def _find() -> ctypes.CDLL:
    # A preloaded core is in the global scope. A second copy would have its own file and handlers.
    whole = ctypes.CDLL(None)
    if hasattr(whole, "pytracer_version"):
        return whole
    from pytracer import _paths as paths
    from pytracer._errors import RecordingError  # imported here: not needed with preload

    path = paths.built_core()
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise RecordingError(f"cannot load {path}: {error}", paths.install_again()) from error


@lru_cache(maxsize=1)
def core() -> Core:
    """The core of this process, loaded at first use.

    Raises:
        RecordingError: it was not built, or cannot be loaded.
    """
    return Core()
