// Fuzzes calls of the data transport as the server reads them. The input's first two bytes give the size of a
// v1.DataCall, which follows; the rest is the body, of a frame and of a shared buffer in device memory.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "server/data/data_call.h"
#include "server/data/device_call.h"
#include "tests/fuzz/fuzz.h"

namespace slotwise::fuzz {
namespace {

// Writes values where they go, if all go there, so that the sanitizer sees one that does not fit.
void PlaceAll(const v1::DataCall& call, std::vector<CheckedLookup>& lookups) {
  const std::size_t room = call.allocations().values_bytes() % 8192;
  const auto memory = std::make_shared<std::byte[]>(room);
  PlaceValues({memory.get(), room}, memory, false, lookups);
  for (const CheckedLookup& lookup : lookups) {
    const LookupRequest& request = lookup.request;
    if (request.place == nullptr) continue;
    std::memset(request.place.get(), 1,
                std::size_t{request.batch.samples} * lookup.width * BytesOf(request.type));
  }
}

void RequireWhole(const v1::DataCall& call, Result<std::vector<CheckedLookup>>& lookups) {
  if (!lookups.ok()) return;
  Require(lookups->size() == static_cast<std::size_t>(call.lookups_size()), "that no lookup is lost");
  for (const CheckedLookup& lookup : *lookups) {
    RequireValid(lookup.request.batch, OptionsOf(lookup.request.table).slots);
  }
  PlaceAll(call, *lookups);
}

void RequireWhole(const v1::DataCall& call, const Result<std::vector<PushRequest>>& pushes) {
  if (!pushes.ok()) return;
  Require(pushes->size() == static_cast<std::size_t>(call.pushes_size()), "that no push is lost");
  for (const PushRequest& push : *pushes) RequireValid(push.batch, OptionsOf(push.table).slots);
}

// Requires that a call means the same from a frame and from device memory, which is the CPU's here.
void RequireSame(const Result<std::vector<PushRequest>>& a, const Result<std::vector<PushRequest>>& b) {
  Require(a.ok() == b.ok(), "that both transports take a call, or none");
  if (!a.ok())
    return Require(a.status().message() == b.status().message(), "that both refuse it for the same");
  for (std::size_t i = 0; i < a->size(); ++i) {
    RequireSameBatch((*a)[i].batch, (*b)[i].batch);
    Require((*a)[i].body == (*b)[i].body, "that both hash a body to the same");
    Require((*a)[i].learning_rate == (*b)[i].learning_rate, "that both read the learning rate");
    Require((*a)[i].looked_up == (*b)[i].looked_up, "that both read what was looked up");
  }
}

// Returns the body in memory as large as it, so that the sanitizer sees a read beyond it.
std::shared_ptr<std::byte[]> Alone(std::string_view bytes) {
  auto* const memory =
      static_cast<std::byte*>(::operator new(bytes.size(), std::align_val_t{ArrivingArray::kAlign}));
  std::memcpy(memory, bytes.data(), bytes.size());
  return {memory, [](std::byte* its) { ::operator delete(its, std::align_val_t{ArrivingArray::kAlign}); }};
}

void RunOnDevice(const v1::DataCall& call, std::string_view bytes) {
  static const std::unique_ptr<IngestCopy> arrivals = MakeCpuIngestCopy();
  const auto body = Alone(bytes);
  Budget budget(std::numeric_limits<std::uint64_t>::max());
  const auto there = [&]() -> DeviceBody {
    return {{body.get(), bytes.size()}, *arrivals, std::move(*budget.Reserve(BytesOfCopies(call)))};
  };
  bool in_frame = true;
  for (const v1::DataArrays& arrays : call.arrays()) in_frame = in_frame && !arrays.wide_offsets();
  if (call.pushes_size() > 0) {
    DeviceBody its = there();
    const auto pushes = CheckPushesOnDevice(call, its, FindTable);
    RequireWhole(call, pushes);
    if (in_frame) RequireSame(CheckPushes(call, body, FindTable), pushes);
  } else {
    DeviceBody its = there();
    auto lookups = CheckLookupsOnDevice(call, its, FindTable);
    RequireWhole(call, lookups);
    if (in_frame)
      Require(lookups.ok() == CheckLookups(call, body, FindTable).ok(), "that both transports agree");
  }
  Require(budget.used() == 0, "that the copies are charged as long as they last, and no longer");
}

}  // namespace

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
  if (Objection(call, bytes.size(), true).empty()) RunOnDevice(call, bytes);
  if (!Objection(call, bytes.size(), false).empty()) return;
  const auto body = Alone(bytes);
  auto lookups = CheckLookups(call, body, FindTable);
  RequireWhole(call, lookups);
  RequireWhole(call, CheckPushes(call, body, FindTable));
}

}  // namespace slotwise::fuzz
