// Fuzzes pushes as the server decodes them: v1.PushRequest.
#include <cmath>

#include "client/cpp/batch_exchange.h"
#include "server/intake/check.h"
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
  Require(a.learning_rate == b.learning_rate, "that the learning rate is the same");
  Require(a.looked_up == b.looked_up, "that the state that was looked up is the same");
  Require(a.gradients == b.gradients, "that the sample of gradients is the same");
  RequireSameBatch(a.batch, b.batch);
  Require(SameBytes<float>(GradientsOf(a, gradients), GradientsOf(b, gradients)),
          "that gradients are the same");
}

}  // namespace

void Run(std::string_view bytes) {
  auto push = DecodePush(BufferOf(bytes), FindTable);
  const auto in_slices = DecodePush(InSlices(bytes), FindTable);
  Require(push.status().code() == in_slices.status().code(), "that slices make no difference");
  if (!push.ok()) return;
  const TableOptions& options = OptionsOf(push->table);
  RequireValid(push->batch, options.slots);
  Require(Validate(push->step).ok(), "that the step is valid");
  Require(!push->learning_rate || ValidateStepRate(*push->learning_rate, options).ok(),
          "that the table may learn at the rate");
  const std::size_t count = std::size_t{push->batch.samples} * options.slots * options.dim;
  const std::vector<float> gradients = GradientsOf(*push, count);
  Require(Finite(gradients), "that gradients are finite");
  Require(std::isfinite(push->gradients.squares) && push->gradients.squares >= 0,
          "that their squares' sum is finite");
  Require(push->gradients.numbers <= count, "that no more gradients are sampled than there are");
  RequireSame(*push, *in_slices, count);

  static const auto memory = std::make_shared<client::MessageMemory>();
  const auto checked = client::CheckBatch(push->batch.view(), options);
  Require(checked.ok() && checked->samples == push->batch.samples, "that the client takes the batch");
  const client::TableBatch batch{.table = options.name.str(),
                                 .view = checked->view,
                                 .gradients = gradients,
                                 .checked = *checked,
                                 .looked_up = {push->looked_up.generation, push->looked_up.step},
                                 .learning_rate = push->learning_rate};
  const auto again = DecodePush(
      client::PushMessage(batch, {0, checked->samples}, push->step, push->batch.value_type, *memory),
      FindTable);
  Require(again.ok(), "that the client's message of it is taken");
  if (push->looked_up.generation == 0)
    push->looked_up = {};  // names no state, so the client does not send it
  RequireSame(*push, *again, count);
}

}  // namespace slotwise::fuzz
