"""Two streams that wait for each other, and the host for one of them."""

from __future__ import annotations

import torch

side = torch.cuda.Stream()
event = torch.cuda.Event()
event.record()
side.wait_event(event)
torch.cuda.current_stream().wait_stream(side)
side.synchronize()
