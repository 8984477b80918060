// Fuzzes erases and exports as the server decodes them: the bytes as a v1.EraseRequest and a
// v1.ExportRequest.
#include "server/rpc/decode_rows.h"
#include "slotwise/v1/rows.pb.h"
#include "tests/fuzz/fuzz.h"

namespace slotwise::fuzz {
namespace {

template <class Message>
grpc::ByteBuffer Encode(const TableOptions& options, std::span<const Key> keys, bool with_state) {
  Message message;
  message.set_table(options.name.str());
  message.set_keys(BytesOf(keys));
  if constexpr (requires { message.set_with_state(true); }) message.set_with_state(with_state);
  return BufferOf(message.SerializeAsString());
}

void RunErase(std::string_view bytes) {
  const auto erase = DecodeErase(BufferOf(bytes), FindTable);
  const auto in_slices = DecodeErase(InSlices(bytes), FindTable);
  Require(erase.status().code() == in_slices.status().code(), "that slices make no difference");
  if (!erase.ok()) return;
  RequireValid(erase->batch, 1);
  Require(erase->batch.samples == erase->batch.keys.size(), "one key a bag");
  RequireSameBatch(erase->batch, in_slices->batch);
  const TableOptions& options = OptionsOf(erase->table);
  const auto again =
      DecodeErase(Encode<v1::EraseRequest>(options, erase->batch.keys.span(), false), FindTable);
  Require(again.ok() && again->table == erase->table, "that it is taken when it is encoded again");
  RequireSameBatch(erase->batch, again->batch);
}

void RequireSame(const DecodedExport& a, const DecodedExport& b) {
  Require(a.table.id == b.table.id && a.with_state == b.with_state && a.keys == b.keys,
          "that exports are the same");
}

void RunExport(std::string_view bytes) {
  const auto exported = DecodeExport(BufferOf(bytes), FindTable);
  const auto in_slices = DecodeExport(InSlices(bytes), FindTable);
  Require(exported.status().code() == in_slices.status().code(), "that slices make no difference");
  if (!exported.ok()) return;
  RequireSame(*exported, *in_slices);
  // No keys mean all keys, so an export of none must not come out of a message.
  Require(!exported->keys || !exported->keys->empty(), "that there are keys, or all are meant");
  const std::vector<Key> keys = exported->keys.value_or(std::vector<Key>());
  const auto again =
      DecodeExport(Encode<v1::ExportRequest>(exported->table.options, keys, exported->with_state), FindTable);
  Require(again.ok(), "that it is taken when it is encoded again");
  RequireSame(*exported, *again);
}

}  // namespace

void Run(std::string_view bytes) {
  RunErase(bytes);
  RunExport(bytes);
}

}  // namespace slotwise::fuzz
