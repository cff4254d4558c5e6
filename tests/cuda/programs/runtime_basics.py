"""The documented behaviour of the fake runtime, through torch: prints one JSON object."""

from __future__ import annotations

import json
import sys

import torch
from fake import control

seen: dict[str, object] = {"devices": torch.cuda.device_count(), "name": torch.cuda.get_device_name(0)}

copied = torch.arange(10).cuda()
seen["copied"] = copied.cpu().tolist()
seen["other_device"] = str(torch.ones(4, device="cuda:1").device)

graph = torch.cuda.CUDAGraph()
static = torch.ones(1024, device="cuda")
launches = control("launches")
with torch.cuda.graph(graph):
    result = static * 2 + 1
seen["captured"] = control("launches") - launches
before = control("graph_launches")
graph.replay()
graph.replay()
torch.cuda.synchronize()
seen["replays"] = control("graph_launches") - before
snapshot = torch.cuda.memory._snapshot()
seen["pools"] = sorted({tuple(s["segment_pool_id"]) for s in snapshot["segments"]} | {tuple(graph.pool())})

broken = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(broken):
        torch.cuda.synchronize()
except torch.AcceleratorError as error:
    seen["wait_in_capture"] = str(error).splitlines()[0]

event = torch.cuda.Event()
control("hang", 1)
event.record()
seen["done_while_hanging"] = event.query()
control("hang", 0)
seen["done_afterwards"] = event.query()

try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    seen["out_of_memory"] = str(error).splitlines()[0]

control("fault_in_next_kernel", 700)
static.mul_(2)  # accepted, as on hardware
seen["launch_accepted"] = True
try:
    torch.cuda.synchronize()
except torch.AcceleratorError as error:
    seen["sticky"] = str(error).splitlines()[0]
json.dump(seen, sys.stdout)
