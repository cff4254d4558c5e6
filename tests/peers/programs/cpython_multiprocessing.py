"""CPython's tests of multiprocessing, started as CPYTHON_START_METHOD says.

Not every build installs the modules that CPython has for this.
"""

import os

import test._test_multiprocessing

test._test_multiprocessing.install_tests_in_module_dict(globals(), os.environ["CPYTHON_START_METHOD"])
