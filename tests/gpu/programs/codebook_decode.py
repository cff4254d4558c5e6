"""Decode quantized audio codes to frames with a Triton kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

DEVICE = torch.device("cuda")
CODES = 1024
WIDTH = 128
END = CODES


@triton.jit(debug=True)
def decode_codes(codes, book, frames, count, n_codes, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Copy the codebook entry of each code."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.arange(0, WIDTH)
    inside = rows < count
    code = tl.load(codes + rows, mask=inside, other=0)
    tl.device_assert((code >= 0) & (code < n_codes), "code is not in the codebook")
    entry = tl.load(book + code[:, None] * WIDTH + columns[None, :], mask=inside[:, None], other=0.0)
    tl.store(frames + rows[:, None] * WIDTH + columns[None, :], entry, mask=inside[:, None])


def decode(codes: torch.Tensor, book: torch.Tensor) -> torch.Tensor:
    """Return one frame for each code."""
    flat = codes.reshape(-1)
    frames = torch.empty(flat.numel(), WIDTH, device=DEVICE)
    grid = (triton.cdiv(flat.numel(), 32),)
    decode_codes[grid](flat, book, frames, flat.numel(), book.shape[0], WIDTH=WIDTH, BLOCK=32)
    return frames.view(*codes.shape, WIDTH)


def pad_codes(clips: list[torch.Tensor], length: int) -> torch.Tensor:
    """Bring clips to one length."""
    rows = torch.full((len(clips), length), END, dtype=torch.int64)
    for row, clip in zip(rows, clips, strict=True):
        row[: clip.numel()] = clip
    return rows.to(DEVICE)


def main() -> None:
    """Decode batches of clips."""
    generator = torch.Generator().manual_seed(4)
    book = torch.randn(CODES, WIDTH, generator=generator).to(DEVICE)
    for batch, lengths in enumerate([(256, 256, 256, 256), (256, 256, 256, 256), (256, 200, 256, 131)]):
        clips = [torch.randint(0, CODES, (n,), generator=generator) for n in lengths]
        codes = pad_codes(clips, 256)
        frames = decode(codes, book)
        print(f"batch {batch}: level {frames.square().mean().sqrt().item():.3f}", flush=True)


if __name__ == "__main__":
    main()
