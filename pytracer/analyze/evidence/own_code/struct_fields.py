"""Where the fields of a structure lie: by its declaration in C, and by that of ctypes. Read as text and syntax.

Both align each field to its type (the x86-64 and aarch64 ABIs), and to `_pack_` at most; in C, by packed(). What has
`#pragma pack`, bit fields, or a type that is not known here, has no layout.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital, list_words
from pytracer.analyze.evidence.own_code.c_text import closing, without_comments
from pytracer.analyze.evidence.own_code.declared_functions import PROTOTYPES
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.naming import LineWords

POINTER_BYTES = 8
_UNKNOWN = -1
_LEAST_SHARED = 2  # names of fields that both declarations have
C_BYTES = {
    "char": 1, "signed char": 1, "unsigned char": 1, "bool": 1, "_Bool": 1, "int8_t": 1, "uint8_t": 1, "short": 2,
    "unsigned short": 2, "int16_t": 2, "uint16_t": 2, "int": 4, "unsigned": 4, "unsigned int": 4, "int32_t": 4,
    "uint32_t": 4, "float": 4, "long": 8, "unsigned long": 8, "long long": 8, "unsigned long long": 8, "int64_t": 8,
    "uint64_t": 8, "size_t": 8, "ssize_t": 8, "ptrdiff_t": 8, "intptr_t": 8, "uintptr_t": 8, "double": 8,
}  # fmt: skip
_CTYPES_BYTES = {
    "c_char": 1, "c_byte": 1, "c_ubyte": 1, "c_bool": 1, "c_int8": 1, "c_uint8": 1, "c_short": 2, "c_ushort": 2,
    "c_int16": 2, "c_uint16": 2, "c_int": 4, "c_uint": 4, "c_int32": 4, "c_uint32": 4, "c_float": 4, "c_long": 8,
    "c_ulong": 8, "c_longlong": 8, "c_ulonglong": 8, "c_int64": 8, "c_uint64": 8, "c_size_t": 8, "c_ssize_t": 8,
    "c_double": 8,
}  # fmt: skip
_CTYPES_POINTERS = frozenset({"c_void_p", "c_char_p", "c_wchar_p", "py_object"})
STRUCTURES = ("Structure", "LittleEndianStructure")
_PACKED = Pattern(r"\s*__attribute__\s*\(\(\s*(?:packed|__packed__)\s*\)\)")
_STRUCT = Pattern(rf"\bstruct\b(?P<packed>{_PACKED.pattern})?\s*(?P<tag>\w*)\s*\{{")
_NAME_BEHIND = Pattern(r"\s*(\w+)\s*;")
_ALIAS = Pattern(r"\btypedef\s+(?P<type>[\w\s]+?(?:\s*\*)*)\s*\b(?P<name>\w+)\s*;")
_FUNCTION_TYPE = Pattern(r"\btypedef\s+[\w\s*]+\(\s*\*\s*(?P<name>\w+)\s*\)\s*\(")
_FUNCTION_FIELD = Pattern(r"^[\w\s*]+\(\s*\*\s*(?P<name>\w+)\s*\)\s*\(")
_FIELD = Pattern(r"^(?P<stars>[\s*]*)(?P<name>\w+)\s*(?P<counts>(?:\[\s*\d+\s*\]\s*)*)$")
_NAMED_SIZE = Pattern(r"\[\s*(?P<name>[A-Za-z_]\w*)\s*\]")
_SIZE = Pattern(
    r"(?:^[ \t]*#[ \t]*define[ \t]+(?P<macro>\w+)[ \t]+\(?|\bconst(?:expr)?\s+(?:[\w:]+\s+)+(?P<constant>\w+)\s*=\s*"
    r"|\benum\s*\{\s*(?P<item>\w+)\s*=\s*)(?P<number>\d+)[uUlL]*\)?\s*(?=[;}\n]|$)",
    re.M,
)
_QUALIFIERS = Pattern(r"\b(const|volatile|restrict|struct|enum)\b")
_NOT_PLAIN = Pattern(r"#|__attribute__|\bunion\b|\{|:")


class Field(msgspec.Struct, frozen=True):
    """`offset` and `nbytes` in the structure. `pointer`, and `function`: to one."""

    name: str
    offset: int
    nbytes: int
    pointer: bool = False
    function: bool = False
    type: str = ""
    align: int = 1  # of its type
    count: int | None = None  # of the elements of an array, along its first dimension


class Structure(msgspec.Struct, frozen=True):
    """`line`: where its declaration begins. `pack`: what no field is aligned beyond; None without one."""

    name: str
    line: int
    fields: tuple[Field, ...]
    place: str = ""
    align: int = 1
    pack: int | None = None

    @property
    def nbytes(self) -> int:
        """What sizeof() gives."""
        last = self.fields[-1] if self.fields else None
        return _aligned(last.offset + last.nbytes, self.align) if last is not None else 0

    def at(self, offset: int) -> Field | None:
        """The field that a byte is in."""
        return next((item for item in self.fields if item.offset <= offset < item.offset + item.nbytes), None)


class FieldType(msgspec.Struct, frozen=True):
    """Of a field: its size and how it is aligned, in bytes."""

    nbytes: int
    align: int
    pointer: bool = False
    function: bool = False
    count: int | None = None


def _aligned(offset: int, align: int) -> int:
    return -(-offset // align) * align


def laid_out(
    name: str, line: int, place: str, parts: Sequence[tuple[str, FieldType, str]], pack: int | None = None
) -> Structure:
    """A structure of these fields, each aligned to its type, and to `pack` at most."""
    fields: list[Field] = []
    end, largest = 0, 1
    for field, kind, text in parts:
        align = min(kind.align, pack or kind.align)
        start = _aligned(end, align)
        fields.append(Field(field, start, kind.nbytes, kind.pointer, kind.function, text, kind.align, kind.count))
        end, largest = start + kind.nbytes, max(largest, align)
    return Structure(name, line, tuple(fields), place, largest, pack)


def has_same_layout(one: Structure, other: Structure) -> bool:
    """Whether each field is at the same bytes, and the whole has the same size."""
    places = [{(item.name, item.offset, item.nbytes) for item in held.fields} for held in (one, other)]
    return places[0] == places[1] and one.nbytes == other.nbytes


def packing_advice(python: Structure, declared: Structure, at: LineWords) -> str | None:
    """Of a ctypes.Structure, at `at`, that differs from the C struct by `_pack_` alone; None of any other."""
    if python.pack == declared.pack:
        return None
    parts = [
        (item.name, FieldType(item.nbytes, item.align, item.pointer, item.function), item.type)
        for item in python.fields
    ]
    if not has_same_layout(laid_out(python.name, python.line, "", parts, declared.pack), declared):
        return None
    struct = f"the C struct {declared.name} ({declared.place})"
    if declared.pack is None:
        return (
            f"Remove `_pack_ = {python.pack}` from {python.name} ({at}): {struct} is not packed, so that C leaves room "
            "before a field that is aligned to its type."
        )
    return f"Set `_pack_ = {declared.pack}` in {python.name} ({at}), above `_fields_`: {struct} is packed."


def same_structure(python: Structure, declared: Sequence[Structure]) -> Structure | None:
    """The declaration in C that most of the names are in."""
    names = {item.name for item in python.fields}
    shared = [(len(names & {field.name for field in item.fields}), item) for item in declared]
    best = max(shared, key=lambda pair: pair[0], default=None)
    if best is None or best[0] < max(_LEAST_SHARED, (min(len(names), len(best[1].fields)) + 1) // 2):
        return None
    alike = {item.fields for count, item in shared if count == best[0]}
    return best[1] if len(alike) == 1 else None


def differences(python: Structure, declared: Structure) -> list[str]:
    """Sentences: how only one side is packed, fields that one side lacks, or that have another size."""
    own = {item.name: item for item in python.fields}
    other = {item.name: item for item in declared.fields}
    lacks = [f"`{name}` (`{item.type}`)" for name, item in other.items() if name not in own]
    more = [f"`{name}`" for name in own if name not in other]
    sizes = [
        f"`{name}` is `{item.type}` in C, and `{own[name].type}` in {python.name}"
        for name, item in other.items()
        if name in own and own[name].nbytes != item.nbytes
    ]
    packed = f"{python.name} has `_pack_ = {python.pack}`, and C does not pack {declared.name}"
    if declared.pack is not None:
        packed = f"C packs {declared.name}"
    words = [
        packed if python.pack != declared.pack else "",
        f"{python.name} lacks {list_words(lacks)}" if lacks else "",
        f"C has no {list_words(more)}" if more else "",
        *sizes,
    ]
    return [f"{capital(item)}." for item in words if item]


def missing_field(python: Structure, declared: Structure) -> str | None:
    """A sentence: the first field that only C has, with its place; None where no field of both is behind it."""
    own = {item.name for item in python.fields}
    fields = declared.fields
    at = next((number for number, item in enumerate(fields) if item.name not in own), None)
    if at is None or not any(item.name in own for item in fields[at:]):
        return None
    where = f"behind `{fields[at - 1].name}`" if at else f"before `{fields[1].name}`"
    kind = _of_c(fields[at])
    return f'Add `("{fields[at].name}", {kind})` {where}.' if kind else f"`{fields[at].name}` is {where} in C."


def _of_c(field: Field) -> str | None:
    """The type of ctypes; None of arrays, structures and what has no name there."""
    plain = field.type.replace("const ", "").strip()
    if field.pointer:
        return "ctypes.c_char_p" if plain == "char *" else "ctypes.c_void_p"
    if C_BYTES.get(plain) != field.nbytes:
        return None
    name = {"char": "c_char", "_Bool": "c_bool", "signed char": "c_byte", "unsigned char": "c_ubyte"}.get(plain)
    plain = plain.removesuffix("_t") if plain not in ("size_t", "ssize_t") else plain
    words = plain.replace("unsigned int", "uint").replace("unsigned", "u").replace(" ", "")
    name = name or f"c_{words if words != 'u' else 'uint'}"
    return f"ctypes.{name}" if name in _CTYPES_BYTES else None


# ---- C


def c_structures(text: str, file: str, first: int = 1) -> Iterator[Structure]:
    """Those of a source file. `first`: the number of its first line; `file`: its name, where it is another file."""
    plain = with_numbers(without_comments(text))
    if "#pragma pack" in plain:
        return
    known = {name: FieldType(size, size) for name, size in C_BYTES.items()}
    known |= {match["name"]: _pointer(function=True) for match in _FUNCTION_TYPE.finditer(plain)}
    for match in _ALIAS.finditer(plain):
        kind = _c_type(match["type"], known)
        if kind is not None:
            known.setdefault(match["name"], kind)
    for match in _STRUCT.finditer(plain):
        end = closing(plain, match.end() - 1)
        packed = _PACKED.match(plain, end + 1) if end is not None else None
        after = packed.end() if packed is not None else end + 1 if end is not None else None
        behind = _NAME_BEHIND.match(plain, after) if after is not None else None
        name = behind[1] if behind is not None else match["tag"]
        is_plain = after is not None and "__attribute__" not in plain[after:].partition(";")[0]
        parts = _c_fields(plain[match.end() : end], known) if is_plain and name else None
        if parts:
            line = first + plain.count("\n", 0, match.start())
            pack = 1 if packed is not None or match["packed"] is not None else None
            found = laid_out(name, line, f"{file}:{line}" if file else f"line {line}", parts, pack)
            known |= dict.fromkeys(filter(None, (name, match["tag"])), FieldType(found.nbytes, found.align))
            yield found


def named_sizes(text: str) -> dict[str, int]:
    """The numbers that a file gives names: by #define, as a constant, or alone in an enum."""
    found: dict[str, set[int]] = {}
    for match in _SIZE.finditer(text):
        found.setdefault(match["macro"] or match["constant"] or match["item"], set()).add(int(match["number"]))
    return {name: numbers.pop() for name, numbers in found.items() if len(numbers) == 1}


def with_numbers(text: str) -> str:
    """With the numbers of array sizes in place of their names, where the file gives them."""
    sizes = named_sizes(text)
    return _NAMED_SIZE.sub(lambda match: f"[{sizes.get(match['name'], match['name'])}]", text)


def _pointer(*, function: bool = False) -> FieldType:
    return FieldType(POINTER_BYTES, POINTER_BYTES, pointer=True, function=function)


def _c_type(text: str, known: Mapping[str, FieldType]) -> FieldType | None:
    if "*" in text:
        return _pointer()
    if re.search(r"\benum\b", text):
        return known["int"]
    return known.get(" ".join(_QUALIFIERS.sub(" ", text).split()))


def _c_fields(body: str, known: Mapping[str, FieldType]) -> list[tuple[str, FieldType, str]] | None:
    found = []
    for statement in filter(None, (item.strip() for item in body.split(";"))):
        if _NOT_PLAIN.search(statement):
            return None
        function = _FUNCTION_FIELD.match(statement)
        if function is not None:
            found.append((function["name"], _pointer(function=True), " ".join(statement.split())))
            continue
        first, *others = statement.split(",")
        head = re.match(r"^(?P<type>(?:\w+\s+)*\w+)(?=[\s*])(?P<rest>.*)$", first, re.S)
        if head is None:
            return None
        for declarator in (head["rest"], *others):
            field = _FIELD.match(declarator.strip())
            kind = _c_type(head["type"] + ("*" if field is not None and "*" in field["stars"] else ""), known)
            if field is None or kind is None:
                return None
            counts = [int(item) for item in re.findall(r"\d+", field["counts"])]
            text = f"{head['type']}{' *' if '*' in field['stars'] else ''}"
            found.append((field["name"], _times(kind, counts), " ".join(text.split())))
    return found


def _times(kind: FieldType, counts: Sequence[int]) -> FieldType:
    return FieldType(kind.nbytes * math.prod(counts), kind.align, count=counts[0]) if counts else kind


# ---- ctypes


def ctypes_structures(tree: ast.Module) -> Iterator[tuple[ast.ClassDef, Structure]]:
    """The classes of a file whose fields and their types it shows."""
    known: dict[str, FieldType] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            kind = _ctypes_type(node.value, known)
            if kind is not None:
                known[node.targets[0].id] = kind
        if not isinstance(node, ast.ClassDef) or not any(_last_name(base) in STRUCTURES for base in node.bases):
            continue
        parts, pack = _ctypes_fields(node, known), _pack(node)
        if parts and pack != _UNKNOWN:
            found = laid_out(node.name, node.lineno, "", parts, pack)
            known[node.name] = FieldType(found.nbytes, found.align)
            yield node, found


def _ctypes_fields(owner: ast.ClassDef, known: Mapping[str, FieldType]) -> list[tuple[str, FieldType, str]] | None:
    sets = _sets(owner)
    fields = sets.get("_fields_")
    if "_anonymous_" in sets or not isinstance(fields, (ast.List, ast.Tuple)):
        return None
    found = []
    for item in fields.elts:
        if not isinstance(item, ast.Tuple) or len(item.elts) != 2 or not isinstance(item.elts[0], ast.Constant):
            return None
        kind = _ctypes_type(item.elts[1], known)
        if kind is None:
            return None
        found.append((str(item.elts[0].value), kind, ast.unparse(item.elts[1])))
    return found


def _sets(owner: ast.ClassDef) -> dict[str, ast.expr]:
    return {
        target.id: item.value
        for item in owner.body
        if isinstance(item, ast.Assign)
        for target in item.targets
        if isinstance(target, ast.Name)
    }


def _pack(owner: ast.ClassDef) -> int | None:
    """None without one; _UNKNOWN of what is no number."""
    value = _sets(owner).get("_pack_")
    if value is None:
        return None
    number = value.value if isinstance(value, ast.Constant) else None
    return number if type(number) is int and number > 0 else _UNKNOWN


def _ctypes_type(node: ast.expr, known: Mapping[str, FieldType]) -> FieldType | None:
    name = _last_name(node)
    if name in known:
        return known[name]
    if name in _CTYPES_POINTERS:
        return _pointer()
    if name in _CTYPES_BYTES:
        return FieldType(_CTYPES_BYTES[name], _CTYPES_BYTES[name])
    if isinstance(node, ast.Call) and called_name(node) in PROTOTYPES:
        return _pointer(function=True)
    if isinstance(node, ast.Call) and called_name(node) == "POINTER":
        return _pointer()
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Constant):
        kind, count = _ctypes_type(node.left, known), node.right.value
        return _times(kind, [count]) if kind is not None and type(count) is int and count > 0 else None
    return None


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
