"""A process with live tensors forks: one child checks that its parent's recording is unchanged, then twenty at once."""

import glob
import hashlib
import json
import os
import sys

import torch

directory = sys.argv[1]
KEPT, OWN = 123_456, 7_000


def content_of_box(pid):
    (path,) = glob.glob(f"{directory}/boxes/*.{pid}.blackbox")
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def train(size):
    weights = torch.ones(size, requires_grad=True)
    for _ in range(50):
        (weights * 2).square().sum().backward()
    return weights


def in_child(act):
    pid = os.fork()
    if pid == 0:
        kept = act()
        os._exit(0 if kept is not None else 1)
    return pid


def check_parents_box():
    before = content_of_box(parent)
    kept = train(OWN)
    after = content_of_box(parent)
    print(json.dumps({"unchanged": before == after, "child": os.getpid(), "kept": kept.data_ptr()}), flush=True)
    return kept


parent = os.getpid()
forever = torch.zeros(KEPT, dtype=torch.uint8)
print(json.dumps({"parent": parent, "forever": forever.data_ptr()}), flush=True)
os.waitpid(in_child(check_parents_box), 0)
many = [in_child(lambda size=1000 + number: train(size)) for number in range(20)]
print(json.dumps({"many": many, "ended": [os.waitpid(pid, 0)[1] for pid in many]}), flush=True)
os._exit(0)
