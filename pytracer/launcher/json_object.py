"""Parts of run.json, which the launcher writes and never reads; `decode.job.launcher` checks their contents."""

from __future__ import annotations

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
