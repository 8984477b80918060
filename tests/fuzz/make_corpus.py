"""Writes corpus/: what the fuzzers begin with, a few valid inputs of each.

Run it by hand when messages change, and commit what it writes: ./dev python FILE.
Inputs that once failed are kept there too, under names that begin with "found_".
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "client/python/tests")]

from slotwise_proto import admin_pb2, data_pb2, embedding_pb2, rows_pb2  # noqa: E402

CORPUS = Path(__file__).with_name("corpus")
KEYS = np.array([5, 2**64 - 1, 5, 0], "<u8").tobytes()
OFFSETS = np.array([0, 1, 1, 3, 4], "<u4").tobytes()  # two samples of the two slots of "ads"
WEIGHTS = np.array([1, 0.5, -2, 0], "<f4").tobytes()
NUMBERS = np.arange(12)
FLOAT16, BFLOAT16 = embedding_pb2.DATA_TYPE_FLOAT16, embedding_pb2.DATA_TYPE_BFLOAT16


def save(fuzzer: str, **inputs: bytes) -> None:
    """Writes a fuzzer's inputs, by name."""
    folder = CORPUS / fuzzer
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in inputs.items():
        (folder / name).write_bytes(data)


def nested(*messages: bytes) -> bytes:
    """A message whose field 1 holds the messages."""
    return b"".join(b"\x0a" + bytes([len(each)]) + each for each in messages)  # none here has 128 bytes


def bfloat16(values: np.ndarray) -> bytes:
    """The upper halves of numbers that need no more."""
    return (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()


def lookups() -> dict[str, bytes]:
    """Lookups of tables with a combiner and without."""
    request = embedding_pb2.LookupRequest
    return {
        "bags": request(table="ads", samples=2, keys=KEYS, offsets=OFFSETS).SerializeToString(),
        "weights": request(
            table="ads", samples=2, mode=2, data_type=FLOAT16, keys=KEYS, offsets=OFFSETS, weights=WEIGHTS
        ).SerializeToString(),
        "one_key_a_bag": request(table="ads", samples=2, data_type=BFLOAT16, keys=KEYS).SerializeToString(),
        "no_combiner": request(table="words", samples=4, keys=KEYS).SerializeToString(),
        "no_samples": request(table="ads").SerializeToString(),
    }


def pushes() -> dict[str, bytes]:
    """Pushes with gradients of every type."""
    step = embedding_pb2.StepId(session=0x123456789ABCDEF0, number=41, part=1, parts=3, epoch=9)
    batch = {"table": "ads", "step": step, "samples": 2, "keys": KEYS, "offsets": OFFSETS}
    float32 = embedding_pb2.PushRequest(gradients=NUMBERS.astype("<f4").tobytes(), weights=WEIGHTS, **batch)
    float16 = embedding_pb2.PushRequest(gradients=NUMBERS.astype("<f2").tobytes(), data_type=FLOAT16, **batch)
    upper_half = embedding_pb2.PushRequest(gradients=bfloat16(NUMBERS), data_type=BFLOAT16, **batch)
    adam = embedding_pb2.PushRequest(table="adam", step=embedding_pb2.StepId(), samples=1)
    adam.keys, adam.gradients = KEYS[:8], NUMBERS[:2].astype("<f4").tobytes()
    looked_up = embedding_pb2.PushRequest(gradients=NUMBERS.astype("<f4").tobytes(), **batch)
    looked_up.looked_up.lineage, looked_up.looked_up.table_step = 0xFEDCBA9876543210, 2**63
    return {
        "float32": float32.SerializeToString(),
        "float16": float16.SerializeToString(),
        "bfloat16": upper_half.SerializeToString(),
        "one_part": adam.SerializeToString(),
        "looked_up": looked_up.SerializeToString(),
    }


def data_call(many: bool, *messages: bytes, wide: bool = False) -> bytes:
    """A call of the data transport of lookups or pushes, as the fuzzer reads it; offsets may have 64 bits."""
    call, body = data_pb2.DataCall(id=1, timeout_ms=1000, many=many), b""
    for each in messages:
        push = embedding_pb2.PushRequest.FromString(each)
        is_push = push.HasField("step")
        message = push if is_push else embedding_pb2.LookupRequest.FromString(each)
        arrays = call.arrays.add()
        for name in ("keys", "gradients", "offsets", "weights"):
            if not hasattr(message, name):
                continue
            array = getattr(message, name)
            if name == "offsets" and wide and array:
                array, arrays.wide_offsets = np.frombuffer(array, "<u4").astype("<u8").tobytes(), True
            setattr(arrays, name, len(array))
            body += array + bytes(-len(array) % 64)
            message.ClearField(name)
        (call.pushes if is_push else call.lookups).append(message)
    head = call.SerializeToString()
    return len(head).to_bytes(2, "little") + head + body


def imports() -> dict[str, bytes]:
    """Streams of imports; a row of "adam" has 2 values and 4 floats of state."""
    values, state = NUMBERS[:4].astype("<f4").tobytes(), NUMBERS[:8].astype("<f4").tobytes()
    with_state = rows_pb2.ImportRequest(table="adam", keys=KEYS[:16], values=values, state=state)
    with_state.table_steps = 7
    more = rows_pb2.ImportRequest(keys=KEYS[16:], values=values)
    ads = rows_pb2.ImportRequest(table="ads", keys=KEYS, values=NUMBERS.astype("<f4").tobytes())
    return {
        "state": nested(with_state.SerializeToString(), more.SerializeToString()),
        "values": nested(ads.SerializeToString()),
    }


def replies() -> dict[str, bytes]:
    """Replies to lookups, exports and descriptions."""
    shape = {"samples": 2, "width": 6, "incarnation": 1, "lineage": 2, "table_step": 3}
    lookup = embedding_pb2.LookupReply
    long = lookup(samples=1, width=101, data_type=2, values=np.arange(101).astype("<f2").tobytes())
    rows = rows_pb2.ExportReply(dim=2, state_size=1, keys=KEYS[:16])
    rows.values, rows.state = NUMBERS[:4].astype("<f4").tobytes(), NUMBERS[:2].astype("<f4").tobytes()
    described = admin_pb2.DescribeTableReply(steps=3)
    described.options.name, described.options.dim, described.options.slots = "ads", 3, 2
    described.options.optimizer.learning_rate = 0.5
    described.options.optimizer.adam.beta1 = 0.5
    described.options.initializer.normal.deviation = 1
    return {
        "float32": lookup(data_type=1, values=NUMBERS.astype("<f4").tobytes(), **shape).SerializeToString(),
        "float16": lookup(data_type=2, values=NUMBERS.astype("<f2").tobytes(), **shape).SerializeToString(),
        "bfloat16": lookup(data_type=3, values=bfloat16(NUMBERS), **shape).SerializeToString(),
        "several_slices": long.SerializeToString(),
        "rows": rows.SerializeToString(),
        "table": described.SerializeToString(),
    }


def npy(array: np.ndarray, version: tuple[int, int]) -> bytes:
    """The array as NumPy writes it."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


CONFIG = """
listen: "127.0.0.1:0" advertise_host: "node1" backend: BACKEND_CPU threads: 4 log_level: "debug"
log_format: LOG_FORMAT_JSON deterministic: true partial_sums: DATA_TYPE_FLOAT16
limits { max_message_mib: 4 max_round_mib: 8 max_queue_mib: 32 max_tables: 5 max_rank_percent: 110 }
tables { name: "ads" dim: 3 slots: 2 optimizer { learning_rate: 1 adam { beta1: 0.5 } } initial_rows: 1 }
tables { name: "b" dim: 1 combiner: COMBINER_NONE initializer { seed: 1 normal { deviation: 1 } }
  optimizer { learning_rate: 1 ftrl {} schedule { warmup_steps: 2 decay_start: 3 end_learning_rate: 1 } } }
"""
SEPARATED = """limits { max_tables: -1, colour: 3; max_round_mib: 9999, },
shape { sides: [3, 4]; tables < a: "b", > } ;
threads: "a"; threads: 5000, backend: BACKEND_TPU; # why
, log_level: "loud";
"""
TABBED = """\tthreads:\t\t\t"a"\thealth_listen:\t5\tcolour\t{\tshade:\t3\t}\tbackend:\tX\tthreads:\t5000
limits\t{
\tmax_tables:\t\t-1,\tmax_round_mib:\t9999;\t\tkeep:\t3
}
"""


def main() -> None:
    """Writes every fuzzer's corpus."""
    lookup, push, stream = lookups(), pushes(), imports()
    save("lookup", **lookup)
    save("push", **push)
    save("wire_reader", **push)
    save("import", **stream)
    save("data", lookup=data_call(False, lookup["weights"]), push=data_call(False, push["float16"]))
    save("data", many=data_call(True, lookup["bags"], lookup["no_samples"], lookup["no_combiner"]))
    save("data", pushes=data_call(True, push["float32"], push["one_part"], push["bfloat16"]))
    save("data", wide_lookup=data_call(False, lookup["bags"], wide=True))
    save("data", wide_pushes=data_call(True, push["float32"], push["float16"], wide=True))
    some = rows_pb2.ExportRequest(table="ads", keys=KEYS)
    state = rows_pb2.ExportRequest(table="adam", with_state=True)
    save("keys", some=some.SerializeToString(), all=state.SerializeToString())
    save("nested", lookups=nested(lookup["bags"], b"", lookup["no_samples"]), pushes=nested(push["float16"]))
    save("nested", unknown=b"\x10\x05" + stream["values"] + b"\x1b\x08\x01\x1c")  # a number, and a group
    save("reply", **replies())
    matrix, keys = NUMBERS.astype("<f4").reshape(4, 3), np.arange(3, dtype="<u8")
    save("npy", matrix=npy(matrix, (1, 0)), keys=npy(keys, (1, 0)), second_version=npy(matrix, (2, 0)))
    header = npy(np.zeros((1, 8), "<f4"), (1, 0)).replace(b"(1, 8)", b"(1, %d)" % 2**62)[:128]
    save("npy", found_row_size_runs_over=header)
    save("config", largest=b"limits { max_message_mib: 2047 max_queue_mib: 9999 max_round_mib: 4096 }")
    save("config", all=CONFIG.encode(), nothing=b"", wrong=b"limits { max_message_mib: 9999 }")
    save("config", separated=SEPARATED.encode(), tabbed=TABBED.encode())


if __name__ == "__main__":
    main()
