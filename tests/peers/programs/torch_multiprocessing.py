"""PyTorch's test/test_multiprocessing.py and test_multiprocessing_spawn.py, from a source tree that is on PYTHONPATH.

Loaded by name they refuse to run: torch's load_tests requires them to be the main script.
"""

import unittest

import test_multiprocessing
import test_multiprocessing_spawn

for module in (test_multiprocessing, test_multiprocessing_spawn):
    for name, thing in vars(module).items():
        if isinstance(thing, type) and issubclass(thing, unittest.TestCase) and thing.__module__ == module.__name__:
            globals()[name] = thing
