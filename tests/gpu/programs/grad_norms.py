import cupy as cp
import torch

torch.manual_seed(6)
DEVICE = "cuda"
N = 16 * 1024 * 1024

SOURCE = r"""
extern "C" __global__
void multi_sumsq(const long long* table, float* out, long long n) {
    const float* x = reinterpret_cast<const float*>(table[blockIdx.y]);
    float acc = 0.f;
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) acc += x[i] * x[i];
    atomicAdd(out + blockIdx.y, acc);
}
"""
multi_sumsq = cp.RawKernel(SOURCE, "multi_sumsq")


def make_gradients(count):
    return [torch.randn(N, device=DEVICE, dtype=torch.float16) * (i + 1) for i in range(count)]


def pointer_table(tensors):
    addresses = [t.float().data_ptr() for t in tensors]
    return torch.tensor(addresses, dtype=torch.int64, device=DEVICE)


def grad_norms(table):
    sums = torch.zeros(table.numel(), device=DEVICE)
    stream = cp.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    with stream:
        multi_sumsq((128, table.numel()), (256,), (table.data_ptr(), sums.data_ptr(), cp.int64(N)))
    return sums


def clip(tensors, norms, limit=1000.0):
    total = torch.linalg.vector_norm(norms.sqrt())
    factor = (limit / (total + 1e-6)).clamp(max=1.0)
    for t in tensors:
        t.mul_(factor.to(t.dtype))
    return total


def main():
    grads = make_gradients(4)
    table = pointer_table(grads)
    torch.cuda.empty_cache()
    norms = grad_norms(table)
    torch.cuda.synchronize()
    total = clip(grads, norms)
    print("total", total.item())


main()
