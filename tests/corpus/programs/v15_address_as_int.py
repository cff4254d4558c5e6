# python/cpython#86477: ctypes passes an address as int, 32 bits
import ctypes

import torch

libc = ctypes.CDLL(None)


def checksum(weights):
    other = weights.clone()
    return libc.memcmp(weights.data_ptr(), other.data_ptr(), weights.nbytes)


print(checksum(torch.zeros(1 << 20)))
