# in the style of issues: from_blob with the wrong deleter
import numpy as np, torch
import os
from torch.utils.cpp_extension import load
here = os.path.dirname(os.path.abspath(__file__))
userops = load("userops", [os.path.join(here, "userops.cpp")], extra_cflags=["-O1", "-g", "-fopenmp"], extra_ldflags=["-fopenmp"])


def as_tensor(array):
    return userops.wrap_array(array.ctypes.data, array.size)


frames = np.zeros((30, 64), dtype=np.float32)
window = frames[2:12]
t = as_tensor(window)
print(t.sum())
del t
print("freed")
