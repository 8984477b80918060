"""What `slotwise.torch.save` takes beside tensors, comes back by value; what it does not take, it names."""

from __future__ import annotations

import copy
import json
import pickle
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_model_files import trainer
from torch import nn
from torch.optim import lr_scheduler, swa_utils

import slotwise
import slotwise.torch as st
from slotwise import _pair, _plain_values


def through_a_file(value: Any) -> Any:
    text, tensors = _plain_values.encode(value, "value")
    return _plain_values.decode(text, tensors)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        [1 << 70, -0.1, 1e-320, float("inf"), "text", b"\0\xff", (), (1, [2]), {3, 4}],
        {1: "int", "1": "text", (2, 3): {}, None: OrderedDict([("b", 1), ("a", 2)])},
        {"dict": 1, "tensor": 0, "tuple": []},
        torch.get_rng_state(),
        1 - 2j,
        bytearray(b"\0\xff"),
        frozenset({("a", 1)}),
        deque([1, [2]], maxlen=3),
        Counter({3: 2, 1: 0}),
        OrderedDict([("b", np.float32(0.1)), ("a", np.float64(0.1))]),
        [np.int64(-3), np.uint64(2**64 - 1), np.bool_(True), np.str_("text"), np.bytes_(b"\0b")],
        [np.datetime64("2026-11-27T14:00"), np.timedelta64(3, "h"), np.complex64(1j), np.float16(0.1)],
        [torch.Size([2, 3]), torch.bfloat16, torch.device("cuda", 1), torch.device("cpu")],
        random.Random(3).getstate(),
        np.random.default_rng(3).bit_generator.state,
        {"array": 1, "function": "OneCycleLR._annealing_cos", "scalar": ["<f8", ""]},
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_come_back_as_they_were(value: Any) -> None:
    again = through_a_file(value)
    assert type(again) is type(value) and repr(again) == repr(value)
    if isinstance(value, list):
        assert [type(each) for each in again] == [type(each) for each in value]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">i2").reshape(2, 3),
        np.arange(12.0).reshape(3, 4).T[::2],
        np.zeros((0, 3), np.uint32),
        np.array(7, np.uint64),
        np.array(["a", "long text"]),
        np.array([b"", b"\0b"]),
        np.array([True, False]),
        np.array(["2026-11-27"], "datetime64[ns]"),
        np.array([1 + 2j], np.complex128),
    ],
    ids=lambda array: str(array.dtype),
)
def test_arrays_come_back_as_they_were(array: Any) -> None:
    again = through_a_file(array)
    assert (again.dtype, again.shape) == (array.dtype, array.shape) and np.array_equal(again, array)
    again[...] = array  # it is the reader's own, and may be written


def test_numpys_random_state_goes_on() -> None:
    before = np.random.get_state()
    try:
        np.random.seed(20261127)
        state = through_a_file({"numpy": np.random.get_state()})["numpy"]
        drawn = np.random.normal(size=5)
        np.random.set_state(state)
        assert np.array_equal(np.random.normal(size=5), drawn)
    finally:
        np.random.set_state(before)


class Element(np.ndarray):
    """An array with attributes, which would be lost."""


@pytest.mark.parametrize(
    "value, why",
    [
        (np.array([{}, None]), r"value\['x'\] is a ndarray of object: a file has NumPy's arrays of numbers"),
        (np.zeros(2, [("a", "i4")]), r"value\['x'\] is a ndarray of \[\('a', '<i4'\)\]"),
        (np.zeros(2, [("a", "i4")])[0], r"value\['x'\] is a void of"),
        (np.zeros(2).view(Element), r"value\['x'\] is a Element of float64"),
        (lambda step: step, r"value\['x'\] is the function .*<lambda>, .* leave it out, and what was made"),
        (nn.Linear(1, 1).forward, r"value\['x'\] is the function Linear.forward, and a file has values"),
        (print, r"value\['x'\] is of builtins.builtin_function_or_method: leave"),
        (defaultdict(list), r"value\['x'\] is of collections.defaultdict: leave it out, because a file has"),
    ],
)
def test_what_is_no_value_is_named(value: Any, why: str) -> None:
    with pytest.raises(slotwise.InvalidArgument, match=why):
        _plain_values.encode({"x": value}, "value")


@pytest.mark.parametrize(
    "forged",
    [
        {"array": ["|O", [1], 0]},
        {"array": ["<i8", [-1], 0]},
        {"array": ["<i8", [2], 0]},
        {"array": ["<i2", [2], 0]},
        {"array": [[["a", "<i8"]], [1], 0]},
        {"scalar": ["|V8", "AAAAAAAAAAA="]},
        {"function": "os.system"},
        {"function": "OneCycleLR.__init__"},
        {"dtype": "load"},
        {"device": "nowhere"},
        {"harm": 1},
        {"tuple": 1},
    ],
    ids=str,
)
def test_what_encode_does_not_write_is_no_value(forged: Any) -> None:
    eight_bytes = [torch.zeros(8, dtype=torch.uint8)]
    with pytest.raises(_pair._UNREADABLE):
        _plain_values.decode(json.dumps(forged), eight_bytes)


MakeSchedule = Callable[[Any], Any]
SCHEDULES: dict[str, MakeSchedule] = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 5, 5]),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, 10),
    "OneCycleLR linear": lambda o: lr_scheduler.OneCycleLR(o, 0.1, 10, anneal_strategy="linear"),
    "SWALR": lambda o: swa_utils.SWALR(o, 0.05),
    "SWALR linear": lambda o: swa_utils.SWALR(o, 0.05, anneal_strategy="linear"),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [3]
    ),
}


def make(kind: MakeSchedule) -> tuple[Any, Any]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1, momentum=0.9)
    return optimizer, kind(optimizer)


def rates(optimizer: Any, schedule: Any, steps: int) -> list[tuple[float, float]]:
    found = []
    for _ in range(steps):
        optimizer.step()
        schedule.step()
        found.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]))
    return found


@pytest.mark.parametrize("kind", SCHEDULES.values(), ids=SCHEDULES)
def test_schedules_go_on_where_they_were(kind: MakeSchedule) -> None:
    optimizer, schedule = make(kind)
    rates(optimizer, schedule, 3)
    state = through_a_file({"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()})
    again = make(kind)
    again[0].load_state_dict(state["optimizer"])
    again[1].load_state_dict(state["schedule"])
    through_a_file(again[1].state_dict())  # which is saved again
    expected = rates(optimizer, schedule, 6)
    assert rates(*again, 6) == expected and len(set(expected)) > 1


@pytest.mark.parametrize(
    "options, key, what",
    [
        ({"scale_fn": lambda x: 0.5}, "_scale_fn_custom", "the function .*: "),
        ({}, "_scale_fn_ref", "of weakref.WeakMethod"),
    ],
    ids=["function", "reference"],
)
def test_what_a_schedule_refers_to_is_named_and_can_be_left_out(
    options: dict[str, Any], key: str, what: str
) -> None:
    kind = partial(lr_scheduler.CyclicLR, base_lr=0.01, max_lr=0.1, step_size_up=3, **options)
    optimizer, schedule = make(kind)
    rates(optimizer, schedule, 2)
    state = schedule.state_dict()
    if callable(state.get(key)):  # as torch before 2.0 has it
        with pytest.raises(slotwise.InvalidArgument, match=rf"\['{key}'\] is {what}"):
            through_a_file(state)
        del state[key]
    again = make(kind)
    again[0].load_state_dict(optimizer.state_dict())
    again[1].load_state_dict(through_a_file(state))
    assert rates(*again, 4) == rates(optimizer, schedule, 4)


def test_a_models_file_has_them(tmp_path: Path) -> None:
    with trainer(tmp_path / "data", ranks=1) as (ps, model, optimizer):
        schedule = lr_scheduler.OneCycleLR(optimizer, 0.1, 10)
        loader_state = {"numpy": np.random.get_state(), "schedule": schedule.state_dict()}
        st.save(tmp_path / "model.pt", model, optimizer, loader_state)
        state = st.load(tmp_path / "model.pt", model, optimizer)
        assert np.array_equal(state["numpy"][1], loader_state["numpy"][1])
        schedule.load_state_dict(state["schedule"])
        with pytest.raises(slotwise.InvalidArgument, match=r"\['loader_state'\]\['rate'\] is the function"):
            st.save(tmp_path / "model.pt", model, optimizer, {"rate": lambda step: 0.9})
        assert len(ps.checkpoints()) == 1


@pytest.mark.parametrize("use", [copy.copy, copy.deepcopy, pickle.dumps])
def test_clients_and_optimizers_say_what_to_do_instead_of_a_copy(
    fake_ps: slotwise.Client, use: Callable[[Any], Any]
) -> None:
    fake_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.1))
    with pytest.raises(TypeError, match=r"Client cannot be copied .*: call slotwise.connect\('127.0.0.1:"):
        use(fake_ps)
    optimizer = st.Optimizer(st.EmbeddingBag(fake_ps, "ads"))
    with pytest.raises(TypeError, match=r"Optimizer of ads cannot be copied .*: keep its state_dict\(\)"):
        use(optimizer)
