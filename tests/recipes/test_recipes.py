"""CONTRIBUTING.md's recipes: an optimizer takes five code files, and a table's option four.

Each recipe is followed in a copy of the tree, which is built; and again without one of its files, whose build
fails and says what is missing.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROTO = "proto/slotwise/v1/admin.proto"
LISTS = "include/slotwise/table_options.h"
KERNELS = "kernels/body/optimizer.h"
CLASSES = "client/python/slotwise/optimizers.py"
PACKAGE = "client/python/slotwise/__init__.py"
OPTIONS = "client/python/slotwise/options.py"
CALLS = "client/python/slotwise/admin_calls.py"


@dataclass(frozen=True)
class Edit:
    """Puts `text` before or behind the only place of `beside` in a file, which begins a line there."""

    file: str
    beside: str
    text: str
    behind: bool = False


# Signum (Bernstein and others, 2018): m = beta * m + (1 - beta) * g; w -= lr * sign(m).
SIGNUM = [
    Edit(
        PROTO,
        "// The schedule of the learning rate lr over",
        "message Signum {\n  optional float beta = 1;\n}\n\n",
    ),
    Edit(PROTO, "    Ftrl ftrl = 10;\n", "    Signum signum = 12;\n", behind=True),
    Edit(LISTS, "  kFtrl,\n", "  kSignum,\n", behind=True),
    Edit(
        LISTS,
        '      return "ftrl";\n',
        '    case OptimizerKind::kSignum:\n      return "signum";\n',
        behind=True,
    ),
    Edit(
        LISTS,
        '    case OptimizerKind::kFtrl:\n      visit(Option<float>{"lambda1"',
        "    case OptimizerKind::kSignum:\n"
        '      return visit(Option<float>{"beta", 0.9F, kBelow1}, o.momentum);\n',
    ),
    Edit(
        LISTS,
        "    case OptimizerKind::kFtrl:\n      return states::kFtrl;\n",
        "    case OptimizerKind::kSignum:\n      return states::kStep;\n",
    ),
    Edit(
        KERNELS,
        "// Lets an optimizer update an element, unless",
        "struct Signum {\n"
        "  static constexpr bool kSharesState = false;\n"
        "  static constexpr std::uint32_t kStates = 1;\n"
        "  float learning_rate;\n"
        "  float beta;\n\n"
        "  SLOTWISE_HD void operator()(float* w, std::uint32_t dim, float g) const {\n"
        "    float& m = w[dim];\n"
        "    m = beta * m + (1.0F - beta) * g;\n"
        "    *w -= m > 0 ? learning_rate : -learning_rate;\n"
        "  }\n"
        "};\n\n",
    ),
    Edit(
        KERNELS,
        "    case Kind::kFtrl:\n",
        "    case Kind::kSignum:\n      return use(Of<Kind::kSignum>(Signum{rate, o.momentum}));\n",
    ),
    Edit(
        CLASSES,
        "@dataclass(frozen=True)\nclass Uniform:",
        "@dataclass(frozen=True)\nclass Signum:\n    lr: float\n    beta: float = 0.9\n"
        "    weight_decay: float = 0.0\n    schedule: Schedule = Schedule()\n\n\n",
    ),
    Edit(CLASSES, "Optimizer = SGD", " | Signum", behind=True),
    Edit(CLASSES, '    "ftrl": ("z", "n"),\n', '    "signum": ("a",),\n', behind=True),
    Edit(CLASSES, '    "ftrl": FTRL,\n', '    "signum": Signum,\n', behind=True),
    Edit(PACKAGE, "    Schedule,\n", "    Signum,\n", behind=True),
    Edit(PACKAGE, '    "Session",\n', '    "Signum",\n', behind=True),
]
# A number that the engine only stores.
KEEP_DAYS = [
    Edit(PROTO, "  float max_load = 9;\n", "  uint64 keep_days = 99;\n", behind=True),
    Edit(LISTS, "  float max_load = 0.5F;\n", "  std::uint64_t keep_days = 7;\n", behind=True),
    Edit(
        LISTS,
        "        o.max_load);\n",
        '  visit(Option<std::uint64_t>{"keep_days", kNew.keep_days, {}, "days"}, o.keep_days);\n',
        behind=True,
    ),
    Edit(OPTIONS, "    max_load: float = 0.0\n", "    keep_days: int = 0\n", behind=True),
    Edit(CALLS, "        max_load: float = 0.0,\n", "        keep_days: int = 0,\n", behind=True),
    Edit(CALLS, "initial_rows, max_rows, max_load", ", keep_days", behind=True),
]


def changed(text: str, edit: Edit) -> str:
    assert text.count(edit.beside) == 1, f"{edit.file} has {text.count(edit.beside)} of {edit.beside!r}"
    return text.replace(edit.beside, edit.beside + edit.text if edit.behind else edit.text + edit.beside)


class Tree:
    """A copy of the tree, in which recipes are followed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        self.run("cmake", "--preset", "cpu", "-DSLOTWISE_WERROR=ON")

    def follow(self, edits: Iterable[Edit]) -> None:
        for edit in edits:
            path = self.folder / edit.file
            path.write_text(changed(path.read_text(), edit))

    def build(self, *targets: str) -> subprocess.CompletedProcess[str]:
        return self.ask("ninja", "-C", "build/cpu", *targets)

    def ask(self, *command: str) -> subprocess.CompletedProcess[str]:
        python = {**os.environ, "PYTHONPATH": str(self.folder / "client" / "python")}
        return subprocess.run(command, cwd=self.folder, env=python, capture_output=True, text=True)

    def run(self, *command: str) -> str:
        done = self.ask(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def says_without(self, file: str, *targets: str) -> str:
        """Returns what a build says that fails without what a recipe does to a file."""
        path = self.folder / file
        followed = path.read_text()
        path.write_text((ROOT / file).read_text())
        done = self.build(*targets)
        path.write_text(followed)
        assert done.returncode != 0, f"a build without {file} does not fail"
        return done.stdout + done.stderr


PROGRAM = """
import json, slotwise
from slotwise.options import options_from_json, options_to_json
options = slotwise.TableOptions(
    "ads", 2, optimizer=slotwise.Signum(lr=0.5, beta=0.25), initializer=slotwise.Constant(1.0), keep_days=3
)
message = options_to_json(options)
back = options_from_json(message)
assert back == options, back
print(json.dumps(message))
"""


def test_recipes_take_so_many_code_files_and_a_build_without_one_says_so(tmp_path: Path) -> None:
    optimizer = {edit.file for edit in SIGNUM}
    option = {edit.file for edit in KEEP_DAYS}
    assert len(optimizer) <= 5 and len(option) <= 4
    recipes = (ROOT / "CONTRIBUTING.md").read_text()
    for title, files in {"## To add an optimizer": optimizer, "## To add a table's option": option}.items():
        (recipe,) = re.findall(rf"^{title}\n(.*?)^## ", recipes, re.MULTILINE | re.DOTALL)
        code = re.findall(r"^\d\. `([\w/]+\.\w+)`", recipe, re.MULTILINE)
        assert sorted(code) == sorted(files), title

    tree = Tree(tmp_path / "tree")
    tree.follow([*SIGNUM, *KEEP_DAYS])
    built = tree.build("schema", "one_row")
    assert built.returncode == 0, built.stdout + built.stderr

    # The optimizer learns, and the option comes back, from Python's classes to a shard.
    options = tree.run(sys.executable, "-c", PROGRAM)
    said = json.loads(tree.run("build/cpu/tests/recipes/one_row", options, "2", "3", "-4"))
    assert said["before"] == [1, 1, 0, 0]
    assert said["after"] == [1 - 2 * 0.5, 1 + 2 * 0.5, 3 * 0.75 * 1.25, -4 * 0.75 * 1.25]
    assert said["options"]["keep_days"] == "3"
    assert said["options"]["optimizer"]["signum"] == {"beta": 0.25}
    defaults = json.loads(tree.run(sys.executable, "-c", PROGRAM.replace(", keep_days=3", "")))
    said = json.loads(tree.run("build/cpu/tests/recipes/one_row", json.dumps(defaults), "1", "1"))
    assert said["options"]["keep_days"] == "7"

    # What is missing somewhere fails the build, which says where.
    assert f"{PROTO}: message Optimizer has no optimizer signum" in tree.says_without(PROTO, "schema")
    without_lists = tree.says_without(LISTS, "schema")
    assert f"{LISTS}: no optimizer is signum" in without_lists
    assert f"{LISTS}: no list has field keep_days of message TableOptions" in without_lists
    assert "optimizers.py: there is no optimizer signum" in tree.says_without(CLASSES, "schema")
    assert "__init__.py does not import Signum" in tree.says_without(PACKAGE, "schema")
    assert "has no attribute keep_days" in tree.says_without(OPTIONS, "schema")
    assert "create_table has no argument keep_days" in tree.says_without(CALLS, "schema")
    assert "kSignum" in tree.says_without(KERNELS, "one_row")


@pytest.mark.parametrize("edit", [*SIGNUM, *KEEP_DAYS], ids=lambda edit: Path(edit.file).name)
def test_a_recipes_edit_has_its_place(edit: Edit) -> None:
    """Fails at once, without a build, if the tree has moved on."""
    assert edit.text in changed((ROOT / edit.file).read_text(), edit)
