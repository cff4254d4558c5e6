"""The column pointers of a sparse matrix are read from another file than its rows: they do not belong together."""

import torch


def load(columns, rows, values):
    return torch.sparse_csc_tensor(columns, rows, values, check_invariants=False)


def features(matrix):
    return matrix.to_dense().sum(1)


rows, values = torch.tensor([0, 1, 0, 1]), torch.rand(4)
print(features(load(torch.tensor([0, 2, 4]), rows, values)))
print(features(load(torch.tensor([4_000_000, 0, 0]), rows, values)))
