"""Captures a decoder step that looks up its vocabulary in a C library."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor, nn

libc = ctypes.CDLL(None)
libc.strlen.argtypes = [ctypes.c_void_p]
libc.strlen.restype = ctypes.c_size_t


class Vocabulary:
    """Keeps the C strings of the tokens."""

    def __init__(self, words: list[str]) -> None:
        self.buffers = [ctypes.create_string_buffer(word.encode()) for word in words]
        self.pointers = (ctypes.c_void_p * (len(words) + 1))(*[ctypes.addressof(b) for b in self.buffers])

    def length(self, index: int) -> int:
        """Return the number of bytes of one token."""
        return int(libc.strlen(self.pointers[index]))


def decode(head: nn.Linear, hidden: Tensor, vocabulary: Vocabulary, last: int) -> Tensor:
    """Return the logits, divided by the length of the last token."""
    logits = head(hidden)
    return logits / vocabulary.length(last)


@torch.no_grad()
def main() -> None:
    """Capture the decoder step."""
    words = ["the", "quick", "brown", "fox"]
    vocabulary = Vocabulary(words)
    head = nn.Linear(256, len(words)).cuda()
    hidden = torch.randn(32, 256, device="cuda")
    for index in range(len(words)):
        decode(head, hidden, vocabulary, index)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = decode(head, hidden, vocabulary, len(words))
    graph.replay()
    print("logits", logits.sum().item())


if __name__ == "__main__":
    main()
