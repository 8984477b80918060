// Fuzzes lookups as the server decodes them: v1.LookupRequest.
#include "client/cpp/batch_exchange.h"
#include "server/intake/check.h"
#include "tests/fuzz/fuzz.h"

namespace slotwise::fuzz {
namespace {

void RequireSame(const CheckedLookup& a, const CheckedLookup& b) {
  Require(a.request.table == b.request.table && a.request.mode == b.request.mode,
          "that the table is the same");
  Require(a.request.type == b.request.type && a.width == b.width, "that the reply's shape is the same");
  RequireSameBatch(a.request.batch, b.request.batch);
}

}  // namespace

void Run(std::string_view bytes) {
  const auto lookup = DecodeLookup(BufferOf(bytes), FindTable);
  const auto in_slices = DecodeLookup(InSlices(bytes), FindTable);
  Require(lookup.status().code() == in_slices.status().code(), "that slices make no difference");
  if (!lookup.ok()) return;
  const LookupRequest& request = lookup->request;
  const TableOptions& options = OptionsOf(request.table);
  RequireValid(request.batch, options.slots);
  Require(lookup->width == options.slots * options.dim, "that the width is the table's");
  RequireSame(*lookup, *in_slices);

  static const auto memory = std::make_shared<client::MessageMemory>();
  const auto checked = client::CheckBatch(request.batch.view(), options);
  Require(checked.ok() && checked->samples == request.batch.samples, "that the client takes the batch");
  const client::TableBatch batch{.table = options.name.str(), .view = checked->view, .checked = *checked};
  const auto again = DecodeLookup(
      client::LookupMessage(batch, {0, checked->samples}, request.mode, request.type, *memory), FindTable);
  Require(again.ok(), "that the client's message of it is taken");
  RequireSame(*lookup, *again);
}

}  // namespace slotwise::fuzz
