"""slotwise-ctl against real servers: what it says, what it does, how it exits."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import programs
import pytest
import slotwise
import slotwise.rows
from free_ports import free_ports
from programs import CTL
from slotwise import checkpoint_files
from slotwise.optimizers import Optimizer
from slotwise_cluster import Cluster, StartCluster, wait_until

SEED = 20261121
ONES = np.ones((2, 4), np.float32)
WAITS: tuple[list[str], ...] = ([], ["--wait", "0.3"])


def ctl(cluster: Cluster | None, *arguments: object, code: int = 0, address: str = "") -> Any:
    """Runs slotwise-ctl with --json and expects an exit code; what it wrote."""
    address = address or (cluster.ranks[-1].address if cluster else "")
    done = run("--server", address, "--json", *arguments)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout) if done.stdout else None


def error_of(cluster: Cluster | None, *arguments: object, address: str = "") -> tuple[str, str]:
    """The code and the message with which slotwise-ctl ends."""
    error = ctl(cluster, *arguments, code=1, address=address)["error"]
    return error["code"], error["message"]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return programs.run(CTL, *arguments)


def is_quiet(*arguments: object) -> int:
    """The exit code of a command that says nothing."""
    done = run(*arguments, "--quiet")
    assert (done.stdout, done.stderr) == ("", "")
    return done.returncode


def test_a_tables_life(cluster: Cluster, tmp_path: Path) -> None:
    life = ("create", "life", "--dim", "4", "--optimizer", "adagrad", "--learning-rate", "0.5")
    made = ctl(cluster, *life)
    assert made["created"] and made["options"]["dim"] == 4
    assert made["options"]["optimizer"]["learning_rate"] == 0.5
    assert not ctl(cluster, *life)["created"]
    other = ("create", "life", "--dim", "5", "--learning-rate", "0.5")
    assert error_of(cluster, *other)[0] == "ALREADY_EXISTS"

    (tmp_path / "t.pbtxt").write_text('name: "filed" dim: 3 optimizer { learning_rate: 1 sgd {} }')
    assert ctl(cluster, "create", "--file", str(tmp_path / "t.pbtxt"))["options"]["name"] == "filed"
    names = [table["name"] for table in ctl(cluster, "tables")["tables"]]
    assert "life" in names and "filed" in names

    described = ctl(cluster, "describe", "life")
    assert described["rows"] == 0 and len(described["shards"]) == len(cluster.ranks)
    assert all(shard["cells"] > 0 and shard["bytes"] > 0 for shard in described["shards"])
    assert described["rounds"] == {"all_bags": 0, "owned_bags": 0}
    digest = ctl(cluster, "digest", "life")
    assert (digest["digest"], digest["rows"], digest["steps"]) == cluster.digest("life")

    assert ctl(cluster, "set-learning-rate", "life", "0.25") == {"learning_rate": 0.25}
    assert ctl(cluster, "describe", "life")["learning_rate"] == 0.25
    assert error_of(cluster, "set-learning-rate", "life", "0")[0] == "INVALID_ARGUMENT"

    for name in ("life", "filed"):
        assert ctl(cluster, "drop", name) == {"dropped": True}
    assert error_of(cluster, "drop", "life")[0] == "NOT_FOUND"
    assert ctl(cluster, "drop", "life", "--missing-ok") == {"dropped": False}


def test_a_table_is_altered(cluster: Cluster) -> None:
    made = ("create", "altered", "--dim", "4", "--learning-rate", "0.5", "--max-rows", "10")
    ctl(cluster, *made)
    given = ("--max-rows", "20", "--eviction", "step { to: 0.5 }", "--ttl-steps", "7", "--ttl-seconds", "70")
    altered = ctl(cluster, "alter", "altered", *given, "--admission", "frequency { threshold: 3 }")
    options = altered["options"]
    assert altered["altered"] and options["max_rows"] == "20" and options["eviction"]["to"] == 0.5
    assert (options["ttl_steps"], options["ttl_seconds"]) == ("7", "70")
    assert options["admission"]["frequency"]["threshold"] == "3"
    assert ctl(cluster, "describe", "altered")["options"] == options
    assert not ctl(cluster, "alter", "altered", "--max-rows", "20")["altered"]
    assert ctl(cluster, *made) == {"created": False, "options": options}
    text = run("describe", "altered", "--server", cluster.ranks[0].address).stdout
    assert "evicts by step above 20 rows, to 10" in text and "admits keys that occurred 3 times" in text
    assert "7 steps or 70 s" in text
    nothing = ("--eviction", "none", "--admission", "none", "--ttl-steps", "0", "--ttl-seconds", "0")
    options = ctl(cluster, "alter", "altered", *nothing)["options"]
    assert options == ctl(cluster, "describe", "altered")["options"] and options["max_rows"] == "20"
    assert "eviction" not in options and "admission" not in options
    for bad, what in (
        ((), "nothing is to be altered"),
        (("--max-rows", "0"), "max_rows is 0: must be 1 to"),
        (("--eviction", "newest"), '--eviction: there is no "newest"'),
        (("--eviction", "step { half_life_steps: 5 }"), "half_life_steps is 5: must be 0"),
        (("--admission", "frequency"), "admission.threshold is 0"),
        (("--admission", "often"), '--admission: there is no "often"'),
    ):
        code, message = error_of(cluster, "alter", "altered", *bad)
        assert code == "INVALID_ARGUMENT" and what in message, message
    assert error_of(cluster, "alter", "none", "--max-rows", "5")[0] == "NOT_FOUND"
    for wrong in ("-1", "010", "x", "18446744073709551616"):
        assert run("alter", "altered", "--max-rows", wrong).returncode == 2
    ctl(cluster, "drop", "altered")


def test_health_asks_every_address_that_it_is_given(cluster: Cluster) -> None:
    addresses = [rank.address for rank in cluster.ranks]
    serving = [{"address": address, "status": "SERVING"} for address in addresses]
    assert ctl(cluster, "health", *addresses) == {"servers": serving}
    assert ctl(cluster, "health", "--wait", "5", *addresses) == {"servers": serving}
    assert ctl(cluster, "health") == {"servers": serving[-1:]}, "the one of --server"
    assert is_quiet("health", *addresses) == 0


def test_health_names_the_server_that_does_not_answer(cluster: Cluster) -> None:
    no_server = f"127.0.0.1:{free_ports(1)}"
    for wait in WAITS:
        code, message = error_of(cluster, "health", *wait, cluster.ranks[0].address, no_server)
        assert code == "UNAVAILABLE" and no_server in message
    assert is_quiet("health", no_server) == 1


def test_status_says_serving_and_the_ranks(cluster: Cluster) -> None:
    status = ctl(cluster, "status")
    assert status["status"] == "SERVING"
    assert [rank["address"] for rank in status["ranks"]] == [rank.address for rank in cluster.ranks]
    assert is_quiet("status", "--wait", "5", "--server", cluster.ranks[0].address) == 0


def test_text_is_for_people(cluster: Cluster) -> None:
    name = cluster.create(dim=8)
    address = cluster.ranks[0].address
    lines = run("tables", "--server", address).stdout.splitlines()
    assert lines[0].split()[:3] == ["NAME", "DIM", "SLOTS"]
    row = next(line for line in lines if line.startswith(name))
    assert row.index("sum") == lines[0].index("COMBINER")
    assert "CELLS" in run("describe", name, "--server", address).stdout
    for command in (["status"], ["describe", name], ["digest", name]):
        done = run(*command, "--server", address)
        assert done.returncode == 0 and done.stdout.endswith("\n"), done.stderr


def test_describe_counts_rounds_by_how_bags_travelled(cluster: Cluster) -> None:
    name, address = cluster.create(dim=8), cluster.ranks[0].address
    cluster.lookup(name, range(4), 4)
    rounds = cluster.describe(name).rounds
    counted = {"all_bags": rounds.all_bags, "owned_bags": rounds.owned_bags}
    assert sum(counted.values()) == (1 if len(cluster.ranks) > 1 else 0)
    assert ctl(cluster, "describe", name)["rounds"] == counted
    words = [f"{count} round{'' if count == 1 else 's'}" for count in counted.values()]
    line = "all bags travelled in {}, owned ones alone in {}\n".format(*words)
    assert (line in run("describe", name, "--server", address).stdout) == (len(cluster.ranks) > 1)


def test_stats_and_top_show_what_was_done(cluster: Cluster) -> None:
    name = cluster.create(dim=8)

    def calls(stats: Any) -> int:
        return int(sum(rank["lookups"]["calls"] for rank in stats["ranks"]))

    before = ctl(cluster, "stats")
    for _ in range(4):
        cluster.lookup(name, range(4), 4)
    wait_until(lambda: calls(ctl(cluster, "stats")) == calls(before) + 4, "the lookups are counted")
    after = ctl(cluster, "stats")
    assert [rank["rank"] for rank in after["ranks"]] == list(range(len(cluster.ranks)))
    stages = after["lookups"]["stages"]
    assert list(stages) == ["decode", "inbox", "round", "exchange", "journal", "encode", "send"]
    assert stages["round"]["mean_us"] > 0 and after["slowest_stage"] in stages
    assert stages["exchange"]["mean_us"] > 0 or len(cluster.ranks) == 1

    address = cluster.ranks[0].address
    top = run("top", "--interval", "0.1", "--count", "3", "--json", "--server", address)
    assert (top.returncode, top.stderr) == (0, "")
    intervals = [json.loads(line) for line in top.stdout.splitlines()]
    assert len(intervals) == 3
    assert all(interval["ranks"][0]["seconds"] > 0 for interval in intervals)
    assert calls(intervals[-1]) == 0
    text = run("top", "--interval", "0.1", "--count", "1", "--server", address).stdout
    assert text.split()[:2] == ["the", "last"] and "\x1b" not in text, "it is no terminal"
    assert "LOOKUPS/S" in text and "exchange" in text
    assert "slowest stage: " in run("stats", "--server", address).stdout


def test_top_goes_on_through_a_restart(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1)
    address = cluster.ranks[0].address
    command = [str(CTL), "top", "--interval", "0.1", "--json", "--server", address]
    lines: list[Any] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as top:
        try:
            assert top.stdout is not None

            def shows(condition: Callable[[Any], bool]) -> bool:
                lines.append(json.loads(top.stdout.readline()))  # type: ignore[union-attr]
                return condition(lines[-1])

            wait_until(lambda: shows(lambda line: "ranks" in line), "an interval")
            cluster.stop()
            wait_until(lambda: shows(lambda line: "error" in line), "an interval without an answer")
            assert lines[-1]["error"]["code"] in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
            start_cluster(1, listen=address)
            wait_until(lambda: shows(lambda line: "ranks" in line), "the new server")
            first = next(line["ranks"][0]["incarnation"] for line in lines if "ranks" in line)
            assert lines[-1]["ranks"][0]["incarnation"] != first
        finally:
            top.kill()


def test_exit_codes_tell_usage_from_refusal() -> None:
    no_server = "127.0.0.1:1"
    assert run("--help").returncode == 0
    assert run("create", "--help").returncode == 0
    wrong = ["", "frobnicate", "describe", "tables --timeout -1", "status --wait x"]
    wrong += [f"status --timeout {value}" for value in "0 -1 nan inf 1e300 1e-9 soon".split()]
    wrong += [f"top --interval {value}" for value in "0 nan 1e300".split()]
    wrong += [f"top --count {value}" for value in "-1 99999999999999999999 1.5".split()]
    for usage in wrong:
        assert run(*usage.split()).returncode == 2, usage
    for wait in WAITS:
        assert error_of(None, "status", *wait, address=no_server)[0] == "UNAVAILABLE"
    assert is_quiet("status", "--server", no_server) == 1
    assert "UNAVAILABLE" in run("tables", "--server", no_server, "--timeout", "0.3").stderr


def test_an_eviction_without_a_score_is_refused() -> None:
    ended = run("create", "ads", "--dim", "1", "--eviction", "")
    assert ended.returncode == 2 and ended.stderr.startswith("--eviction: needs a score"), ended


def test_rows_are_evicted(cluster: Cluster) -> None:
    with without_tables(cluster) as ps:
        timed = ["--ttl-steps", 100, "--ttl-seconds", 3600, "--max-rows", 10]
        ctl(cluster, "create", "ads", "--dim", 1, "--learning-rate", 1, *timed)
        ps.push("ads", range(9), None, np.ones((9, 1), np.float32))
        assert ctl(cluster, "evict", "ads", "--keep", 7) == {"evicted_rows": 2}
        assert ctl(cluster, "evict", "ads", "--expired") == {"evicted_rows": 0}
        assert ctl(cluster, "evict", "ads", "--below-score", 2) == {"evicted_rows": 7}
        described = ctl(cluster, "describe", "ads")
        assert described["evicted_rows"] == 9 and described["expired_rows"] == 0
        text = run("describe", "ads", "--server", cluster.ranks[0].address).stdout
        says = "rows expire 100 steps or 3,600 s after a push touched them; 0 rows expired, 9 rows evicted"
        assert says in text, text
        assert described["evicted_ages"] is None and "ages" not in described, "nobody has asked"
        ps.push("ads", [1, 2], None, np.ones((2, 1), np.float32))
        aged = ctl(cluster, "describe", "ads", "--ages")
        all_0 = dict.fromkeys(("p0", "p10", "p50", "p90", "p99", "p100"), 0)
        assert (aged["ages"], aged["counts"], aged["new_rows"]) == ({"rows": 2, **all_0}, None, 11)
        text = run("describe", "ads", "--ages", "--server", cluster.ranks[0].address).stdout
        assert "\nages of 2 rows, in steps: 0 % up to 0, 10 % up to 0, 50 % up to 0, 90 %" in text, text
        halves = ["--eviction", "lfu { to: 0.5 }"]
        ctl(cluster, "create", "few", "--dim", 1, "--learning-rate", 1, "--max-rows", 2, *halves)
        for keys in ([1], [2], [2], [2], [3]):
            ps.push("few", keys, None, np.ones((1, 1), np.float32))
        aged = ctl(cluster, "describe", "few", "--ages")
        assert aged["evicted_ages"] == {"rows": 2, **all_0, "p90": 3, "p99": 3, "p100": 3}
        assert aged["youngest_evicted_age"] == 0 and aged["counts"]["p100"] == 1
        text = run("describe", "few", "--server", cluster.ranks[0].address).stdout
        assert "ages of 2 rows that a full table evicted, in steps: 0 % up to" in text, text
        assert "the last eviction's rows were at least 0 steps old" in text, text
        ctl(cluster, "create", "plain", "--dim", 1, "--learning-rate", 1)
        text = run("describe", "plain", "--ages", "--server", cluster.ranks[0].address).stdout
        assert "rows have no ages: the table keeps no scores" in text, text
    for which in ("", "--keep 1 --expired", "--keep -1", "--keep 010", f"--keep {2**64}"):
        assert run("evict", "ads", *which.split()).returncode == 2, which


def test_keys_earn_their_rows(cluster: Cluster) -> None:
    with without_tables(cluster) as ps:
        earned = "frequency { threshold: 2 } absent: ABSENT_ROWS_ZEROS"
        ctl(cluster, "create", "ads", "--dim", 1, "--learning-rate", 1, "--admission", earned)
        assert ps.describe_table("ads").options.admission == slotwise.Frequency(2, max_keys=0, absent="zeros")
        ps.push("ads", [1, 1, 2], None, np.ones((3, 1), np.float32))
        described = ctl(cluster, "describe", "ads")
        assert (described["rows"], described["refused_keys"], described["candidates"]) == (1, 1, 1)
        text = run("describe", "ads", "--server", cluster.ranks[0].address).stdout
        says = "admits keys that occurred 2 times, of up to 1,073,741,824 counted keys, and looks others"
        assert f"{says} up as zeros; 1 occurrence refused, 1 key counted" in text, text
        filtered = "frequency { threshold: 2 counter: COUNTER_BLOOM counter_mib: 3 }"
        ctl(cluster, "alter", "ads", "--admission", filtered)
        ps.push("ads", [7], None, np.ones((1, 1), np.float32))
        described = ctl(cluster, "describe", "ads")
        assert (described["candidates"], described["counter_blocks"]) == (0, 1)
        assert described["options"]["admission"]["frequency"]["counter"] == "COUNTER_BLOOM"
        text = run("describe", "ads", "--server", cluster.ranks[0].address).stdout
        says = "admits keys that occurred 2 times, by a Bloom counter of 3 MiB; 2 occurrences refused"
        assert f"{says}, 1 of 49,152 blocks used" in text, text
    ended = run("create", "ads", "--dim", "1", "--admission", "often")
    says = '--admission: there is no "often": must be frequency or probability'
    assert ended.returncode != 0 and says in ended.stderr, ended


def test_rows_are_of_sixteen_bits(cluster: Cluster) -> None:
    with without_tables(cluster) as ps:
        for flags, rounding, says in (
            (("--row-dtype", "bfloat16"), "stochastic", "by chance"),
            (("--row-dtype", "bfloat16", "--rounding", "nearest"), "nearest", "to nearest"),
        ):
            ctl(cluster, "create", "ads", "--dim", 2, "--learning-rate", 1, *flags)
            options = ps.describe_table("ads").options
            assert (options.row_dtype, options.rounding) == ("bfloat16", rounding)
            text = run("describe", "ads", "--server", cluster.ranks[0].address).stdout
            assert f"ads: dim 2, slots 1, sum, sgd, rows of bfloat16, rounded {says}\n" in text, text
            listed = run("tables", "--server", cluster.ranks[0].address).stdout.splitlines()
            assert listed[0].endswith("  ROWS OF   EVICTION") and listed[1].endswith("  bfloat16  -"), listed
            ps.drop_table("ads")
    for flag, says in (
        ("--row-dtype=half", '--row-dtype: there is no "half": must be float32, float16 or bfloat16'),
        ("--row-dtype=FLOAT16", '--row-dtype: there is no "FLOAT16": must be float32, float16 or bfloat16'),
        ("--row-dtype=unspecified", '"unspecified": must be float32, float16 or bfloat16'),
        ("--rounding=up", '--rounding: there is no "up": must be stochastic or nearest'),
        ("--rounding=nearest", "rounding is nearest: must be left out in a table whose row_dtype is float32"),
    ):
        ended = run("create", "ads", "--dim", "1", "--learning-rate", "1", flag)
        assert ended.returncode != 0 and says in ended.stderr, ended


def test_an_import_says_which_scores_it_left_out_and_what_went(cluster: Cluster, tmp_path: Path) -> None:
    with without_tables(cluster) as ps:
        counted, step = slotwise.Eviction("lfu"), slotwise.Eviction(to=0.5)
        ps.create_table("lfu", dim=1, optimizer=slotwise.AdaGrad(1.0), eviction=counted)
        ps.create_table("step", dim=1, optimizer=slotwise.AdaGrad(1.0), eviction=step)
        ps.create_table("small", dim=1, optimizer=slotwise.AdaGrad(1.0), eviction=step, max_rows=8)
        ps.push("lfu", [1, 1, 2], None, np.ones((3, 1), np.float32))
        ps.push("small", range(10, 17), None, np.ones((7, 1), np.float32))
        ctl(cluster, "export", "lfu", tmp_path / "rows")
        says = "its rows score by step, and the saved scores, by lfu, were left out"
        assert ctl(cluster, "import", "step", tmp_path / "rows")["warning"] == f"table step: {says}"
        found: dict[int, tuple[float, int]] = {}
        for rows in ps.export_rows("step", with_state=True):
            assert rows.state is not None
            found.update(zip(rows.keys.tolist(), zip(rows.state[:, 0].tolist(), rows.scores.tolist())))
        assert found == {1: (4.0, 2), 2: (1.0, 2)}, "AdaGrad's sums, and the scores of the next step"
        warning = ctl(cluster, "import", "small", tmp_path / "rows")["warning"]
        assert warning == f"table small: {says}; table small evicted 5 row(s) meanwhile"
        assert "warning" not in ctl(cluster, "import", "lfu", tmp_path / "rows")


def without_tables(cluster: Cluster) -> slotwise.Client:
    """A client of a server whose tables are gone."""
    for table in cluster.tables():
        cluster.drop(table.name)
    return cluster.connect()


@pytest.mark.parametrize("optimizer", [slotwise.SGD(lr=0.5), slotwise.Adam(lr=0.1)], ids=["sgd", "adam"])
def test_rows_saved_and_loaded_are_the_same(
    cluster: Cluster, tmp_path: Path, optimizer: slotwise.SGD | slotwise.Adam
) -> None:
    print(f"seed {SEED}")
    random = np.random.default_rng(SEED)
    with without_tables(cluster) as ps:
        ps.create_table("saved", dim=24, optimizer=optimizer)
        keys = random.integers(0, 2**64, 20_000, dtype=np.uint64)
        ps.push("saved", keys, None, random.normal(size=(20_000, 24)).astype(np.float32))
        folder = tmp_path / "rows"
        rows = ctl(cluster, "export", "saved", folder)["rows"]
        assert rows == len(np.unique(keys))
        files = {name: np.load(folder / f"{name}.npy") for name in ("keys", "values", "state")}
        assert files["keys"].dtype == np.uint64 and files["values"].shape == (rows, 24)
        np.testing.assert_array_equal(np.sort(files["keys"]), np.unique(keys))
        np.testing.assert_array_equal(files["values"], ps.lookup("saved", files["keys"], train=False))

        for _ in range(2):
            assert ctl(cluster, "import", "loaded", folder) == {"rows": rows}, "and no warning"
        assert ps.digest("loaded") == ps.digest("saved")  # rows, state and steps
        ps.drop_table("loaded")
        assert slotwise.rows.load_npy(ps, "loaded", folder) == rows
        assert ps.digest("loaded").digest == ps.digest("saved").digest
        slotwise.rows.save_npy(ps, "saved", tmp_path / "by_python")
        ps.drop_table("loaded")
        assert ctl(cluster, "import", "loaded", tmp_path / "by_python")["rows"] == rows
        assert ps.digest("loaded").digest == ps.digest("saved").digest
        assert error_of(cluster, "export", "saved", tmp_path)[0] == "ALREADY_EXISTS"
        assert error_of(cluster, "import", "loaded", tmp_path)[0] == "NOT_FOUND"


def test_a_loaded_table_goes_on_where_the_saved_one_was(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    with without_tables(cluster) as ps:
        falls = slotwise.Schedule(decay_steps=10)
        ps.create_table("saved", dim=4, optimizer=slotwise.Momentum(0.5, schedule=falls))
        for _ in range(3):
            ps.push("saved", [1, 2], None, ONES)
        ctl(cluster, "set-learning-rate", "saved", "0.3")
        ps.erase("saved", [1, 2])
        ctl(cluster, "export", "saved", folder, "--with-state")  # as scripts say that were written before
        assert ctl(cluster, "import", "loaded", folder)["rows"] == 0
        saved, loaded = (ctl(cluster, "describe", name) for name in ("saved", "loaded"))
        assert loaded["steps"] == saved["steps"] == 3
        assert loaded["base_learning_rate"] == saved["base_learning_rate"] == 0.3
        assert loaded["learning_rate"] == saved["learning_rate"]
        slotwise.rows.load_npy(ps, "by_python", folder)
        by_python = ps.describe_table("by_python")
        assert (by_python.steps, by_python.base_learning_rate) == (3, pytest.approx(0.3))

        ps.create_table("other", dim=4, optimizer=slotwise.AdaGrad(0.5))  # with as much state
        code, message = error_of(cluster, "import", "other", folder)
        assert code == "INVALID_ARGUMENT" and 'a table of momentum, and "other" has adagrad' in message
        assert ps.describe_table("other").steps == 0
        assert ctl(cluster, "import", "other", folder, "--without-state")["rows"] == 0
        other = ps.describe_table("other")
        assert (other.steps, other.base_learning_rate) == (0, 0.5)

        slotwise.rows.save_npy(ps, "saved", tmp_path / "by_python")
        ps.drop_table("loaded")
        ctl(cluster, "import", "loaded", tmp_path / "by_python")
        loaded = ctl(cluster, "describe", "loaded")
        assert (loaded["steps"], loaded["base_learning_rate"]) == (3, 0.3)


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_an_import_without_state_says_what_starts_anew(cluster: Cluster, tmp_path: Path, kind: str) -> None:
    address = cluster.ranks[0].address
    optimizer: Optimizer = slotwise.Adam(lr=0.1) if kind == "adam" else slotwise.SGD(lr=0.1)
    with without_tables(cluster) as ps:
        ps.create_table("saved", dim=4, optimizer=optimizer)
        for _ in range(3):
            ps.push("saved", [1, 2], None, ONES)
        ctl(cluster, "export", "saved", tmp_path / "bare", "--without-state")
        ctl(cluster, "export", "saved", tmp_path / "whole")
        assert not (tmp_path / "bare" / "state.npy").exists()

        def warning(table: str, folder: str, *flags: str) -> str:
            said = str(ctl(cluster, "import", table, tmp_path / folder, *flags).get("warning", ""))
            again = run("--server", address, "import", table, tmp_path / folder, *flags)
            assert again.stderr == (f"slotwise-ctl: warning: {said}\n" if said else "")
            return said

        state = "the state of adam starts anew in 2 row(s); " if kind == "adam" else ""
        steps = "the count of steps stays 0, and was 3 in the saved table: "
        assert warning("bare", "bare") == f"table bare: {state}{steps}{tmp_path}/bare/state.npy is not there"
        told = warning("told", "whole", "--without-state")
        assert told == f"table told: {state}{steps}the import was to take no state (--without-state)"
        assert warning("whole", "whole") == ""
        assert ps.digest("whole") == ps.digest("saved") != ps.digest("told")
        assert ps.digest("told").steps == ps.digest("bare").steps == 0
        # A table that has as many steps itself loses none of them.
        ps.create_table("ahead", dim=4, optimizer=optimizer)
        for _ in range(5):
            ps.push("ahead", [1, 2], None, ONES)
        ahead = warning("ahead", "bare")
        assert ahead.startswith("table ahead: the state of adam" if kind == "adam" else "")
        assert "the count of steps" not in ahead and bool(ahead) == (kind == "adam")
    flags = ["--with-state", "--without-state"]
    both = run("--server", address, "export", "saved", tmp_path / "both", *flags)
    assert (both.returncode, (tmp_path / "both").exists()) == (2, False)


def test_checkpoints(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(2, f'durability {{ folder: "{tmp_path}" }}')

    def of(*arguments: str) -> Any:
        return ctl(cluster, "checkpoint", *arguments)

    def text(*arguments: str) -> str:
        return run("--server", cluster.ranks[0].address, "checkpoint", *arguments).stdout

    assert of("list") == {"checkpoints": []}
    ctl(cluster, "create", "saved", "--dim", "4", "--learning-rate", "0.5")
    made = of("save")
    id = made["id"]
    assert not made["delta"] and made["rows"] == 0
    (listed,) = of("list")["checkpoints"]
    assert listed["usable"] and listed["tables"] == [{"name": "saved", "rows": 0}]
    assert all(listed[name] == made[name] for name in ("id", "round", "rows", "bytes"))
    shown = of("show", id)
    assert shown["chain"] == [id] and shown["manifest"]["tables"][0]["options"]["name"] == "saved"
    assert shown["folder"] == str(tmp_path / "checkpoints" / id)
    verified = of("verify", id)
    assert verified["chain"] == [id] and verified["bytes"] == made["bytes"]
    assert f"{id}  base" in text("list") and text("list").rstrip().endswith("yes     -")
    assert "saved" in text("show", id) and f"restored from {id}" in text("show", id)
    assert f"{id} is whole" in text("verify", id)

    assert of("pin", id) == {"id": id, "pinned": True}
    assert text("list").rstrip().endswith("yes     yes") and "stays until" in text("show", id)
    assert "stays until it is released" in text("pin", id)
    assert of("release", id) == {"id": id, "pinned": False}
    assert not of("show", id)["pinned"]
    none = error_of(cluster, "checkpoint", "pin", "no")
    assert none == ("NOT_FOUND", 'there is no checkpoint "no"')

    ctl(cluster, "create", "other", "--dim", "4", "--learning-rate", "0.5")
    assert text("load", id, "--table", "saved").startswith(f"saved of {id} is loaded, and saved as ")
    assert len(cluster.tables()) == 2
    assert text("list").splitlines()[2].endswith("by a load")
    assert "another checkpoint is loaded" in text("show", id)
    assert "needs a --row-dtype" in error_of(cluster, "checkpoint", "load", id, "--rounding", "nearest")[1]
    assert "saved" in text("load", id, "--table", "saved", "--row-dtype", "float16", "--rounding", "nearest")
    kept = ctl(cluster, "describe", "saved")["options"]
    assert (kept["row_dtype"], kept["rounding"]) == ("DATA_TYPE_FLOAT16", "ROUNDING_NEAREST")
    none = error_of(cluster, "checkpoint", "load", id, "--table", "no", "--table", "saved")
    assert none == ("NOT_FOUND", f'checkpoint {id} has no table "no"')
    assert of("load", id)["rows"] == 0
    assert len(cluster.tables()) == 1

    broken = next((tmp_path / "checkpoints" / id).glob("*/rank-0.rows.npy"))
    broken.write_bytes(b"")
    assert f"{id} cannot be used: {broken} has 0 bytes" in text("list")
    code, message = error_of(cluster, "checkpoint", "verify", id)
    assert code == "DATA_LOSS" and str(broken) in message
    assert error_of(cluster, "checkpoint", "show", "no")[0] == "NOT_FOUND"
    assert run("checkpoint", "save", "--value-type", "int8").returncode == 2
    assert run("checkpoint").returncode == 2


def test_a_chain_is_compacted(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(2, f'durability {{ folder: "{tmp_path}" }}')

    def of(*arguments: str) -> Any:
        return ctl(cluster, "checkpoint", *arguments)

    with cluster.connect(1) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.Adam(lr=0.1))
        keys = np.arange(500, dtype=np.uint64)
        base = ""
        for step in range(3):
            some = keys[: 500 >> step]
            ps.push("ads", some, None, np.ones((len(some), 4), np.float32))
            ps.erase("ads", keys[step : step + 1])
            made = of("save", *(["--delta"] if base else []))
            base = base or made["id"]
        folded = of("compact", made["id"])
        assert (folded["folds"], folded["parent"], folded["rows"]) == (made["id"], "", 499)
        assert folded["usable"] and folded["round"] == made["round"]
        assert of("verify", folded["id"])["chain"] == [folded["id"]]
        folders = [tmp_path / "checkpoints" / id for id in (made["id"], folded["id"])]
        of_chain, of_base = (checkpoint_files.open(folder)["ads"].read() for folder in folders)
        for name in ("keys", "values", "state"):
            np.testing.assert_array_equal(getattr(of_chain, name), getattr(of_base, name))

        code, message = error_of(cluster, "checkpoint", "compact", made["id"])
        assert code == "ALREADY_EXISTS" and folded["id"] in message
        a_base = error_of(cluster, "checkpoint", "compact", base)
        assert a_base == ("FAILED_PRECONDITION", f"checkpoint {base} is a base already")
        for none in ("no", "../x"):
            assert error_of(cluster, "checkpoint", "compact", none)[0] == "NOT_FOUND"
        assert not list((tmp_path / "checkpoints").glob(".*"))
        # A delta behind it is restored from the new base.
        ps.push("ads", keys[:3], None, np.ones((3, 4), np.float32))
        last = of("save", "--delta")
        assert of("show", last["id"])["chain"] == [folded["id"], last["id"]]
        assert of("verify", last["id"])["files"] > 0
