"""Operators of torch that use an index, or the memory of a tensor, unchecked: argv[1] says which one is given what."""

import ctypes
import sys

import torch

LARGE = 10**11


def index_of_pooling():
    image = torch.randn(1, 64, 8, 8)
    pooled, where = torch.nn.functional.adaptive_max_pool2d(image, 2, return_indices=True)
    gradient = torch.ones_like(pooled)
    where[0, 40:, 0, 0] = LARGE
    torch.ops.aten.adaptive_max_pool2d_backward(gradient, image, where)


def part_of_pooling():
    """One of three parts of one tensor; the others are in variables, too."""
    image = torch.randn(1, 64, 8, 8)
    pooled, _ = torch.nn.functional.adaptive_max_pool2d(image, 2, return_indices=True)
    first, second, third = torch.zeros(3, 64, 2, 2, dtype=torch.int64).chunk(3)
    second[0, 40:, 0, 0] = LARGE
    torch.ops.aten.adaptive_max_pool2d_backward(torch.ones_like(pooled), image, second)
    print(first, third)


def eigenvalues_of_nan():
    matrix, gaps = torch.randn(32, 32), torch.randn(10, 10)[:, ::2]
    half, numbers = (
        torch.full((10,), float("inf"), dtype=torch.float16),
        torch.tensor([1 + 1j, complex(0, float("nan"))]),
    )
    columns, one = torch.randn(70, 70, dtype=torch.float64).t(), torch.tensor([float("nan"), 1], dtype=torch.bfloat16)
    matrix[3, 4] = float("nan")
    while True:  # what MKL reads past is mapped at times
        torch.linalg.eigvals(matrix)
    print(gaps, half, numbers, columns, one)


def length_of_segment():
    data, lengths = torch.randn(10), torch.tensor([3, 10**10])
    torch.segment_reduce(data, "sum", lengths=lengths, unsafe=True)


def empty_statistics():
    image, mean, variance = torch.randn(4, 3, 5, 5), torch.zeros(3), torch.empty(0)
    torch.ops.aten.native_batch_norm(image, None, None, mean, variance, False, 0.1, 1e-5)


def elsewhere():
    """What the operators are given is all right, and one has run; the crash is in a library that knows no tensors."""
    table, index, nothing = torch.randn(10, 4), torch.tensor([0, 9]), torch.empty(0)
    torch.index_select(table, 0, index)
    ctypes.string_at(int(sys.argv[2], 16) + nothing.numel(), 8)


def extension():
    torch.ops.load_library(sys.argv[2])
    function = getattr(torch.ops.operators, sys.argv[3])
    table, nothing = torch.arange(1000.0), torch.empty(0)
    rows = torch.tensor([1, 2**36 if sys.argv[3] == "look_up" else 2])
    function(table, nothing if sys.argv[3] == "scale" else rows)


globals()[sys.argv[1]]()
