"""Moves, resizes, releases and measures storages in every way, with or without guard mode; prints the results."""

import ctypes
import io
import os
import tempfile
import warnings

import torch
from torch.profiler import ProfilerActivity, profile

warnings.simplefilter("ignore")


def moved(tensor, act):
    before = tensor.data_ptr()
    act(tensor)
    return tensor.data_ptr() != before


shared = torch.arange(1000.0)
print("share_memory_", moved(shared, lambda t: t.share_memory_()), shared.sum().item())
grown = torch.ones(1024)
print("resize_", moved(grown, lambda t: t.resize_(4096)), grown[:1024].sum().item())
emptied = torch.ones(1024)
emptied.untyped_storage().resize_(0)
emptied.untyped_storage().resize_(4096)
print("resize_ back", emptied.fill_(2).sum().item())
swapped, other = torch.ones(64), torch.zeros(64)
swapped.set_(other)
del other
print("set_", swapped.sum().item())
file = io.BytesIO()
torch.save({"a": torch.arange(100), "b": torch.randn(3, generator=torch.manual_seed(0))}, file)
file.seek(0)
loaded = torch.load(file)
print("load", loaded["a"].sum().item(), loaded["b"].tolist())
print("numpy", torch.from_numpy(torch.ones(77).numpy().copy()).sum().item(), torch.ones(1025).numpy().sum())
print("dlpack", torch.from_dlpack(torch.arange(10)).tolist())
print("untyped", torch.UntypedStorage(4096).nbytes(), torch.tensor([], dtype=torch.float).data_ptr())
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "mapped")
    torch.ones(64).numpy().tofile(path)
    print("from_file", torch.from_file(path, size=64).sum().item())
x = torch.randn(4, 8, 16, 16)
dense = torch.nn.functional.relu(x.to_mkldnn()).to_dense()
print("mkldnn", torch.equal(dense, x.relu()))
quantized = torch.quantize_per_tensor(torch.linspace(-1, 1, 91).reshape(7, 13), 0.1, 0, torch.qint8)
print("quantized", quantized.dequantize().sum().item())
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
    kept = torch.empty(4096)
print("profiler", max(event.self_cpu_memory_usage for event in measured.key_averages()))
threads = [torch.full((n,), 1.0) for n in range(1, 300)]
print("sizes", sum(t.sum().item() for t in threads))
with tempfile.TemporaryFile() as out:
    print("write", out.write(memoryview(torch.ones(2000).numpy())), ctypes.sizeof(ctypes.c_float))
