"""Numbers of torch's data types and devices, as its C++ headers give them; torch never renumbers.

c10/core/ScalarType.h and torch/headeronly/core/DeviceType.h.
"""

from __future__ import annotations

DTYPES = dict(
    enumerate(
        (
            *("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"),
            *("complex32", "complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16"),
            *("quint4x2", "quint2x4", "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16"),
            *("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "uint16", "uint32", "uint64"),
        )
    )
)
DEVICES = {0: "cpu", 1: "cuda", 9: "xla", 12: "xpu", 13: "mps", 14: "meta", 17: "hpu", 20: "privateuseone"}
