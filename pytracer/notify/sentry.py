"""Sentry: one event with frames, tags and a fingerprint, by sentry-sdk."""

from __future__ import annotations

from pytracer._library_files import is_library_file
from pytracer._version import __version__
from pytracer.notify.extras import NotifyError, library
from pytracer.notify.message import Frame, Message

TIMEOUT_SECONDS = 10
_MOST_FRAMES = 100


def send(message: Message, dsn: str | None) -> str:
    """Sends the event, and waits for it.

    Args:
        message: what happened.
        dsn: of the project; None leaves it to SENTRY_DSN.

    Raises:
        NotifyError: the SDK is not installed, there is no DSN, or nothing was sent in time.
    """
    sdk = library("sentry_sdk", "sentry")
    lost: list[str] = []
    transport = library("sentry_sdk.transport", "sentry")

    class Transport(transport.HttpTransport):  # type: ignore[misc, name-defined]
        """Says what was lost; the SDK counts it only."""

        def record_lost_event(self, reason: str, *arguments: object, **more: object) -> None:
            lost.append(reason)

    try:
        client = sdk.Client(
            dsn, default_integrations=False, auto_enabling_integrations=False, send_default_pii=False,
            shutdown_timeout=TIMEOUT_SECONDS, transport=Transport,
        )  # fmt: skip
    except ValueError as error:  # BadDsn
        raise NotifyError(f"the DSN of Sentry is wrong: {error}", "check --sentry, or SENTRY_DSN") from None
    if client.transport is None:
        raise NotifyError("there is no DSN of Sentry", "give one: --sentry DSN, or SENTRY_DSN")
    number = client.capture_event(event(message))
    client.close(timeout=TIMEOUT_SECONDS)
    if lost:
        raise NotifyError(f"Sentry did not take the event: {lost[0]}", "check --sentry, or SENTRY_DSN")
    return f"sentry: event {number}"


def event(message: Message) -> dict[str, object]:
    """Sentry's event. Frames stand from the outermost to the innermost, as Sentry wants them."""
    frames = [_frame(frame) for frame in reversed(message.frames[:_MOST_FRAMES])]
    return {
        "level": "fatal" if message.died else "info",
        "platform": "python",
        "logger": "pytracer",
        "release": f"pytracer@{__version__}",
        "server_name": message.tags.get("host", ""),
        "message": {"formatted": message.title},
        "exception": {
            "values": [
                {
                    "type": message.exception or message.tags.get("signal") or message.class_,
                    "value": message.title,
                    "mechanism": {"type": "pytracer", "handled": False},
                    **({"stacktrace": {"frames": frames}} if frames else {}),
                }
            ]
        },
        "tags": message.tags,
        "fingerprint": list(message.fingerprint),
        "extra": {"evidence": list(message.evidence), "advice": message.advice, "command": message.command},
    }


def _frame(frame: Frame) -> dict[str, object]:
    if frame.native:
        return {"function": frame.function, "package": frame.file or "", "platform": "native", "in_app": False}
    file = frame.file or ""
    return {"function": frame.function, "filename": file, "lineno": frame.line, "in_app": not is_library_file(file)}
