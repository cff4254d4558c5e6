"""A webhook that takes Slack's JSON: `text`, with blocks, to a URL of Slack, Mattermost, Rocket.Chat or your own."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from pytracer.notify.extras import NotifyError
from pytracer.notify.message import Message

TIMEOUT_SECONDS = 10
_MOST = 2900  # characters of a block; Slack takes 3,000


def payload(message: Message) -> dict[str, object]:
    """The JSON. `text` alone says it all, for services that ignore blocks."""
    icon = ":red_circle:" if message.died else ":large_green_circle:"
    title = _escaped(message.title)
    place = message.place
    tags = " ".join(f"`{_escaped(name)}={_code(value)}`" for name, value in message.tags.items())
    details = [f"• {_escaped(sentence)}" for sentence in message.evidence[:6]]
    if place is not None:
        details.insert(0, f"`{_code(place.file or '?')}:{place.line}` in `{_code(place.function)}`")
    if message.advice:
        details.append(f"*Next:* {_escaped(message.advice)}")
    blocks = [_section(f"{icon} *{title}*"), *([_section("\n".join(details))] if details else []), _section(tags)]
    return {"text": f"{icon} {title} [{message.class_}, {message.confidence}]", "blocks": blocks}


def send(message: Message, url: str) -> str:
    """Posts it. Only http and https; the URL is a secret and appears in no message.

    Raises:
        NotifyError: the answer was no success.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise NotifyError("the webhook is no http or https URL", "see docs/guide/notify.md")
    data = json.dumps(payload(message)).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", "User-Agent": "pytracer"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            status = answer.status
    except urllib.error.HTTPError as error:
        raise NotifyError(f"the webhook at {parts.hostname} answered {error.code}", "check its URL") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", error)
        raise NotifyError(f"the webhook at {parts.hostname} was not reached: {why}", "check its URL") from None
    return f"webhook: {parts.hostname} answered {status}"


def _section(text: str) -> dict[str, object]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:_MOST] or "-"}}


def _escaped(text: str) -> str:
    """Slack's three; text of the job mentions nobody and links nowhere."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _code(text: str) -> str:
    return _escaped(text).replace("`", "'").replace("\n", " ")
