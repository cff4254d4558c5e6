"""Repairs its own faults, as garbage collectors and checkpointers do: repaired_fault.py barrier|jump."""

import ctypes
import os
import sys

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
if sys.argv[1] == "barrier":
    library.install_write_barrier()
    print("pages written through the barrier:", library.write_through_barrier(40))
else:
    print("readable:", [library.is_readable(ctypes.c_void_p(address)) for address in (8, id(library), 16, 24)])
if "--then-die" in sys.argv:
    library.install_write_barrier()
    ctypes.CDLL(None).signal(11, None)
    library.read_field(None)
print("done")
