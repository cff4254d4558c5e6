"""One string of a report without what is private in it. Everything that was replaced is counted, each once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.redaction.vocabulary import LIBRARY, SYSTEM, Vocabulary, is_private_address
from pytracer.blackbox.redaction import redact_text, redact_words
from pytracer.blackbox.secret_words import MASK, TOKEN_SHAPES

ELSEWHERE = "..."  # for the directories of a path outside the project
# A secret is announced by one of these, or has a known form; most strings have none and need no closer look.
_MAY_BE_SECRET = Pattern(
    "|".join([r"[:=]", r"--?[A-Za-z]", "(?i:bearer )", *(re.escape(prefix) for prefix, _, _ in TOKEN_SHAPES)])
)
_CREDENTIALS = Pattern(r"(://)([^\s/@'\"]+(?:/[^\s@'\"]*)?)(@)(?=[\w\[])")
_MAIL = Pattern(r"(?<![\w.+-])[\w.+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}(?![\w-])")
_IPV4 = Pattern(r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\d)")
_IPV6 = Pattern(r"(?<![\w:])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:(<])")
_PATH = Pattern(r"(?:(?<![\w/.~*:<])|(?<=:)|(?<=://))/(?!/)[^\s'\"`:;,()\[\]{}<>|&=?!\\]+")
_LEAST_SECRET = 6  # characters: shorter ones occur by chance


class Words:
    """Replaces what is private in strings, the same by the same; `removed` are the originals, by kind."""

    def __init__(self, found: Vocabulary) -> None:
        self.removed: dict[str, set[str]] = {
            kind: set() for kind in ("secrets", "credentials", "hosts", "users", "paths", "memory_blocks")
        }
        self._roots = found.roots
        self._hosts = {host: f"host-{number}" for number, host in enumerate(_without_parts(found.hosts), 1)}
        for host in found.hosts:  # the first word of a full name is the same machine
            whole = next((name for name in self._hosts if name.startswith(host + ".")), host)
            self._hosts.setdefault(host, self._hosts[whole])
        self._users = {user: f"user-{number}" for number, user in enumerate(found.users, 1)}
        self._host_words = _any_of(self._hosts)
        self._user_words = _any_of(self._users)
        self._secrets: dict[str, None] = {}
        self._known: dict[str, str] = {}

    def learn(self, text: str) -> None:
        """Remembers the secrets of a string, to find them in others that do not announce them."""
        if not _MAY_BE_SECRET.search(text):
            return
        kept, count = self._redacted(text)
        if count:
            self._remember(text, kept)

    def learn_command(self, command: Sequence[str]) -> None:
        """The same for a command line, where a secret may be the word behind its option."""
        for old, new in zip(command, redact_words(command)[0], strict=True):
            if old != new:
                self._remember(old, new)

    def text(self, text: str) -> str:
        """A string of any kind."""
        if text not in self._known:
            self._known[text] = self._without_names(self._without_secrets(text))
        return self._known[text]

    def command(self, command: Sequence[str]) -> list[str]:
        """A command line."""
        return [self.text(word) for word in redact_words(command)[0]]

    def path(self, path: str) -> str:
        """A path as a whole, which may hold blanks."""
        return self._without_names(self._without_secrets(self._shortened(path))) if path.startswith("/") else path

    def _without_secrets(self, text: str) -> str:
        text = _CREDENTIALS.sub(self._credentials, text) if "@" in text else text
        text = self._redacted(text)[0] if _MAY_BE_SECRET.search(text) else text
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    def _redacted(self, text: str) -> tuple[str, int]:
        content, count = redact_text(text.encode("utf-8", "surrogatepass"), line=True)
        return content.decode("utf-8", "surrogatepass"), count

    def _remember(self, old: str, new: str) -> None:
        """What stood where there is a mask now: between the parts that stayed."""
        parts = [re.escape(part) for part in re.split(r"\*{1,3}", new)]
        match = re.fullmatch("(.+?)".join(parts), old, re.DOTALL)
        for secret in match.groups() if match else (old,):
            if set(secret) <= {"*"}:
                continue
            self.removed["secrets"].add(secret)
            if len(secret) >= _LEAST_SECRET:
                self._secrets.setdefault(secret)

    def _credentials(self, match: re.Match[str]) -> str:
        if set(match[2]) != {"*"}:
            self.removed["credentials"].add(match[2])
        return match[1] + MASK + match[3]

    def _without_names(self, text: str) -> str:
        if "/" in text:
            text = _PATH.sub(lambda match: self._shortened(match[0]), text)
        if "@" in text:
            text = _MAIL.sub(self._mail, text)
        if self._host_words is not None:
            text = self._host_words.sub(self._named("hosts", self._hosts), text)
        if self._user_words is not None:
            text = self._user_words.sub(self._named("users", self._users), text)
        if "." in text:
            text = _IPV4.sub(self._address, text)
        return _IPV6.sub(self._address, text) if ":" in text else text

    def _named(self, kind: str, names: dict[str, str]) -> Callable[[re.Match[str]], str]:
        def replaced(match: re.Match[str]) -> str:
            self.removed[kind].add(match[0])
            return names[match[0]]

        return replaced

    def _mail(self, match: re.Match[str]) -> str:
        self.removed["users"].add(match[0])
        return MASK + "@" + MASK

    def _address(self, match: re.Match[str]) -> str:
        text = match[0]
        if not is_private_address(text) or (":" in text and sum(map(bool, text.split(":"))) < 3):
            return text  # c10d:: is a namespace
        self.removed["hosts"].add(text)
        return self._hosts.setdefault(text, f"host-{len(set(self._hosts.values())) + 1}")

    def _shortened(self, path: str) -> str:
        """A path from the project's directory on, of an installed library or of the system; else its last part."""
        if LIBRARY.match(path):
            short = ELSEWHERE + "/" + LIBRARY.sub(r"\1", path)
        elif SYSTEM.match(path) or path.count("/") < 2:
            return path
        else:
            short = next((path[len(root) + 1 :] for root in self._roots if path.startswith(root + "/")), "")
            short = short or f"{ELSEWHERE}/{path.rstrip('/').rpartition('/')[2]}"
        self.removed["paths"].add(os.path.dirname(path))
        return short


def _without_parts(hosts: dict[str, None]) -> list[str]:
    """Without the first words of full names."""
    return [host for host in hosts if not any(other.startswith(host + ".") for other in hosts)]


def _any_of(names: dict[str, str]) -> re.Pattern[str] | None:
    if not names:
        return None
    longest = sorted(names, key=len, reverse=True)
    return re.compile(rf"(?<![A-Za-z0-9_-])(?:{'|'.join(map(re.escape, longest))})(?![A-Za-z0-9_]|-[A-Za-z0-9])")
