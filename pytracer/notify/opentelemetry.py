"""OpenTelemetry: the run as a span with the status ERROR and an `exception` event, by OTLP over HTTP."""

from __future__ import annotations

from datetime import datetime, timezone

from pytracer.notify.extras import NotifyError, library
from pytracer.notify.message import Message
from pytracer.report import job as r

TIMEOUT_SECONDS = 10


def send(report: r.Report, message: Message, endpoint: str | None) -> str:
    """Exports one span, and waits until it has been taken.

    Args:
        report: for the times of the run.
        message: what happened.
        endpoint: of a collector, without /v1/traces; None leaves it to OTEL_EXPORTER_OTLP_ENDPOINT.

    Raises:
        NotifyError: the SDK is not installed, or the endpoint did not take the span.
    """
    trace = library("opentelemetry.sdk.trace", "otel")
    resources = library("opentelemetry.sdk.resources", "otel")
    exporters = library("opentelemetry.exporter.otlp.proto.http.trace_exporter", "otel")
    api = library("opentelemetry.trace", "otel")
    export = library("opentelemetry.sdk.trace.export", "otel")

    url = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None
    exporter = exporters.OTLPSpanExporter(endpoint=url, timeout=TIMEOUT_SECONDS)
    outcome = _Outcome(exporter)
    provider = trace.TracerProvider(resource=resources.Resource.create(_resource(message)))
    provider.add_span_processor(export.SimpleSpanProcessor(outcome))
    begin_ns, end_ns = _times(report)
    span = provider.get_tracer("pytracer").start_span("training job", start_time=begin_ns)
    for name, value in message.tags.items():
        span.set_attribute(f"pytracer.{name}", value)
    if message.died:
        span.set_status(api.Status(api.StatusCode.ERROR, message.title))
        span.add_event("exception", _exception(message), timestamp=end_ns)
    span.end(end_time=end_ns)
    provider.shutdown()
    if outcome.result is not export.SpanExportResult.SUCCESS:
        raise NotifyError("the OTLP endpoint did not take the span", "check --otel, or OTEL_EXPORTER_OTLP_ENDPOINT")
    return "otel: one span was exported"


class _Outcome:
    """The exporter, with the result that the SDK does not return."""

    def __init__(self, exporter: object) -> None:
        self._exporter, self.result = exporter, None

    def __getattr__(self, name: str) -> object:
        return getattr(self._exporter, name)

    def export(self, spans: object) -> object:
        """As the exporter's."""
        self.result = self._exporter.export(spans)  # type: ignore[attr-defined]
        return self.result


def _resource(message: Message) -> dict[str, str]:
    named = {"host.name": message.tags.get("host"), "process.command_line": message.command}
    return {"service.name": "pytracer", **{name: value for name, value in named.items() if value}}


def _exception(message: Message) -> dict[str, str]:
    """By the semantic conventions of exceptions."""
    lines = [f'  File "{f.file}", line {f.line}, in {f.function}' for f in reversed(message.frames) if not f.native]
    return {
        "exception.type": message.exception or message.tags.get("signal") or message.class_,
        "exception.message": message.title,
        "exception.stacktrace": "\n".join(["Traceback (most recent call last):", *lines, message.title]),
        "exception.escaped": "true",
        "pytracer.advice": message.advice or "",
    }


def _times(report: r.Report) -> tuple[int, int]:
    """Beginning and end of the run, ns of the wall clock."""
    started = report.run.started if report.run else None
    begin = datetime.fromisoformat(started) if started else datetime.now(timezone.utc)
    begin_ns = round(begin.timestamp() * 1_000_000_000)
    return begin_ns, begin_ns + max((process.ended or 0 for process in report.processes or ()), default=0)
