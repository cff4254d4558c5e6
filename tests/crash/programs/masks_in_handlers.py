"""Dies of a null pointer beside handlers that save and restore the signal mask: masks_in_handlers.py logs|probes."""

import ctypes
import faulthandler
import os
import sys

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
if sys.argv[1] == "logs":
    faulthandler.enable()
    library.install_logging_handler()
    library.read_field(None)
print("readable:", library.is_readable_under_saved_mask(ctypes.c_void_p(8)), flush=True)
library.read_field_below(None, 16)
