"""Parts of run.json, which the launcher writes and never reads: what they hold, `decode.job.launcher` checks."""

from __future__ import annotations

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
