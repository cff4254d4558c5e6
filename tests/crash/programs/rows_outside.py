"""Operators of torch that do not check what belongs together: sys.argv[1] names the way."""

import sys

import torch


def statistics_of_a_part():
    """Layer normalization's backward with the statistics of 8 rows, on OpenMP's threads."""
    x = torch.rand(12_000_000, 2)
    weight = torch.ones(2)
    _, mean, rstd = torch.native_layer_norm(x[:8], [2], weight, None, 1e-5)
    torch.ops.aten.native_layer_norm_backward(x, x, [2], mean, rstd, weight, None, [True, True, False])


def columns_beyond():
    """A sparse pattern whose columns go beyond the other tensor's rows."""
    crow, col = torch.arange(0, 30_001, 3), (torch.arange(30_000) + 1) * 9_000
    query, key = torch.rand(10_000, 16), torch.rand(10_000, 16)
    pattern = torch.sparse_csr_tensor(crow, col, torch.ones(30_000), (10_000, 10_000), check_invariants=False)
    torch.sparse.sampled_addmm(pattern, query, key.t())


{"statistics_of_a_part": statistics_of_a_part, "columns_beyond": columns_beyond}[sys.argv[1]]()
