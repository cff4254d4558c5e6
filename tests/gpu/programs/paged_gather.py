import torch
import triton
import triton.language as tl

torch.manual_seed(1)
DEVICE = "cuda"
PAGE, HEAD_DIM, PAGES = 16, 128, 512
PAD_PAGE = 2**31 - 1


@triton.jit
def gather_pages_kernel(cache_ptr, table_ptr, out_ptr, table_stride, BLOCK: tl.constexpr):
    seq = tl.program_id(0)
    slot = tl.program_id(1)
    page = tl.load(table_ptr + seq * table_stride + slot).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    values = tl.load(cache_ptr + page * BLOCK + offs)
    tl.store(out_ptr + (seq * tl.num_programs(1) + slot) * BLOCK + offs, values)


class PagedCache:
    def __init__(self):
        self.k = torch.randn(PAGES, PAGE, HEAD_DIM, device=DEVICE, dtype=torch.float16)
        self.v = torch.randn(PAGES, PAGE, HEAD_DIM, device=DEVICE, dtype=torch.float16)
        self.free = list(range(PAGES))

    def block_table(self, lengths):
        width = max(lengths) // PAGE + 1
        table = torch.full((len(lengths), width), PAD_PAGE, dtype=torch.int32)
        for row, length in enumerate(lengths):
            need = -(-length // PAGE)
            for col in range(need):
                table[row, col] = self.free.pop()
        return table.to(DEVICE)

    def gather(self, pool, table, slots):
        out = torch.empty(table.shape[0], slots * PAGE, HEAD_DIM, device=DEVICE, dtype=pool.dtype)
        gather_pages_kernel[(table.shape[0], slots)](pool, table, out, table.stride(0), BLOCK=PAGE * HEAD_DIM)
        return out


def attend(q, k, v, lengths):
    scores = torch.einsum("bd,btd->bt", q, k) / HEAD_DIM**0.5
    valid = torch.arange(k.shape[1], device=DEVICE)[None] < lengths[:, None]
    weights = scores.masked_fill(~valid, -1e4).softmax(dim=1)
    return torch.einsum("bt,btd->bd", weights, v)


def main():
    cache = PagedCache()
    for lengths in ([64, 60, 57, 50], [96, 90, 40, 85], [128, 128, 120, 30]):
        table = cache.block_table(lengths)
        slots = -(-max(lengths) // PAGE)
        k = cache.gather(cache.k, table, slots)
        v = cache.gather(cache.v, table, slots)
        q = torch.randn(len(lengths), HEAD_DIM, device=DEVICE, dtype=torch.float16)
        out = attend(q, k, v, torch.tensor(lengths, device=DEVICE))
        print(max(lengths), out.float().norm().item())


main()
