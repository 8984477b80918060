// Pushes as the server decodes them: v1.PushRequest.
#include "client/cpp/messages.h"
#include "server/rpc/decode.h"
#include "tests/fuzz/fuzz.h"

namespace slotwise::fuzz {
namespace {

std::vector<float> GradientsOf(const PushRequest& push, std::size_t count) {
  const BatchPart& batch = push.batch;
  Require(batch.values.bytes() >= count * BytesOf(batch.value_type), "that there are all gradients");
  std::vector<float> gradients(count);
  Widen(reinterpret_cast<const std::byte*>(batch.values.data()), batch.value_type, gradients);
  return gradients;
}

void RequireSame(const PushRequest& a, const PushRequest& b, std::size_t gradients) {
  Require(a.table == b.table && a.step == b.step, "that the step is the same");
  Require(a.body == b.body, "that the body's hash is the same");
  RequireSameBatch(a.batch, b.batch);
  Require(SameBytes<float>(GradientsOf(a, gradients), GradientsOf(b, gradients)),
          "that gradients are the same");
}

void Run(std::string_view bytes) {
  const auto push = DecodePush(BufferOf(bytes), FindTable);
  const auto in_slices = DecodePush(InSlices(bytes), FindTable);
  Require(push.status().code() == in_slices.status().code(), "that slices make no difference");
  if (!push.ok()) return;
  const TableOptions& options = OptionsOf(push->table);
  RequireValid(push->batch, options.slots);
  Require(Validate(push->step).ok(), "that the step is valid");
  const std::size_t count = std::size_t{push->batch.samples} * options.slots * options.dim;
  const std::vector<float> gradients = GradientsOf(*push, count);
  Require(Finite(gradients), "that gradients are finite");
  RequireSame(*push, *in_slices, count);

  static const auto memory = std::make_shared<client::MessageMemory>();
  const auto checked = client::CheckBatch(push->batch.view(), options);
  Require(checked.ok() && checked->samples == push->batch.samples, "that the client takes the batch");
  const client::SampleRange all{.first = 0, .last = checked->samples};
  const auto again = DecodePush(client::PushMessage(*memory, options.name.view(), push->step, *checked, all,
                                                    gradients, push->batch.value_type),
                                FindTable);
  Require(again.ok(), "that the client's message of it is taken");
  RequireSame(*push, *again, count);
}

}  // namespace
}  // namespace slotwise::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  slotwise::fuzz::Run(slotwise::fuzz::TextOf(data, size));
  return 0;
}
