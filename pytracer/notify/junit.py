"""JUnit's XML: one test case for each process, so that a CI's page of tests shows which one died and why."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from pytracer.notify.message import Message
from pytracer.report import job as r

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: r.Report, message: Message) -> str:
    """A test suite. The process of the verdict is an error, a consequence is skipped, with the reason."""
    processes = report.processes or []
    cases = [_case(process, report.verdict or r.Verdict(), message) for process in processes]
    if message.died and not any(case.find("error") is not None for case in cases):
        cases.append(_failed("job", message))
    suite = ElementTree.Element(
        "testsuite",
        name="pytracer",
        tests=str(len(cases)),
        errors=str(sum(case.find("error") is not None for case in cases)),
        failures="0",
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
        time=f"{max((p.ended or 0 for p in processes), default=0) / 1e9:.3f}",
    )
    suite.extend(cases)
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _case(process: r.ProcessReport, verdict: r.Verdict, message: Message) -> ElementTree.Element:
    name = f"rank {process.rank}" if process.role == "rank" else f"{process.role or 'process'} {process.pid}"
    if message.died and process.pid == verdict.pid and process.rank == verdict.rank:
        return _failed(name, message)
    took = ((process.ended or 0) - (process.started or 0)) / 1e9
    case = _element(name, max(took, 0.0))
    if process.primary is False and process.why:
        ElementTree.SubElement(case, "skipped", message=_text(process.why))
    return case


def _failed(name: str, message: Message) -> ElementTree.Element:
    case = _element(name, 0.0)
    place = message.place
    if place is not None and place.file is not None:
        case.set("file", _text(place.file))
        case.set("line", str(place.line))
    error = ElementTree.SubElement(case, "error", type=message.class_, message=_text(message.title))
    frames = [f"{frame.file}:{frame.line} in {frame.function}" for frame in message.frames if not frame.native]
    error.text = _text("\n".join([*message.evidence, *frames, message.advice or ""]))
    return case


def _element(name: str, seconds: float) -> ElementTree.Element:
    return ElementTree.Element("testcase", classname="pytracer", name=name, time=f"{seconds:.3f}")


def _text(text: str) -> str:
    """Without the control characters that XML cannot have, escaped or not."""
    return _NOT_XML.sub("\ufffd", text)
