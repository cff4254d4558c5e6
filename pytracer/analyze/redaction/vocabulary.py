"""The names in a report that its author may not want to share: hosts, users, directories.

They are found where a field or a form says what they are - a host field, `/home/NAME/`, `tcp://HOST` - so that the same
words can then be replaced wherever else they occur, e.g. in the message of an exception.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pytracer._patterns import Pattern
from pytracer.report import job as r

# Variables of `blackbox/environment_names.py` whose value is a host, or a list of hosts.
_HOST_VARIABLES = frozenset(
    {
        *("MASTER_ADDR", "HOSTNAME", "POD_NAME", "KUBERNETES_SERVICE_HOST", "NCCL_HOSTID", "NCCL_COMM_ID"),
        *("NCCL_RAS_ADDR", "SLURM_NODENAME", "SLURMD_NODENAME", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_NODELIST"),
        *("SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST"),
    }
)
_PUBLIC_USERS = frozenset(
    {"root", "user", "users", "ubuntu", "debian", "ec2-user", "admin", "runner", "nobody", "shared", "jovyan", "git"}
)
_PUBLIC_HOSTS = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})
_INSIDE = (".local", ".internal", ".corp", ".lan", ".intranet", ".private", ".home", ".svc", ".cluster", ".localdomain")
_HOME = Pattern(r"/(?:home\d*|Users)/([^/\s'\":;,]+)")
_URL = Pattern(r"([A-Za-z][A-Za-z0-9+.-]*)://(?:([^\s/@'\"]*)@)?(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+)")
_NODE_LIST = Pattern(r"([A-Za-z0-9._-]+)(?:\[([0-9,-]+)\])?")
_PLACEHOLDER = Pattern(r"(?:host|user)-\d+|\*+")  # of a report that was redacted before
_MOST_NODES = 4096
LIBRARY = Pattern(r"^.*/((?:site-packages|dist-packages|lib/python3\.\d+)/.*)$")
SYSTEM = Pattern(r"^/(?:usr|lib|lib32|lib64|bin|sbin|etc|proc|sys|dev)(?:/|$)")


@dataclass
class Vocabulary:
    """What to replace; hosts and users in the order in which they were found."""

    hosts: dict[str, None] = field(default_factory=dict)
    users: dict[str, None] = field(default_factory=dict)
    roots: tuple[str, ...] = ()  # directories of the project, the longest first


def vocabulary(report: r.Report, texts: Iterable[str], users: Iterable[str], hosts: Iterable[str]) -> Vocabulary:
    """Collects the names in a report.

    Args:
        report: where hosts, directories and variables have fields of their own.
        texts: all of its strings.
        users: more users than those found, e.g. the reader.
        hosts: more hosts.
    """
    found = Vocabulary()
    for host in (*_hosts(report), *hosts):
        _add_host(found, host)
    for text in texts:
        for name in _HOME.findall(text) if "/" in text else ():
            _add_user(found, name)
        for scheme, who, host in _URL.findall(text) if "://" in text else ():
            if who or _is_inside(scheme, host):
                _add_host(found, host)
            if who:
                _add_user(found, who.partition(":")[0])
    for user in users:
        _add_user(found, user)
    found.roots = _roots(report)
    return found


def is_private_address(text: str) -> bool:
    """Whether this is an IP address of a machine: none for loopback or unspecified ones, nor for other text."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def _hosts(report: r.Report) -> Iterator[str]:
    for name in (report.run.hosts if report.run else None) or ():
        yield name.partition(" ")[0]
    for process in report.processes or ():
        yield process.host or ""
        for variable, value in (process.environment or {}).items():
            if variable in _HOST_VARIABLES:
                yield from node_names(value)


def node_names(value: str) -> Iterator[str]:
    """The hosts of Slurm's `node[01-03,7],login`, and of `host:port`."""
    count = 0
    for prefix, numbers in _NODE_LIST.findall(value):
        if not numbers:
            yield prefix
            continue
        yield prefix + "[" + numbers + "]"
        for part in numbers.split(","):
            first, _, last = part.partition("-")
            for number in range(int(first or 0), int(last or first or 0) + 1):
                count += 1
                if count > _MOST_NODES:
                    return
                yield f"{prefix}{number:0{len(first)}}"


def _add_host(found: Vocabulary, host: str) -> None:
    host = host.strip("[]") if host.startswith("[") else host
    numeric = set(host) <= set("0123456789.:")
    if (
        len(host) < 2
        or _PLACEHOLDER.fullmatch(host)
        or host.lower() in _PUBLIC_HOSTS
        or (numeric and not is_private_address(host))
    ):
        return
    found.hosts.setdefault(host)
    first, dot, _ = host.partition(".")
    if dot and len(first) > 2 and not first.isdigit():
        found.hosts.setdefault(first)


def _add_user(found: Vocabulary, name: str) -> None:
    if (
        len(name) > 2
        and not _PLACEHOLDER.fullmatch(name)
        and name.lower() not in _PUBLIC_USERS
        and not name.startswith(("$", "*", "<"))
    ):
        found.users.setdefault(name)


def _is_inside(scheme: str, host: str) -> bool:
    """Whether the host of a URL is one of the job's own network, not a public site."""
    return scheme not in ("http", "https") or "." not in host or host.lower().endswith(_INSIDE)


def _roots(report: r.Report) -> tuple[str, ...]:
    """The directories below which a path is the project's: those of the program's files, and the one of `runs/`."""
    directories = [os.path.dirname(file) for file in _files(report) if not (LIBRARY.match(file) or SYSTEM.match(file))]
    roots = set(directories)
    if directories:
        roots.add(os.path.commonpath(directories))
    for run in [report.run] if report.run else []:
        for path in (run.directory, *(run.directories or ())):
            if path and os.path.basename(os.path.dirname(path)) == "runs":
                roots.add(os.path.dirname(os.path.dirname(path)))
    return tuple(sorted((root for root in roots if root.count("/") > 1), key=lambda root: (root.count("/"), root)))


def _files(report: r.Report) -> Iterator[str]:
    """Files of all Python frames."""
    for process in report.processes or ():
        raised = [
            item
            for item in (
                process.exception,
                process.handled_exception,
                process.exit_request,
                *(process.thread_exceptions or ()),
            )
            if item is not None
        ]
        for item in (process.exception, process.exit_request):
            raised += (item.context or ()) if item is not None else ()
        stacks = [process.python_stack, *(item.python_stack for item in (*raised, *(process.threads or ())))]
        yield from (f.file for stack in stacks for f in stack or () if f.file and f.file.startswith("/"))
