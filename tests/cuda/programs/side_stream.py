"""A side stream fills a tensor that the default stream uses; the word is what lies between: nothing, or a wait."""

from __future__ import annotations

import sys

import torch

weight = torch.zeros(256, 256, device="cuda")
fresh = torch.ones(256, 256, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    weight.copy_(fresh)
if sys.argv[1] == "stream":
    torch.cuda.current_stream().wait_stream(side)
elif sys.argv[1] == "event":
    event = side.record_event()
    torch.cuda.current_stream().wait_event(event)
elif sys.argv[1] == "device":
    torch.cuda.synchronize()
out = weight @ weight
raise ValueError("not what was expected")
