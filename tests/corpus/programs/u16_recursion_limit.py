# pytorch/pytorch#127622
import sys

import torch

sys.setrecursionlimit(1_000_000)


class Node:
    def __init__(self, parent):
        self.parent = parent
        self.value = torch.zeros(1)

    def __repr__(self):
        return f"{self.value.item()} <- {self.parent!r}"


def search(depth):
    node = None
    for _ in range(depth):
        node = Node(node)
    return node


print(len(repr(search(200_000))))
