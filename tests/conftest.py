"""What every test starts from."""

from __future__ import annotations

import signal

# Below nohup, and in the background of a script, these are ignored, and children would inherit that: no program of ours
# would end by them, traced or not.
for _number, _action in (
    (signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL)
):  # fmt: skip
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _action)
