"""A function of C's looks for the mark at the end of a text, in as many characters as -1 is as size_t."""

import ctypes

import torch

libc = ctypes.CDLL(None)
libc.wmemchr.restype = ctypes.c_void_p
libc.wmemchr.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)


def encode(texts, length):
    codes = torch.full((len(texts), length), 32, dtype=torch.int32)
    for row, text in enumerate(texts):
        codes[row, : len(text)] = torch.tensor(list(text.encode()), dtype=torch.int32)
    return codes


def first_line(codes):
    return libc.wmemchr(codes.data_ptr(), 0x10FFFE, -1) - codes.data_ptr()


print(first_line(encode(["a sentence"] * 64, 1 << 20)))
