"""unittest_names.py MODULE...: prints the names of all tests, so that they can be run in slices."""

import sys
import unittest

from unittest_results import tests_of

for test in tests_of(unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])):
    print(test.id())
