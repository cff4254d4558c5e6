"""Export normalized embeddings with a checksum."""

from __future__ import annotations

import ctypes
import struct
import tempfile
import zlib
from pathlib import Path

import torch
import torch.nn.functional as F


def embed(count: int, width: int) -> torch.Tensor:
    """Return one normalized vector for each document."""
    raw = torch.randn(count, width, device="cuda")
    return F.normalize(raw, dim=1)


def to_bytes(vectors: torch.Tensor) -> bytes:
    """Return the vectors' raw bytes without going through NumPy."""
    vectors = vectors.detach().contiguous()
    size = vectors.numel() * vectors.element_size()
    return ctypes.string_at(vectors.data_ptr(), size)


def export(vectors: torch.Tensor, path: Path) -> int:
    """Write a header, the vectors and a checksum."""
    torch.cuda.current_stream().synchronize()
    payload = to_bytes(vectors)
    checksum = zlib.crc32(payload)
    path.write_bytes(struct.pack("<II", *vectors.shape) + payload + struct.pack("<I", checksum))
    return checksum


def main() -> None:
    """Embed some documents and export them."""
    torch.manual_seed(0)
    titles = embed(256, 64)
    bodies = embed(20_000, 384)
    with tempfile.TemporaryDirectory() as folder:
        print(f"titles {export(titles.cpu(), Path(folder) / 'titles.bin'):08x}")
        print(f"bodies {export(bodies, Path(folder) / 'bodies.bin'):08x}")


if __name__ == "__main__":
    main()
