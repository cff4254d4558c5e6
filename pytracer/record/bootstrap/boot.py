"""Run by the preloaded core during `import torch`: starts the Python half of recording.

Executed by its path in whichever Python the job uses, so it relies on its location only. Errors are written into the
recording, and the program continues.
"""

import contextlib
import sys


def _boot(path: str) -> None:
    import importlib.util
    import os

    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(path))))  # record/bootstrap/
    if "pytracer" not in sys.modules:
        # By path, not by name: the running core belongs to this package, whatever else is installed.
        init = os.path.join(package, "__init__.py")
        spec = importlib.util.spec_from_file_location("pytracer", init, submodule_search_locations=[package])
        if spec is None or spec.loader is None:
            return
        module = importlib.util.module_from_spec(spec)
        sys.modules["pytracer"] = module
        spec.loader.exec_module(module)
    from pytracer.record import config
    from pytracer.record.bootstrap import python_half

    python_half.start(config.level_from_environment())


def _report(error: BaseException) -> None:
    import ctypes

    text = f"[python-half] the Python half of recording did not start: {type(error).__name__}: {error}".encode()
    ctypes.CDLL(None).pytracer_journal(3, text, len(text))


try:
    _boot(__file__)
except Exception as error:  # a tracer must not break `import torch`
    with contextlib.suppress(Exception):
        _report(error)
