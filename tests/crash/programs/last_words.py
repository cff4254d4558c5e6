"""Installs a handler that says its last words and leaves with a status of its own, then reads through null."""

import ctypes
import os

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
library.install_last_words()
library.read_field(None)
