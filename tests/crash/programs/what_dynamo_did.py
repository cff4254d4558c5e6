"""Runs scenarios below torch.compile, and tells what torch._dynamo made of each of them."""

import json
import pathlib
import warnings

import torch
import torch._dynamo
from torch._dynamo import utils


def observed(scenario):
    """Results bit for bit (or what was raised), the frames that were compiled, graphs, breaks, recompilations."""
    torch._dynamo.reset()
    utils.counters.clear()
    utils.clear_compilation_metrics()
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results, raised = [tensor.tolist() for tensor in scenario()], None
    except Exception as error:
        results, raised = [], f"{type(error).__name__}: {str(error).splitlines()[0]}"
    frames = utils.get_compilation_metrics()
    return {
        "results": results,
        "raised": raised,
        "frames": [
            [pathlib.PurePath(f.co_filename or "?").name, f.co_name, f.graph_op_count, f.fail_type] for f in frames
        ],
        "recompiled": sum(bool(f.recompile_reason) for f in frames),
        "graph_breaks": sum(utils.counters["graph_break"].values()),
        "graphs": utils.counters["stats"]["unique_graphs"],
    }


def four_steps(optimizer, forward, x, wrap):
    """Losses of four training steps, of a step that `wrap` may compile."""

    @wrap
    def step():
        optimizer.zero_grad()
        loss = forward(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return [step() for _ in range(4)]


def tell(scenarios):
    """Prints what was observed, as JSON, by the names of the scenarios."""
    print(json.dumps({scenario.__name__: observed(scenario) for scenario in scenarios}))
