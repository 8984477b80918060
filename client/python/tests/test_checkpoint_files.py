"""Checkpoints' folders without a server: rows, Parquet, torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from real_server import all_rows, serving

import slotwise
from slotwise import checkpoint_command, checkpoint_files, checkpoint_manifest

_OPTIMIZERS = [
    slotwise.SGD(lr=0.5),
    slotwise.Momentum(lr=0.5, momentum=0.8),
    slotwise.Nesterov(lr=0.5, momentum=0.7),
    slotwise.AdaGrad(lr=0.5, epsilon=1e-3, initial_accumulator=0.25),
    slotwise.RowWiseAdaGrad(lr=0.5, epsilon=1e-3),
    slotwise.RMSProp(lr=0.5, beta=0.75, weight_decay=0.125),
    slotwise.Adam(lr=0.5, beta1=0.5, beta2=0.75, corrected_epsilon=True),
    slotwise.FTRL(lr=0.5, lambda1=0.125, beta=2.0),
]
_INITIALIZERS = [slotwise.Uniform(-1, 1), slotwise.Normal(1, 0.5), slotwise.Constant(0.25)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A server with a table of each optimizer, and a chain of a base and two deltas of them."""
    data = tmp_path_factory.mktemp("data")
    with serving(data=data) as ps:
        generator = np.random.default_rng(7)
        names = []
        for number, optimizer in enumerate(_OPTIMIZERS):
            name = type(optimizer).__name__.replace("FTRL", "of/FTRL")
            names.append(name)
            ps.create_table(
                name, dim=3, optimizer=optimizer, seed=number, initializer=_INITIALIZERS[number % 3]
            )
        ids = []
        for _ in range(3):
            for name in names:
                keys = generator.integers(0, 60, 40, dtype=np.uint64)
                ps.push(name, keys, None, ps.lookup(name, keys))
                ps.erase(name, keys[:3])
            ids.append(ps.save(delta=bool(ids)).id)
        folders = [data / "checkpoints" / id for id in ids]
        yield SimpleNamespace(ps=ps, names=names, folders=folders, last=folders[-1])


def test_a_chain_has_the_servers_rows(saved: SimpleNamespace) -> None:
    files = checkpoint_files.open(saved.last)
    assert sorted(files) == sorted(saved.names) and len(files) == len(saved.names)
    assert files.chain == tuple(saved.folders)
    for name, table in files.items():
        theirs, ours = all_rows(saved.ps, name, with_state=True), table.read()
        np.testing.assert_array_equal(ours.keys, theirs.keys)
        np.testing.assert_array_equal(ours.values, theirs.values)
        np.testing.assert_array_equal(ours.state, theirs.state)
        assert table.read(with_state=False).state is None
        info = saved.ps.describe_table(name)
        assert table.info.options == info.options
        assert (table.info.steps, table.info.lineage) == (info.steps, info.lineage)
        assert table.state_size == ours.state.shape[1]
    older = checkpoint_files.open(saved.folders[0])
    assert len(older.chain) == 1
    assert older["SGD"].info.steps == 1 and older["SGD"].read().state.shape[1] == 0


def test_checksums_are_compared_if_there_is_a_hasher(
    saved: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    xxhash = pytest.importorskip("xxhash")
    table = checkpoint_files.open(saved.last, verify=True)["Adam"]
    assert len(table.read().keys)
    monkeypatch.setattr(xxhash, "xxh3_64_hexdigest", lambda _: "0" * 16)
    with pytest.raises(slotwise.DataLoss, match="manifest.json is damaged"):
        checkpoint_files.open(saved.last)


@pytest.fixture
def copied(saved: SimpleNamespace, tmp_path: Path) -> Path:
    """A copy of the chain, to be damaged; its last folder."""
    for folder in saved.folders:
        shutil.copytree(folder, tmp_path / folder.name)
    return tmp_path / saved.last.name


def test_a_gap_and_foreign_links_are_refused(saved: SimpleNamespace, copied: Path) -> None:
    base, middle = (copied.parent / folder.name for folder in saved.folders[:2])
    manifest = (middle / "manifest.json").read_bytes()
    (middle / "manifest.json").write_bytes(manifest.replace(b'{"checksum": "', b'{"checksum": "0', 1))
    with pytest.raises(slotwise.DataLoss, match="manifest.json is damaged"):
        checkpoint_files.open(copied)
    swapped = b"1" if manifest[14:15] == b"0" else b"0"  # another digit
    (middle / "manifest.json").write_bytes(manifest[:14] + swapped + manifest[15:])
    with pytest.raises(slotwise.DataLoss, match="foreign link"):
        checkpoint_files.open(copied, verify=False)
    (middle / "manifest.json").unlink()
    with pytest.raises(slotwise.DataLoss, match=f"gap: there is no {middle}"):
        checkpoint_files.open(copied)
    with pytest.raises(slotwise.NotFound, match="is no checkpoint"):
        checkpoint_files.open(middle)
    assert len(checkpoint_files.open(base)) == len(_OPTIMIZERS)


def test_a_base_that_folds_a_chain_stands_for_it(saved: SimpleNamespace, copied: Path) -> None:
    base, middle = (copied.parent / folder.name for folder in saved.folders[:2])
    parent = checkpoint_files.open(copied).manifest["parent"]
    folded = base.rename(copied.parent / "folded")
    says = json.loads((folded / "manifest.json").read_text())
    rest = json.dumps(says | {"id": "folded", "folds": parent})[1:]  # begins with the checksum
    first_line, others = rest.split(", ", 1)
    (folded / "manifest.json").write_text("{" + first_line + ",\n" + others)
    shutil.rmtree(middle)
    assert checkpoint_files.open(copied, verify=False).chain == (folded, copied)


def test_files_that_do_not_fit_are_refused(saved: SimpleNamespace, copied: Path) -> None:
    path = next(copied.glob("table-*/rank-0.keys.npy"))
    number = int(path.parent.name.removeprefix("table-"))
    whole = path.read_bytes()
    for broken, said in ((whole + b"1", " bytes, not "), (whole[:-1], " bytes, not "), (None, " is missing")):
        path.unlink() if broken is None else path.write_bytes(broken)
        with pytest.raises(slotwise.DataLoss, match=f"{path}.*{said}"):
            checkpoint_files.open(copied)[saved.names[number - 1]].read()
    path.write_bytes(b"x" + whole[1:])
    with pytest.raises(slotwise.DataLoss, match=str(path)):
        checkpoint_files.open(copied)[saved.names[number - 1]].read()


def test_what_no_server_writes_is_refused(saved: SimpleNamespace, copied: Path) -> None:
    """Whatever checksums say: a program that writes the files can write those, too."""
    path = next(copied.glob("table-*/rank-0.rows.npy"))
    table = saved.names[int(path.parent.name.removeprefix("table-")) - 1]
    whole = path.read_bytes()
    for other, said in (
        (whole.replace(b"False", b"True ", 1), f"{path}.*in Fortran's order"),
        (whole[:128] + b"\0\0\xc0\x7f" + whole[132:], f"{path.parent} has a row that is not finite"),
        (whole[:128] + b"\0\0\x80\xff" + whole[132:], f"{path.parent} has a row that is not finite"),
    ):
        path.write_bytes(other)
        with pytest.raises(slotwise.DataLoss, match=said):
            checkpoint_files.open(copied, verify=False)[table].read()
    path.write_bytes(whole)
    manifest = copied / "manifest.json"
    text = manifest.read_text()
    round_ = json.loads(text)["round"]
    manifest.write_text(text.replace(f'"round": "{round_}",', f'"round": "{1 << 63}",'))
    with pytest.raises(slotwise.DataLoss, match=f"is of round {1 << 63}, which is not its id's"):
        checkpoint_files.open(copied, verify=False)


def test_parquet_is_what_load_parquet_reads(saved: SimpleNamespace, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet")
    written = checkpoint_files.export_parquet(saved.last, tmp_path / "out")
    assert written == {name: saved.ps.digest(name).rows for name in saved.names}
    ps = saved.ps
    for name in ("Adam", "SGD"):
        copy = f"{name}-copy"
        slotwise.rows.load_parquet(ps, copy, tmp_path / "out" / f"{name}.parquet")
        assert ps.digest(copy) == ps.digest(name)
        ps.drop_table(copy)


def test_torch_modules_get_a_tables_rows_and_give_them_back(
    saved: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    torch = pytest.importorskip("torch")
    theirs = all_rows(saved.ps, "AdaGrad", with_state=True)
    places = {int(key): i for i, key in enumerate(theirs.keys[::-1])}
    weights = checkpoint_files.to_state_dict(saved.last, {"AdaGrad": places, "SGD": 60}, absent=-1.0)
    sizes = {"AdaGrad": len(places), "SGD": 60}
    model = torch.nn.ModuleDict({name: torch.nn.EmbeddingBag(size, 3) for name, size in sizes.items()})
    model.load_state_dict(weights)
    np.testing.assert_array_equal(model["AdaGrad"].weight.detach().numpy(), theirs.values[::-1])
    sgd = all_rows(saved.ps, "SGD", with_state=True)
    expected = np.full((60, 3), -1, np.float32)
    expected[sgd.keys.astype(np.int64)] = sgd.values
    np.testing.assert_array_equal(model["SGD"].weight.detach().numpy(), expected)

    ps = saved.ps
    ps.create_table("AdaGrad-back", dim=3, optimizer=slotwise.SGD(lr=1.0))
    state = {"AdaGrad-back.weight": weights["AdaGrad.weight"]}
    assert checkpoint_files.from_state_dict(ps, state, {"AdaGrad-back": places}) == {
        "AdaGrad-back": len(places)
    }
    back = all_rows(ps, "AdaGrad-back")
    np.testing.assert_array_equal(back.keys, theirs.keys)
    np.testing.assert_array_equal(back.values, theirs.values)
    assert "starts anew" not in caplog.text, "SGD keeps no state"
    ps.drop_table("AdaGrad-back")
    ps.create_table("AdaGrad-back", dim=3, optimizer=slotwise.AdaGrad(lr=1.0))
    checkpoint_files.from_state_dict(ps, state, {"AdaGrad-back": places})
    assert f"table AdaGrad-back: the state of AdaGrad starts anew in {len(places)} row(s)" in caplog.text
    ps.drop_table("AdaGrad-back")


def test_what_fits_no_module_is_refused(saved: SimpleNamespace) -> None:
    torch = pytest.importorskip("torch")
    key = int(all_rows(saved.ps, "SGD").keys[-1])
    asked: list[tuple[type[slotwise.Error], str, dict[str, Any]]] = [
        (slotwise.InvalidArgument, f"key {key} of the table has no row among {key}", {"SGD": key}),
        (slotwise.InvalidArgument, "has no row", {"SGD": {}}),
        (slotwise.InvalidArgument, "two keys have one row", {"SGD": {1: 0, 2: 0}}),
        (slotwise.NotFound, "no table 'ads'", {"ads": 10}),
    ]
    for kind, said, places in asked:
        with pytest.raises(kind, match=said):
            checkpoint_files.to_state_dict(saved.last, places)
    with pytest.raises(slotwise.NotFound, match="no SGD.weight"):
        checkpoint_files.from_state_dict(saved.ps, {}, {"SGD": 10})
    with pytest.raises(slotwise.InvalidArgument, match=r"shape \(4, 3\), not \(10, dim\)"):
        checkpoint_files.from_state_dict(saved.ps, {"SGD.weight": torch.zeros(4, 3)}, {"SGD": 10})


@pytest.mark.parametrize("value_dtype", ["float16", "bfloat16"])
def test_rounded_values_are_read(tmp_path: Path, value_dtype: str) -> None:
    with serving(1, data=tmp_path) as ps:
        ps.create_table("ads", dim=5, optimizer=slotwise.AdaGrad(lr=0.5))
        keys = np.arange(100, dtype=np.uint64)
        ps.push("ads", keys, None, ps.lookup("ads", keys) * 3)
        theirs = all_rows(ps, "ads", with_state=True)
        id = ps.save(value_dtype=value_dtype).id
    ours = checkpoint_files.open(tmp_path / "checkpoints" / id)["ads"].read()
    most = 2.0**-8 if value_dtype == "bfloat16" else 2.0**-10
    np.testing.assert_allclose(ours.values, theirs.values, rtol=most)
    assert not np.array_equal(ours.values, theirs.values)
    np.testing.assert_array_equal(ours.state, theirs.state)


def test_the_command_exports_and_imports(
    saved: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkpoint to Parquet and torch's weights by its folder or its id, and from both into tables."""
    pytest.importorskip("pyarrow")
    torch = pytest.importorskip("torch")
    address = saved.ps.topology().ranks[0].address
    expected = checkpoint_files.open(saved.last)["Adam"].read()

    checkpoint_command.main(["export", str(saved.last), str(tmp_path / "all")])
    assert f"Adam.parquet: {len(expected.keys)} rows" in capsys.readouterr().out
    files = [path.relative_to(tmp_path / "all") for path in (tmp_path / "all").rglob("*.parquet")]
    assert sorted(str(file.with_suffix("")) for file in files) == sorted(saved.names)
    parquet = str(tmp_path / "all" / "Adam.parquet")
    checkpoint_command.main(["import", parquet, "fromparquet", "--server", address])
    assert saved.ps.digest("fromparquet").rows == len(expected.keys)

    weights = tmp_path / "weights.pt"
    asked = ["export", saved.last.name, str(weights), "--server", address, "--format", "torch"]
    checkpoint_command.main([*asked, "--rows", "Adam=64"])
    bag = torch.nn.ModuleDict({"Adam": torch.nn.EmbeddingBag(64, 3)})
    bag.load_state_dict(torch.load(weights))
    assert (bag["Adam"].weight.detach().numpy()[expected.keys] == expected.values).all()
    torch.save({"fromtorch.weight": bag["Adam"].weight}, weights)
    saved.ps.create_table("fromtorch", dim=3, optimizer=slotwise.SGD(lr=0.5))
    checkpoint_command.main(["import", str(weights), "fromtorch", "--server", address])
    assert (saved.ps.lookup("fromtorch", expected.keys, train=False) == expected.values).all()
    for table in ("fromparquet", "fromtorch"):
        saved.ps.drop_table(table)


def test_a_checkpoint_that_goes_while_it_is_read_is_not_found(
    saved: SimpleNamespace, copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a server removes it, because newer ones are kept."""
    away, last, base = tmp_path / "away", copied, copied.parent / saved.folders[0].name
    table = checkpoint_files.open(last)["Adam"]
    for gone in (last, base):
        gone.rename(away)
        with pytest.raises(slotwise.NotFound, match=f"{gone} went while it was read"):
            table.read()
        away.rename(gone)
    table.read()

    def remove_then(call: Callable[..., Any]) -> Callable[..., Any]:
        def removed(folder: Path, *more: Any) -> Any:
            if last.exists():
                last.rename(away)
            return call(folder, *more)

        return removed

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_manifest, "_read", remove_then(checkpoint_manifest._read))
        with pytest.raises(slotwise.NotFound, match=f"{last} went while it was read"):
            checkpoint_files.open(last)
    away.rename(last)
    (tmp_path.parent / "lineage").write_text("0123456789abcdef\n")
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_files, "_copy_all", remove_then(checkpoint_files._copy_all))
        with pytest.raises(slotwise.NotFound, match=f"{last} went while it was read"):
            checkpoint_files.copy(last, tmp_path / "new")
    assert not list(tmp_path.glob("*new*"))
    away.rename(last)
    assert len(checkpoint_files.copy(last, tmp_path / "new")) == 3


def test_a_copy_goes_to_a_folder_that_can_be_made(saved: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for target in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/below")):
        with pytest.raises(slotwise.InvalidArgument, match=str(target)):
            checkpoint_files.copy(saved.last, target)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "file"]
    alone = tmp_path / "checkpoints" / saved.folders[0].name
    shutil.copytree(saved.folders[0], alone)
    with pytest.raises(slotwise.NotFound, match="there is no .*lineage"):
        checkpoint_files.copy(alone, tmp_path / "new")


def test_the_command_says_what_is_wrong(saved: SimpleNamespace, tmp_path: Path) -> None:
    folder = str(saved.last)
    for arguments, said in (
        (["copy", str(tmp_path / "none"), "out"], "NotFound: "),
        (["export", folder, "out", "--format", "torch"], "--rows TABLE=N goes with"),
        (["export", folder, "out", "--rows", "Adam=3"], "--rows TABLE=N goes with"),
        (["copy", folder, str(saved.last)], "is not empty"),
    ):
        with pytest.raises(SystemExit) as ended:
            checkpoint_command.main(arguments)
        assert said in str(ended.value.code)
    for arguments in ([], ["export", folder], ["export", folder, "out", "--rows", "Adam"]):
        with pytest.raises(SystemExit) as ended:
            checkpoint_command.main(arguments)
        assert ended.value.code == 2
