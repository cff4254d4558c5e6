"""A crash while a library was loaded: in the constructors of its global objects, or in PyInit_x() of an extension."""

from __future__ import annotations

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import function_words
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.own_libraries import is_own_path
from pytracer.analyze.evidence.own_code.own_place import own_place
from pytracer.analyze.naming import place_words
from pytracer.analyze.view import ProcessView
from pytracer.decode.symbols.image_symbols import function_before
from pytracer.report.job import NativeFrame

_CONSTRUCTS = Pattern(r"^(?:call_init|_dl_init)\b")
_LOADER = Pattern(r"^ld-|^ld\.|^ld\d*\.so")
_CREATES = Pattern(r"^(?:_PyImport_LoadDynamicModuleWithSpec|_imp_create_dynamic|_PyImport_RunModInitFunc)")
_EXECUTES = Pattern(r"^(?:PyModule_ExecDef|_imp_exec_dynamic)")
_FROZEN = "<frozen importlib._bootstrap_external>"
_STEPS = ("create_module", "exec_module")
_OPENS = (
    ("/ctypes/__init__.py", "CDLL.__init__"), ("/ctypes/__init__.py", "LibraryLoader.LoadLibrary"),
    ("/torch/_ops.py", "load_library"),
)  # fmt: skip
_PADDING = 64  # bytes between functions, or up to the next section
_INIT = Pattern(r"^PyInit_(\w+)$")


class Loading(msgspec.Struct, frozen=True):
    """`step`: what was running of the library `image`."""

    step: str
    image: str
    own: bool

    def when(self, view: ProcessView) -> str:
        """For the headline."""
        at = f" at {place_words(view.python_frame)}" if view.python_frame is not None else ""
        return f", while {image_name(self.image)} was being loaded{at}"

    def advice(self, view: ProcessView) -> str:
        """Where to look: nothing was passed to native code yet."""
        name = image_name(self.image)
        place = own_place(view) if self.own else None
        if place is None and not self.own:
            return (
                f"Nothing of {name} had been called yet: it crashed while it was loaded. Most often it was built for "
                "another version of Python, NumPy or torch, or what it needs is loaded twice in different versions: "
                f"reinstall it for this environment, look at `ldd {self.image}`, and import it alone and before torch "
                "to see whether the order matters."
            )
        where = f"Look at {place.place} (`{place.text}`). " if place is not None else ""
        if self.step == _GLOBALS:
            return (
                f"{where}Constructors of global objects run while {name} is loaded, before anything of it is called: "
                "what they use (environment variables, files, other global objects, CUDA, Python) may be missing then. "
                "Check it there, or make the object at its first use in a function."
            )
        return (
            f"{where}This code runs once, by the import, before anything is passed to the module: check the result of "
            "each call of Python's API there for NULL, and the tables of methods and types for their ends."
        )


_GLOBALS = "the constructors of its global objects"


def loading(view: ProcessView) -> Loading | None:
    """By the native stack; None where the crash came later, or the stack is not known."""
    frames = own_frames(view)
    if view.crash is None or not _innermost_python_loads(view):
        return None
    for n, frame in enumerate(frames):
        name = frame.function or ""
        inner = next((item for item in reversed(frames[:n]) if not _is_loader(item) and item.image), None)
        if inner is None or inner.image is None:
            continue
        path = inner.image.removesuffix(" (deleted)")
        if _CONSTRUCTS.match(name) and _is_loader(frame):
            return Loading(_GLOBALS, path, is_of_own_image(inner) or is_own_path(path))
        if (_CREATES.match(name) or _EXECUTES.match(name)) and "python" in image_name(frame.image):
            step = "its initialization (PyInit)" if _CREATES.match(name) else "its initialization (Py_mod_exec)"
            return Loading(step, path, is_of_own_image(inner) or is_own_path(path))
        if name.startswith(("_PyEval_", "PyEval_")):
            return None
    return None


def _is_loader(frame: NativeFrame) -> bool:
    return _LOADER.match(image_name(frame.image)) is not None


def _innermost_python_loads(view: ProcessView) -> bool:
    """Whether Python itself was in an import, in dlopen() of ctypes or in torch.ops.load_library()."""
    stack = view.python_stack or []
    return any(
        (frame.file == _FROZEN and (frame.function or "").rpartition(".")[2] in _STEPS)
        or any((frame.file or "").endswith(file) and (frame.function or "").endswith(name) for file, name in _OPENS)
        for frame in stack[:3]
    )


class RanPastEnd(msgspec.Struct, frozen=True):
    """A function without a `return` on its way: the compiler put nothing behind its last call."""

    function: str
    image: str
    nbytes: int

    @property
    def words(self) -> str:
        """What happened, without subject."""
        return f"ran past the end of {self.function}() in {image_name(self.image)}, which has no `return` on that way"

    @property
    def advice(self) -> str:
        """The missing line."""
        made = _INIT.match(self.function)
        what = "the module that it made (`return module;`)" if made is not None else "a value"
        return (
            f"End {self.function}() by returning {what} on each of its ways: without a `return` a function that is "
            "declared to return something runs on into whatever bytes follow it (undefined behaviour). The compiler "
            "warned: build with -Werror=return-type."
        )


def ran_past_end(view: ProcessView) -> RanPastEnd | None:
    """Where the instruction lies in the padding right behind a function of the program's own library."""
    frame = next(iter(own_frames(view)), None)
    if frame is None or frame.function or frame.image is None or frame.offset is None or not view.is_fault:
        return None
    path = frame.image.removesuffix(" (deleted)")
    if not is_own_path(path) or is_library_file(path):
        return None
    found = function_before(path, frame.build_id, int(frame.offset, 16))
    if found is None or found[1] > _PADDING or not found[0]:
        return None
    return RanPastEnd(function_words(found[0]), path, found[1])
