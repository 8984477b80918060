// Calls of the data transport as the server reads them: a v1.DataCall of so many bytes as the input's first
// two say, and behind it the body.
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "server/data/data_call.h"
#include "tests/fuzz/fuzz.h"

namespace slotwise::fuzz {
namespace {

// Writes values where they go, if all go there, so that the sanitizer sees one that does not fit.
void PlaceAll(const v1::DataCall& call, std::vector<CheckedLookup>& lookups) {
  const std::size_t room = call.arena().values_bytes() % 8192;
  const auto memory = std::make_shared<std::byte[]>(room);
  PlaceValues({memory.get(), room}, memory, lookups);
  for (const CheckedLookup& lookup : lookups) {
    const LookupRequest& request = lookup.request;
    if (request.place == nullptr) continue;
    std::memset(request.place.get(), 1,
                std::size_t{request.batch.samples} * lookup.width * BytesOf(request.type));
  }
}

void Run(std::string_view bytes) {
  std::uint16_t head_bytes = 0;
  if (bytes.size() < sizeof(head_bytes)) return;
  std::memcpy(&head_bytes, bytes.data(), sizeof(head_bytes));
  bytes.remove_prefix(sizeof(head_bytes));
  if (head_bytes > bytes.size()) return;
  if (!HeadObjection(std::as_bytes(std::span(bytes.data(), head_bytes))).empty()) return;
  v1::DataCall call;
  if (!call.ParseFromArray(bytes.data(), head_bytes)) return;
  bytes.remove_prefix(head_bytes);
  if (!Objection(call, bytes.size(), false).empty()) return;
  // As large as the body, so that the sanitizer sees whoever reads beyond it.
  const auto body = std::make_shared_for_overwrite<std::byte[]>(bytes.size());
  std::memcpy(body.get(), bytes.data(), bytes.size());
  if (auto lookups = CheckLookups(call, body, FindTable); lookups.ok()) {
    Require(lookups->size() == static_cast<std::size_t>(call.lookups_size()), "that no lookup is lost");
    for (const CheckedLookup& lookup : *lookups) {
      RequireValid(lookup.request.batch, OptionsOf(lookup.request.table).slots);
    }
    PlaceAll(call, *lookups);
  }
  if (const auto pushes = CheckPushes(call, body, FindTable); pushes.ok()) {
    Require(pushes->size() == static_cast<std::size_t>(call.pushes_size()), "that no push is lost");
    for (const PushRequest& push : *pushes) RequireValid(push.batch, OptionsOf(push.table).slots);
  }
}

}  // namespace
}  // namespace slotwise::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  slotwise::fuzz::Run(slotwise::fuzz::TextOf(data, size));
  return 0;
}
