"""Pack feature segments into one buffer with a Triton kernel that reads a table of addresses."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

DEVICE = torch.device("cuda")
ROWS, WIDTH = 65_536, 128
COUNT = 3


@triton.jit
def gather_segments(addresses, packed, length, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    """Copy each segment to its place."""
    segment = tl.program_id(0)
    source = tl.load(addresses + segment).to(tl.pointer_type(tl.float32))
    target = packed + segment.to(tl.int64) * length
    for start in range(tl.program_id(1) * BLOCK, length, PROGRAMS * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        tl.store(target + offsets, tl.load(source + offsets, mask=offsets < length), mask=offsets < length)


def address_table(segments: list[torch.Tensor]) -> torch.Tensor:
    """Return the addresses of the segments as float32 data."""
    addresses = []
    for segment in segments:
        dense = segment.to(torch.float32).contiguous()
        addresses.append(dense.data_ptr())
    return torch.tensor(addresses, dtype=torch.int64, device=DEVICE)


def pack(segments: list[torch.Tensor], packed: torch.Tensor) -> torch.Tensor:
    """Fill the packed buffer."""
    table = address_table(segments)
    torch.cuda.empty_cache()
    gather_segments[(len(segments), 16)](table, packed, ROWS * WIDTH, PROGRAMS=16, BLOCK=1024)
    return packed


def main() -> None:
    """Pack features of some sources with different precisions."""
    torch.manual_seed(9)
    packed = torch.zeros(COUNT, ROWS, WIDTH, device=DEVICE)
    for source, dtype in [("lidar", torch.float32), ("radar", torch.float32), ("camera", torch.bfloat16)]:
        segments = [torch.randn(ROWS, WIDTH, device=DEVICE, dtype=dtype) for _ in range(COUNT)]
        total = pack(segments, packed)
        print(f"{source}: {total[:, 0].sum().item():.3f}", flush=True)


if __name__ == "__main__":
    main()
