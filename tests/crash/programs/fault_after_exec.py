"""Replaces itself by another program twice, as environment managers do, and then reads through a null pointer."""

import os
import sys

round_number = int((sys.argv[1:] or ["0"])[0])
if round_number < 2:
    os.execv(sys.executable, [sys.executable, __file__, str(round_number + 1)])

import ctypes  # noqa: E402

ctypes.CDLL(os.environ["FAULTS_LIBRARY"]).read_field(None)
