"""The docs are true: config.md has every field and flag, quoted errors come, programs run, links lead on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from programs import CTL, output_of, run
from slotwise_cluster import Cluster, StartCluster, run_server
from slotwise_wire import PROTO, ROOT
from test_plain_client import generate

CLIENT = ROOT / "client" / "python"
CLIENTS_DOC = (ROOT / "docs" / "clients.md").read_text()
CONFIG_DOC = (ROOT / "docs" / "config.md").read_text()
QUOTED_ERRORS = re.findall(r"^\| `(.+)` \| `(server\.pbtxt:.+)` \|$", CONFIG_DOC, re.MULTILINE)
assert len(QUOTED_ERRORS) >= 10


def server_config(folder: Path) -> Any:
    """The descriptor of message ServerConfig."""
    compiled = folder / "config.protoset"
    command = ["protoc", f"-I{PROTO}", "--include_imports", f"--descriptor_set_out={compiled}"]
    subprocess.run([*command, "slotwise/v1/config.proto"], check=True)
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool.FindMessageTypeByName("slotwise.v1.ServerConfig")


def words_of(message: Any, prefix: str = "") -> Iterator[str]:
    """Every field below a message, as its path (a table's from the table on), and values of enums."""
    for field in message.fields:
        yield prefix + field.name
        if field.message_type:
            inner = "" if field.name == "tables" else f"{prefix}{field.name}."
            yield from words_of(field.message_type, inner)
        if field.enum_type:
            yield from (value.name for value in field.enum_type.values if value.number)


def test_every_field_is_explained(tmp_path: Path) -> None:
    words = list(words_of(server_config(tmp_path)))
    assert "limits.step_timeout_ms" in words and "optimizer.adam.beta1" in words and "BACKEND_CPU" in words
    assert [word for word in words if f"`{word}`" not in CONFIG_DOC] == []


def test_every_flag_is_explained() -> None:
    flags = re.findall(r"^ +(?:-\w,)?(--[a-z-]+)", run_server("--help").stdout, re.MULTILINE)
    assert "--check-config" in flags
    assert [flag for flag in flags if f"`{flag}" not in CONFIG_DOC] == []


def test_the_example_is_right(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```\n(.+?)^```$", CONFIG_DOC, re.MULTILINE | re.DOTALL)
    (tmp_path / "server.pbtxt").write_text(example)
    ended = run_server("--config", str(tmp_path / "server.pbtxt"), "--check-config")
    assert (ended.returncode, ended.stdout) == (0, f"{tmp_path}/server.pbtxt is right: 1 table(s)\n")


@pytest.mark.parametrize("line, error", QUOTED_ERRORS)
def test_quoted_errors_are_what_the_server_says(tmp_path: Path, line: str, error: str) -> None:
    (tmp_path / "server.pbtxt").write_text(f"{line}\n")
    ended = run_server("--config", str(tmp_path / "server.pbtxt"), "--check-config")
    assert (ended.returncode, ended.stderr) == (1, f"{tmp_path}/{error}\n")


DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("[cdep]*/**/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_tables_are_whole(document: Path) -> None:
    """A table has a head, and no blank line: rows behind one are no table's."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n[ \t]*\n", text):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        if rows:
            assert len(rows) > 1 and re.fullmatch(r"\|( ?:?-+:? ?\|)+", rows[1]), rows[0]
            cells = {len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", row))) for row in rows}
            assert len(cells) == 1, rows[0]


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_no_program_starts_by_whichever_python_comes_first_on_the_path() -> None:
    """`./dev python PROGRAM` starts them all, by the one that has what they need."""
    folders = "bench client cmake deploy docs examples tests".split()
    programs = [file for folder in folders for file in (ROOT / folder).rglob("*")]
    assert ROOT / "tests/fault/kill_loop" in programs
    first_lines = {file: file.open("rb").readline(80) for file in programs if file.is_file()}
    assert [file for file, line in first_lines.items() if line.startswith(b"#!") and b"python" in line] == []


# --- docs/clients.md and docs/coming-from.md: their programs run


def programs_of(section: str, document: str = "clients.md") -> str:
    """All Python of a section of a document, as one program."""
    text = (ROOT / "docs" / document).read_text()
    (body,) = re.findall(rf"^## {section}\n(.+?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return "\n".join(re.findall(r"^```python\n(.+?)^```$", body, re.MULTILINE | re.DOTALL))


def test_no_two_documents_make_one_table_with_other_options() -> None:
    """In Python; test_one_server_can_follow_all_documents has slotwise-ctl's."""
    options: dict[str, str] = {}
    for document in [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("client/*/README.md")]:
        for name, given in re.findall(r'ps\.create_table\("([^"]+)", (.+)\)', document.read_text()):
            assert options.setdefault(name, given) == given, name
    assert {"clicks", "ads"} <= set(options)


def test_one_server_can_follow_all_documents(start_cluster: StartCluster, tmp_path: Path) -> None:
    """README's Python, that of clients.md, slotwise-ctl's line and config.md's table."""
    (example,) = re.findall(r"^```\n.*?(^tables .+?)^```$", CONFIG_DOC, re.MULTILINE | re.DOTALL)
    assert 'name: "clicks"' not in example, "README makes clicks itself"
    cluster = start_cluster(2, example + data_folder(tmp_path))
    ten_lines, adopted = re.findall(r"^```python\n(.+?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    run_program(ten_lines + adopted, cluster)
    printed = run_program(A_TRAINER + programs_of("Python"), cluster)
    assert printed.startswith("ads 3 3 ") and "offsets" in printed.splitlines()[-1]
    (line,) = re.findall(r"^    slotwise-ctl (create ads --dim .+)$", CLIENTS_DOC, re.MULTILINE)
    ended = run(CTL, "--server", cluster.ranks[0].address, *line.split())
    assert (ended.returncode, ended.stderr) == (0, "")


def test_every_training_loop_runs(start_cluster: StartCluster, tmp_path: Path) -> None:
    """Each behind the first, which makes what the others use; in one process, for torch is slow to import."""
    cluster = start_cluster(2, data_folder(tmp_path))
    tasks = re.findall(r"^## (.+)$", (ROOT / "docs" / "training.md").read_text(), re.MULTILINE)
    first = programs_of(tasks[0], "training.md")
    programs = {task: first + programs_of(task, "training.md") for task in tasks[1:]}
    assert len(programs) >= 8
    group = 'torch.distributed.init_process_group("gloo")'
    assert [task for task, program in programs.items() if group in program] == ["Several trainers"]
    lines = [f"exec({program.replace(group, A_GROUP)!r}, {{}})" for program in programs.values()]
    run_program("\n".join(["import lightning_on_debian", *lines]), cluster, CLIENT, CLIENT / "tests")
    with cluster.connect() as ps:
        assert ps.describe_table("shows").steps > 8 * 4


def test_a_model_is_served_as_the_page_says(start_cluster: StartCluster, tmp_path: Path) -> None:
    """All sections are one program, but for ONNX Runtime's where that is not installed."""
    text = (ROOT / "docs" / "serving.md").read_text()
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert {"A plain copy", "ONNX Runtime", "Forget old ids"} <= set(sections)
    if find_spec("onnxruntime") is None:
        sections.remove("ONNX Runtime")
    program = "".join(programs_of(section, "serving.md") for section in sections)
    assert program.count("export_module") >= 4
    run_program(program, start_cluster(2, data_folder(tmp_path)))


# What a program for trainers in step finds, as the only one of them.
A_GROUP = """
torch.distributed.init_process_group("gloo", init_method=f"file://{__import__('os').getcwd()}/group", rank=0,
                                     world_size=1)
"""
A_TRAINER = f"""
import torch.distributed
{A_GROUP}
shared_id, shared_epoch, rank, world_size = 42, 0, 0, 1
"""


def run_program(program: str, cluster: Cluster, *paths: Path) -> str:
    """Runs it against a server, with these folders' modules or else our client; what it printed."""
    assert '"127.0.0.1:7070"' in program
    program = program.replace("127.0.0.1:7070", cluster.ranks[0].address)
    with tempfile.TemporaryDirectory() as folder:  # some write files
        (Path(folder) / "program.py").write_text(program)  # torch.jit.script reads the source
        imports = os.pathsep.join(map(str, paths or [CLIENT]))
        command = (sys.executable, "program.py")
        return output_of(*command, folder=Path(folder), timeout=120, PYTHONPATH=imports)


def data_folder(tmp_path: Path) -> str:
    """What a configuration says of a folder for checkpoints."""
    return f'durability {{ folder: "{tmp_path}/data" }}'


def test_the_program_for_those_who_know_torch_runs(start_cluster: StartCluster) -> None:
    program = programs_of("nn.EmbeddingBag and nn.Embedding", "coming-from.md")
    assert run_program(program, start_cluster(2)) == ""


def test_program_from_the_protos_runs(start_cluster: StartCluster, tmp_path: Path) -> None:
    generate(tmp_path)
    printed = run_program(programs_of("Any language: the .proto files"), start_cluster(2), tmp_path)
    assert printed == "1\n1\n"
