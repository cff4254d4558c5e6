"""A page of ours: no network, a strict content security policy; what the job chose is escaped, and cut when very long.

Style and script are constant and allowed by their hashes; no data is in either.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

LONGEST_TEXT = 1500  # characters of one value; the JSON has all of them


def document(template: str, *, styles: tuple[str, ...], script: str | None = None, **content: Any) -> str:
    """The page of a template.

    Args:
        template: its file; it takes `policy`, `style`, `script` and the content.
        styles: files of CSS, joined.
        script: a file of JavaScript; None allows none.
        content: what the template shows, printable already.

    Raises:
        ModuleNotFoundError: jinja2 is not installed (extra `html`).
    """
    style, code = "".join(map(_resource, styles)), _resource(script) if script is not None else ""
    policy = ["default-src 'none'", f"style-src '{_hash(style)}'"]
    policy += [f"script-src '{_hash(code)}'"] if script is not None else []
    return (
        _environment()
        .get_template(template)
        .render(
            policy="; ".join([*policy, "base-uri 'none'", "form-action 'none'"]),
            style=_trusted(style),
            script=_trusted(code),
            **content,
        )
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("pytracer.render.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_cut,
    )


def _cut(value: object) -> object:
    """A very long text of the job's without its end; markup is ours."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT and not hasattr(value, "__html__"):
        return f"{value[:LONGEST_TEXT]}... ({len(value) - LONGEST_TEXT} more characters)"
    return value


@cache
def _resource(name: str) -> str:
    return files("pytracer.render.html").joinpath(f"templates/{name}").read_text(encoding="utf-8")


def _trusted(text: str) -> object:
    """Constant text of this package, which is not escaped."""
    from markupsafe import Markup

    return Markup(text)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
