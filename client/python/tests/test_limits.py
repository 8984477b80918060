"""The client keeps to the server's limits, and says what was done when something does not fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from fake_server import FakeServer, all_of, refuse
from real_server import RealServer, empty_client

import slotwise
import slotwise.rows

SMALL = "limits { max_round_mib: 1 max_message_mib: 4 max_queue_mib: 16 }"
ROUND = 1 << 20


@pytest.fixture(scope="module", params=[1, 2])
def small(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    """A server whose rounds are of 1 MiB."""
    server = RealServer(request.param, SMALL)
    yield server
    assert server.stop() == 0


@pytest.fixture
def ps(small: RealServer) -> Iterator[slotwise.Client]:
    with empty_client(small) as client:
        yield client


def test_the_server_tells_its_limits(ps: slotwise.Client) -> None:
    topology = ps.topology()
    assert (topology.max_message_bytes, topology.max_round_bytes) == (4 << 20, ROUND)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_lookup_of_many_rounds_is_cut(ps: slotwise.Client, weighted: bool) -> None:
    ps.create_table("ads", dim=16, slots=2, optimizer=slotwise.SGD(lr=0.5))
    keys = np.arange(120_000, dtype=np.uint64) * 7
    offsets = np.minimum(np.arange(40_001) * 5, len(keys))  # bags of 5 keys, then empty ones
    weights = np.ones(len(keys), np.float32) if weighted else None
    values = ps.lookup("ads", keys, offsets, weights=weights)
    assert values.shape == (20_000, 32)
    few = ps.lookup("ads", keys[:1000], np.arange(201) * 5, train=False)
    np.testing.assert_array_equal(values[:100], few)
    assert ps.describe_table("ads").rows == len(keys)


def test_lookups_of_several_tables_are_cut(ps: slotwise.Client) -> None:
    ps.create_table("wide", dim=64, optimizer=slotwise.SGD(lr=0.5))
    ps.create_table("thin", dim=1, optimizer=slotwise.SGD(lr=0.5))
    keys = np.arange(30_000)
    found = ps.lookup_many({"wide": (keys,), "thin": (np.arange(300_000),)})
    np.testing.assert_array_equal(found["wide"][:9], ps.lookup("wide", keys[:9], train=False))
    assert ps.describe_table("thin").rows == 300_000


@pytest.mark.parametrize(
    ("slots", "keys", "too_many"),
    [(255, (ROUND - 4 - 255 * 4 * 1023) // 8, ROUND + 8), (1, ROUND // 32, ROUND + 32)],
    ids=["of bags", "of keys"],
)
def test_a_part_may_be_as_large_as_a_round_and_no_larger(
    ps: slotwise.Client, slots: int, keys: int, too_many: int
) -> None:
    """The client reckons as the server does: 8 a key, 4 and 4 * dim a bag, and 4 more; or 32 a key."""
    ps.create_table("ads", dim=1022, slots=slots, optimizer=slotwise.SGD(lr=0.5))
    ps.lookup("ads", np.arange(keys), [0] + [keys] * slots, train=False)
    with pytest.raises(slotwise.ResourceExhausted, match=f"sample 0 takes {too_many} bytes in a round"):
        ps.lookup("ads", np.arange(keys + 1), [0] + [keys + 1] * slots)


def test_rows_by_key_are_cut(ps: slotwise.Client) -> None:
    ps.create_table("ads", dim=8, optimizer=slotwise.Adam(lr=0.5))
    keys = np.arange(300_000, dtype=np.uint64)
    values = np.random.default_rng(3).normal(size=(len(keys), 8)).astype(np.float32)
    state = np.ones((len(keys), 16), np.float32)
    assert ps.import_rows("ads", keys, values, state, table_steps=3) == len(keys)
    assert ps.import_rows("ads", keys[:100_000], values[:100_000]) == 100_000
    np.testing.assert_array_equal(ps.lookup("ads", keys[-9:], train=False), values[-9:])
    assert sum(len(rows.keys) for rows in ps.export_rows("ads", keys)) == len(keys)
    assert ps.erase("ads", keys) == len(keys)


def test_what_is_larger_than_a_round_is_refused_by_the_limits_name(ps: slotwise.Client) -> None:
    ps.create_table("ads", dim=16, optimizer=slotwise.SGD(lr=0.5))
    ps.lookup("ads", np.arange(20_000))
    before = ps.digest("ads")
    gradients = np.ones((20_000, 16), np.float32)
    said = r"the step of table ads takes \d+ bytes in a round, more than .* of limits.max_round_mib"
    with pytest.raises(slotwise.ResourceExhausted, match=said):
        ps.push("ads", np.arange(20_000), None, gradients)
    assert ps.digest("ads") == before
    assert ps.push("ads", np.arange(10_000), None, gradients[:10_000]) == 1
    ps.create_table("wide", dim=4096, slots=65, optimizer=slotwise.SGD(lr=0.5))
    said = r"sample 0 takes \d+ bytes in a round, .* of limits.max_round_mib$"
    with pytest.raises(slotwise.ResourceExhausted, match=said):
        ps.lookup("wide", np.arange(130))
    assert ps.describe_table("wide").rows == 0
    ps.create_table("shared", dim=1, optimizer=slotwise.SGD(lr=0.5))
    step = slotwise.Session(5, trainer=1, trainers=2).next()  # of two parts, as all have agreed
    with pytest.raises(slotwise.ResourceExhausted, match="limits.max_round_mib"):
        ps.push("shared", np.arange(90_000), None, np.ones((90_000, 1), np.float32), step=step)


def test_a_full_tables_refusal_says_how_much_of_a_cut_lookup_was_answered(ps: slotwise.Client) -> None:
    ps.create_table("ads", dim=16, max_rows=30_000, optimizer=slotwise.SGD(lr=0.5))
    ps.create_table("small", dim=1, max_rows=100, optimizer=slotwise.SGD(lr=0.5))
    with pytest.raises(slotwise.ResourceExhausted, match="is full") as refused:
        ps.lookup("small", np.arange(101))
    assert "answered" not in refused.value.message, "one request, which has changed nothing"
    assert ps.describe_table("small").rows == 0
    with pytest.raises(slotwise.ResourceExhausted, match="is full") as refused:
        ps.lookup("ads", np.arange(200_000))
    said = re.search(
        r"cut the lookup into (\d+) parts, of which (\d+) \((\d+) of 200000 samples\) were answered",
        refused.value.message,
    )
    assert said, refused.value.message
    parts, answered, samples = map(int, said.groups())
    assert answered < parts and (samples > 0) == (answered > 0)
    rows = ps.describe_table("ads").rows
    assert samples <= rows <= 30_000
    # The rows that came hold initial values, as if they had come alone.
    here = ps.export_rows("ads")
    found = {int(key): row for rows in here for key, row in zip(rows.keys, rows.values, strict=True)}
    ps.drop_table("ads")
    ps.create_table("ads", dim=16, optimizer=slotwise.SGD(lr=0.5))
    keys = np.array(sorted(found)[:10_000], dtype=np.uint64)
    np.testing.assert_array_equal(ps.lookup("ads", keys), [found[int(key)] for key in keys])


def test_a_full_tables_refusal_says_how_many_rows_of_an_import_were_written(ps: slotwise.Client) -> None:
    ps.create_table("ads", dim=16, max_rows=150_000, optimizer=slotwise.SGD(lr=0.5))
    keys, values = np.arange(400_000), np.ones((400_000, 16), np.float32)
    with pytest.raises(slotwise.ResourceExhausted, match="of the 400000 rows, which took several") as refused:
        ps.import_rows("ads", keys, values)
    said = re.search(r"messages, (\d+) were written before", refused.value.message)
    assert said and 0 < int(said[1]) <= ps.describe_table("ads").rows <= 150_000
    ps.drop_table("ads")
    ps.create_table("ads", dim=16, max_rows=10, optimizer=slotwise.SGD(lr=0.5))
    with pytest.raises(slotwise.ResourceExhausted) as refused:
        ps.import_rows("ads", keys[:11], values[:11])
    assert "messages" not in refused.value.message and ps.describe_table("ads").rows == 0


def test_a_load_that_does_not_fit_says_how_many_rows_were_written(
    ps: slotwise.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slotwise.rows, "_CHUNK_BYTES", 1000 * (8 + 4))
    ps.create_table("ads", dim=1, optimizer=slotwise.SGD(lr=0.5))
    ps.lookup("ads", np.arange(5000))
    slotwise.rows.save_npy(ps, "ads", tmp_path / "ads")
    ps.create_table("small", dim=1, max_rows=3500, optimizer=slotwise.SGD(lr=0.5))
    with pytest.raises(slotwise.ResourceExhausted, match="3000 earlier rows of .*/ads were written before$"):
        slotwise.rows.load_npy(ps, "small", tmp_path / "ads")
    assert ps.describe_table("small").rows == 3000


def test_what_a_busy_server_says_of_time_reaches_who_loads_a_file(
    fake: FakeServer, fake_ps: slotwise.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slotwise.rows, "_CHUNK_BYTES", 10 * (8 + 8))
    fake_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(lr=0.5))
    fake_ps.lookup("ads", np.arange(30))
    slotwise.rows.save_npy(fake_ps, "ads", tmp_path / "ads")
    hour, exhausted = 3_600_000, grpc.StatusCode.RESOURCE_EXHAUSTED
    fake.before = refuse(
        "Import", exhausted, retry_after_ms=hour, of=lambda *_: len(fake.requests("Import")) > 1
    )
    with pytest.raises(slotwise.ResourceExhausted, match="10 earlier rows of .* were written") as refused:
        slotwise.rows.load_npy(fake_ps, "ads", tmp_path / "ads")
    assert refused.value.retry_after == hour / 1000


def test_a_refused_part_of_several_tables_says_so(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    for table in ("ads", "words"):
        fake_ps.create_table(table, dim=2, optimizer=slotwise.SGD(lr=0.5))

    exhausted, full = grpc.StatusCode.RESOURCE_EXHAUSTED, "the table is full"
    fake.before = all_of(refuse("Lookup", exhausted, full), refuse("LookupMany", exhausted, full))
    with pytest.raises(slotwise.ResourceExhausted, match="keys of the call's other tables may have got"):
        fake_ps.lookup_many({"ads": ([1],), "words": ([2],)})
    with pytest.raises(slotwise.ResourceExhausted, match="the table is full$"):
        fake_ps.lookup("ads", [1])
    with pytest.raises(slotwise.ResourceExhausted, match="the table is full$"):
        fake_ps.lookup("ads", np.arange(100_000), train=False)  # cut too, and inserts nothing
