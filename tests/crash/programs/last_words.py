"""Installs a handler that prints a message and exits with its own status, then reads through null."""

import ctypes
import os

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
library.install_last_words()
library.read_field(None)
