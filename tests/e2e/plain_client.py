"""A Slotwise client as anyone would write it from the .proto files, with what protoc generated from them.

Run by test_plain_client.py as a program of its own: plain_client.py HOST:PORT. Does a little of everything
and checks it.
"""

import array
import struct
import sys

import grpc
from slotwise.v1 import admin_pb2, admin_pb2_grpc, embedding_pb2, embedding_pb2_grpc, rows_pb2, rows_pb2_grpc


def main() -> None:
    """The parts, one after the other."""
    channel = grpc.insecure_channel(sys.argv[1], options=[("grpc.enable_http_proxy", 0)])
    admin = admin_pb2_grpc.AdminStub(channel)
    embedding = embedding_pb2_grpc.EmbeddingStub(channel)
    train_a_step(admin, embedding)
    weigh_halves(admin, embedding)
    addresses = [rank.address for rank in admin.GetTopology(admin_pb2.GetTopologyRequest(), timeout=60).ranks]
    move_rows(embedding, rows_pb2_grpc.RowsStub(channel), addresses)
    print("trained")


def train_a_step(admin: admin_pb2_grpc.AdminStub, embedding: embedding_pb2_grpc.EmbeddingStub) -> None:
    """Makes a table, looks two samples up, pushes their gradient, looks again."""
    options = admin_pb2.TableOptions(name="plain", dim=2, optimizer=admin_pb2.Optimizer(learning_rate=0.5))
    options.optimizer.sgd.SetInParent()
    admin.CreateTable(admin_pb2.CreateTableRequest(options=options), timeout=60)

    keys = array.array("Q", [10, 20]).tobytes()
    lookup = embedding_pb2.LookupRequest(table="plain", samples=2, keys=keys)
    before = array.array("f", embedding.Lookup(lookup, timeout=60).values)
    gradients = array.array("f", [1, 2, 3, 4])
    step = embedding_pb2.StepId(session=1, number=1)
    push = embedding_pb2.PushRequest(
        table="plain", step=step, samples=2, keys=keys, gradients=gradients.tobytes()
    )
    assert embedding.Push(push, timeout=60).table_step == 1
    after = array.array("f", embedding.Lookup(lookup, timeout=60).values)

    expected = [value - 0.5 * gradient for value, gradient in zip(before, gradients)]
    assert list(after) == list(array.array("f", expected)), (before, after)
    assert admin.Digest(admin_pb2.DigestRequest(table="plain"), timeout=60).steps == 1


def weigh_halves(admin: admin_pb2_grpc.AdminStub, embedding: embedding_pb2_grpc.EmbeddingStub) -> None:
    """Without a combiner, with weights, in half precision, many at once; the rate is set for a step."""
    options = admin_pb2.TableOptions(name="single", dim=2, combiner=admin_pb2.COMBINER_NONE)
    options.optimizer.learning_rate = 0.5
    options.initializer.constant.value = 0.25
    admin.CreateTable(admin_pb2.CreateTableRequest(options=options), timeout=60)
    admin.SetLearningRate(admin_pb2.SetLearningRateRequest(table="single", learning_rate=1), timeout=60)

    batch = {
        "table": "single",
        "samples": 2,
        "data_type": embedding_pb2.DATA_TYPE_FLOAT16,
        "keys": array.array("Q", [10, 20]).tobytes(),
        "weights": array.array("f", [2, -4]).tobytes(),
    }
    lookups = embedding_pb2.LookupManyRequest(lookups=[embedding_pb2.LookupRequest(**batch)] * 2)
    for reply in embedding.LookupMany(lookups, timeout=60).replies:
        assert struct.unpack("<4e", reply.values) == (0.5, 0.5, -1, -1), reply
    step = embedding_pb2.StepId(session=1, number=1)
    push = embedding_pb2.PushRequest(step=step, gradients=struct.pack("<4e", 1, 2, 3, 4), **batch)
    pushed = embedding.PushMany(embedding_pb2.PushManyRequest(pushes=[push]), timeout=60)
    assert [reply.table_step for reply in pushed.replies] == [1]
    # 0.25 - 1 * weight * gradient, looked up times the weight.
    after = embedding.Lookup(embedding_pb2.LookupRequest(**batch), timeout=60).values
    assert struct.unpack("<4e", after) == (-3.5, -7.5, -49, -65), struct.unpack("<4e", after)


def move_rows(
    embedding: embedding_pb2_grpc.EmbeddingStub, rows: rows_pb2_grpc.RowsStub, addresses: list[str]
) -> None:
    """Imports rows, exports them from every rank, erases one."""
    keys = array.array("Q", [7, 8]).tobytes()
    values = array.array("f", [1, 2, 3, 4]).tobytes()
    messages = iter(
        [
            rows_pb2.ImportRequest(table="single", keys=keys, values=values),
            rows_pb2.ImportRequest(keys=keys[8:], values=values[:8]),
        ]
    )
    assert rows.Import(messages, timeout=60).rows == 3
    found = {}
    for address in addresses:
        with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            asked = rows_pb2.ExportRequest(table="single", keys=keys)
            for reply in rows_pb2_grpc.RowsStub(channel).Export(asked, timeout=60):
                row_values = array.array("f", reply.values)
                for i, key in enumerate(array.array("Q", reply.keys)):
                    found[key] = row_values[2 * i : 2 * i + 2].tolist()
    assert found == {7: [1, 2], 8: [1, 2]}, found
    assert rows.Erase(rows_pb2.EraseRequest(table="single", keys=keys[:8]), timeout=60).rows == 1
    lookup = embedding_pb2.LookupRequest(
        table="single", mode=embedding_pb2.LOOKUP_MODE_EVAL, samples=2, keys=keys
    )
    assert list(array.array("f", embedding.Lookup(lookup, timeout=60).values)) == [0, 0, 1, 2]


if __name__ == "__main__":
    main()
