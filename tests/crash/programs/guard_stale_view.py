"""A NumPy view by address across resize_(0) and back, which is how FSDP1 frees parameters: it reads the old values."""

import ctypes

import numpy as np
import torch

flat_param = torch.ones(5000)
view = np.ctypeslib.as_array((ctypes.c_float * 5000).from_address(flat_param.data_ptr()))
storage = flat_param.untyped_storage()
nbytes = storage.nbytes()


def reshard():
    storage.resize_(0)


def unshard():
    storage.resize_(nbytes)
    flat_param.fill_(3)


reshard()
unshard()
print("finished", float(view[10]), flush=True)
