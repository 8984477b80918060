"""docs/limits.md is true: every bound is in the code with that value, and every refusal is said there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from slotwise_cluster import StartCluster, refusal
from slotwise_wire import CALL_TIMEOUT, ROOT
from test_docs import server_config

DOCUMENT = (ROOT / "docs" / "limits.md").read_text()
SOURCES = sorted(
    path
    for room in ("include", "wire", "kernels", "server", "client/cpp", "client/ctl")
    for path in (ROOT / room).rglob("*")
    if path.suffix in (".h", ".cc", ".inl")
)
UNITS = {"": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "ms": 1e-3, "s": 1.0, "min": 60.0}
CHRONO = {"milliseconds": 1e-3, "seconds": 1.0, "minutes": 60.0}
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


class Bound(NamedTuple):
    """A line of a table."""

    what: str
    bound: str
    said_by: str
    code: str
    words: str


def bounds() -> list[Bound]:
    """All lines of all tables."""
    lines = re.findall(r"^\|( .+)\|$", DOCUMENT, re.MULTILINE)
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    assert all(len(line) == 5 for line in cells), [line for line in cells if len(line) != 5]
    return [Bound(*line) for line in cells if line[0] != "what"]


BOUNDS = bounds()


def in_base_units(text: str) -> float:
    """Of "65,536", "16 MiB", "2³¹ − 4096" or "60 s": a count, bytes or seconds."""
    match = re.fullmatch(r"([\d,⁰¹²³⁴⁵⁶⁷⁸⁹]+)(?: − (\d+))?(?: (\w+))?", text)
    assert match, text
    number, less, unit = match.groups()
    power = re.fullmatch(r"2([⁰¹²³⁴⁵⁶⁷⁸⁹]+)", number)
    value = 2 ** int(power[1].translate(SUPERSCRIPTS)) if power else int(number.replace(",", ""))
    return (value - int(less or 0)) * UNITS[unit or ""]


def evaluate(expression: str) -> float:
    """A constant expression of C++: numbers, casts of numbers, and - * / + << among them."""
    expression = re.sub(r"std::\w+\{([^}]+)\}", r"(\1)", expression).replace("'", "")
    expression = re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", expression)
    assert re.fullmatch(r"[\s\dxXa-fA-F()*+/<-]+", expression), expression
    return float(eval(expression))


def value_in_code(name: str, path: str) -> float:
    """What a file says a constant is, or an argument of gRPC's."""
    text = (ROOT / path).read_text()
    if name.startswith("GRPC_ARG_"):
        (milliseconds,) = re.findall(rf"{name}, ([\d']+)\)", text)
        return evaluate(milliseconds) * 1e-3
    found = re.findall(rf"constexpr ([\w:]+(?: \w+)*) {name}(?:\{{([^}}]+)\}}| = ([^;]+));", text)
    assert len(found) == 1, f"{path} says {name} {len(found)} times"
    ((kind, braced, assigned),) = found
    return evaluate(braced or assigned) * CHRONO.get(kind.rpartition("::")[2], 1.0)


def test_every_reason_is_explained() -> None:
    proto = (ROOT / "proto" / "slotwise" / "v1" / "errors.proto").read_text()
    section = DOCUMENT.partition("## Reasons")[2].partition("\n## ")[0]
    told = re.findall(r"^  - `([A-Z_]+)`: (.+)$", section, re.MULTILINE)
    defined = re.findall(r"((?:  // .*\n)+)  REASON_([A-Z_]+) = [1-9]", proto)
    texts = [(name, " ".join(re.findall(r"// (.*)", comment))) for comment, name in defined]
    assert len(texts) > 30
    assert told == texts


FOLLOW_THE_MEMORY = {f"max_{name}_mib": name for name in ("message", "round", "queue", "ledger", "evicted")}
FOLLOW_THE_MEMORY |= {"max_shared_mib": "queue", "max_connections": "connections", "max_calls": "calls"}


def default_of(limit: str) -> float:
    """What the server takes at least, where memory is plenty, for a field that the file leaves out."""
    if limit in FOLLOW_THE_MEMORY:
        text = (ROOT / "include/slotwise/memory_plan.h").read_text()
        plenty = text[text.index("kPlenty{") : text.index("};", text.index("kPlenty{"))]
        (number,) = re.findall(rf"\.{FOLLOW_THE_MEMORY[limit]} = ([\d']+)", plenty)
    elif limit == "max_gpu_shared_mib":
        return value_in_code("kLeastGpuSharedBufferMib", "server/ops/fit_limits.cc") * UNITS["MiB"]
    else:
        text = (ROOT / "server" / "ops" / "config.cc").read_text()
        (number,) = re.findall(rf"limits\.set_{limit}\(([\d']+)\)", text)
    unit = "MiB" if limit.endswith("_mib") else "ms" if limit.endswith("_ms") else ""
    return evaluate(number) * UNITS[unit]


def literals(path: Path) -> str:
    """A source file in which neighbouring string literals are one."""
    return re.sub(r'"\s*\n?\s*"', "", path.read_text())


def by_what(bound: Bound) -> str:
    return f"{bound.what}: {bound.said_by}"


def in_code(said_by: str) -> float | None:
    """The value of "`CONSTANT` of `FILE`", or the default of "`limits.FIELD`"; None of anything else."""
    if constant := re.fullmatch(r"`(\w+)` of `([\w/.]+)`", said_by):
        return value_in_code(*constant.groups())
    field = re.fullmatch(r"`limits\.(\w+)`", said_by)
    assert field or ("` of `" not in said_by and not said_by.startswith("`limits.")), said_by
    return default_of(field[1]) if field else None


@pytest.mark.parametrize("bound", [b for b in BOUNDS if in_code(b.said_by) is not None], ids=by_what)
def test_every_bound_has_the_value_that_is_documented(bound: Bound) -> None:
    assert in_code(bound.said_by) == pytest.approx(in_base_units(bound.bound))


def test_every_field_of_limits_is_there(tmp_path: Path) -> None:
    limits = server_config(tmp_path).fields_by_name["limits"].message_type
    fields = [f"limits.{field.name}" for field in limits.fields if not field.GetOptions().deprecated]
    assert len(fields) >= 7
    assert [field for field in fields if f"| `{field}` |" not in DOCUMENT] == []


@pytest.mark.parametrize("bound", [b for b in BOUNDS if "`" in b.words], ids=by_what)
def test_every_refusal_is_said_in_the_code(bound: Bound) -> None:
    if bound.words.startswith("gRPC's: "):
        return  # another test asks the server
    (words,) = re.findall(r"`([^`]+)`", bound.words)
    if words == "...":
        return
    pieces = [re.escape(piece) for piece in re.split("…", words) if piece]
    # Between two pieces of a sentence there is a value: code without the end of a statement.
    sentence = re.compile('[^;]{0,300}?'.join(pieces))
    name = "".join(word.capitalize() for word in bound.code.strip("`").split("_"))
    makers = rf"({name}|Refuse)\(" if name == "InvalidArgument" else rf"{name}\("
    for path in SOURCES:
        text = literals(path)
        for match in sentence.finditer(text):
            near = text[max(0, match.start() - 400) : match.end() + 400]
            if not name or re.search(makers, near):
                return
    pytest.fail(f"no source says {words!r} with {bound.code or 'no code'}")


def test_grpcs_own_refusals_are_as_documented(start_cluster: StartCluster) -> None:
    said = {b.what: (b.code.strip("`"), b.words) for b in BOUNDS if b.words.startswith("gRPC's: ")}
    cluster = start_cluster(1, "limits { max_message_mib: 1 }")
    metadata = "bytes of a call's metadata, as gRPC counts them: names, values and 32 for each field"
    requests: dict[str, tuple[bytes, dict[str, Any]]] = {
        "a request's bytes": (bytes(2 << 20), {}),
        "a compressed request": (bytes(1000), {"compression": grpc.Compression.Gzip}),
        metadata: (bytes(1000), {"metadata": [("authorization", "x" * (8 << 10))]}),
    }
    assert requests.keys() == said.keys()
    lookup = cluster.ranks[0].embedding.Lookup
    for what, (request, options) in requests.items():
        code, words = said[what]
        refused = refusal(grpc.StatusCode[code], lookup, request, timeout=CALL_TIMEOUT, **options)
        assert re.findall("`([^`]+)`", words)[0] in refused
