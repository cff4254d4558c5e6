"""Runs scenarios under torch.compile, and reports what torch._dynamo did with each."""

import json
import pathlib
import warnings

import torch
import torch._dynamo
from torch._dynamo import utils


def observed(scenario):
    """Exact results (or the exception), compiled frames, graphs, breaks, recompilations."""
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
    """Prints the observations as JSON, by name of the scenario."""
    print(json.dumps({scenario.__name__: observed(scenario) for scenario in scenarios}))
