"""CPython's tests of multiprocessing, with the start method in CPYTHON_START_METHOD.

Not every build installs CPython's modules for this.
"""

import os

import test._test_multiprocessing

test._test_multiprocessing.install_tests_in_module_dict(globals(), os.environ["CPYTHON_START_METHOD"])
