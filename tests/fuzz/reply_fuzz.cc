// Fuzzes replies as the client reads them: the bytes as a v1.LookupReply of each type, a v1.ExportReply and a
// v1.DescribeTableReply.
#include <algorithm>
#include <array>

#include "client/cpp/batch_exchange.h"
#include "client/cpp/messages.h"
#include "slotwise/v1/embedding.pb.h"
#include "slotwise/v1/rows.pb.h"
#include "tests/fuzz/fuzz.h"
#include "wire/table_options_proto.h"

namespace slotwise::fuzz {
namespace {

// Reads a reply as values of `type`, in the shape that the reply says, if that is a small one.
void RunLookup(std::string_view bytes, const v1::LookupReply& reply, DataType type) {
  const std::size_t width = std::clamp<std::size_t>(reply.width(), 1, 1000);
  const std::size_t samples = reply.values().size() / (width * BytesOf(type));
  std::vector<float> out(samples * width);
  const auto whole =
      client::ReadLookupReply(BufferOf(bytes), samples, static_cast<std::uint32_t>(width), type, out);
  std::vector<float> sliced(out.size());
  const auto in_slices =
      client::ReadLookupReply(InSlices(bytes), samples, static_cast<std::uint32_t>(width), type, sliced);
  Require(whole.status().code() == in_slices.status().code(), "that slices make no difference");
  if (!whole.ok()) return;
  Require(SameBytes<float>(out, sliced), "that the values are the same");
  Require(whole->generation == reply.lineage() && whole->step == reply.table_step(),
          "that the state is the reply's");
  std::vector<float> expected(out.size());
  Require(reply.values().size() == out.size() * BytesOf(type), "that all values were read");
  Widen(reinterpret_cast<const std::byte*>(reply.values().data()), type, expected);
  Require(SameBytes<float>(out, expected), "that the values are those of the reply");
}

void RunExport(std::string_view bytes) {
  client::ExportedRows rows;
  client::ExportedRows sliced;
  const Status status = client::ReadExportReply(BufferOf(bytes), rows);
  Require(status.code() == client::ReadExportReply(InSlices(bytes), sliced).code(),
          "that slices make no difference");
  if (!status.ok()) return;
  const auto floats_a_row = [&rows](const std::vector<float>& floats) {
    if (rows.keys.empty()) {
      Require(floats.empty(), "no floats without keys");
      return std::size_t{0};
    }
    Require(floats.size() % rows.keys.size() == 0, "as many floats for each key");
    return floats.size() / rows.keys.size();
  };
  v1::ExportReply again;
  again.set_dim(static_cast<std::uint32_t>(floats_a_row(rows.values)));
  again.set_state_size(static_cast<std::uint32_t>(floats_a_row(rows.state)));
  again.set_keys(BytesOf(rows.keys));
  again.set_values(BytesOf(rows.values));
  again.set_state(BytesOf(rows.state));
  Require(client::ReadExportReply(client::Serialize(again), sliced).ok(),
          "that it is taken when encoded again");
  Require(SameBytes<Key>(rows.keys, sliced.keys) && SameBytes<float>(rows.values, sliced.values) &&
              SameBytes<float>(rows.state, sliced.state),
          "that the rows are the same");
}

void RunDescription(std::string_view bytes) {
  v1::DescribeTableReply reply;
  if (!client::Deserialize(InSlices(bytes), reply).ok()) return;
  const auto options = client::DescribedOptions(reply, reply.options().name());
  if (!options.ok()) return;
  const auto again = FromProto(ToProto(*options));
  Require(again.ok() && *again == *options, "that the options are the same when encoded again");
}

}  // namespace

void Run(std::string_view bytes) {
  v1::LookupReply reply;
  if (reply.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
      RunLookup(bytes, reply, type);
    }
  }
  std::array<float, 12> other{};
  (void)client::ReadLookupReply(InSlices(bytes), 2, 6, DataType::kFloat16, other);
  RunExport(bytes);
  RunDescription(bytes);
}

}  // namespace slotwise::fuzz
