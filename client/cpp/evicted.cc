// Lists evicted keys, a page at a time.
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>

#include "client/cpp/client_impl.h"
#include "slotwise/client.h"
#include "slotwise/v1/admin.pb.h"

namespace slotwise {
namespace {

EvictedBy ReasonOf(v1::EvictedBy by) {
  switch (by) {
    case v1::EVICTED_BY_FULL_TABLE:
      return EvictedBy::kFullTable;
    case v1::EVICTED_BY_TIME_TO_LIVE:
      return EvictedBy::kTimeToLive;
    case v1::EVICTED_BY_REQUEST:
      return EvictedBy::kRequest;
    default:
      return EvictedBy::kOther;
  }
}

// Adds a page's keys to those of the pages before it. INTERNAL: its keys are no array of 8 bytes each, or its
// rounds do not ascend.
Status AddPage(const v1::ListEvictedReply& page, EvictedRounds& all) {
  for (const v1::EvictedKeys& gone : page.rounds()) {
    const std::string& bytes = gone.keys();
    const std::uint64_t last = all.rounds.empty() ? 0 : all.rounds.back().round;
    if (bytes.size() % sizeof(Key) != 0 || gone.round() < last)
      return {StatusCode::kInternal, "the server's list of evicted keys is damaged"};
    if (all.rounds.empty() || gone.round() != last)
      all.rounds.push_back({.round = gone.round(), .by = ReasonOf(gone.by()), .keys = {}});
    std::vector<Key>& keys = all.rounds.back().keys;
    const std::size_t before = keys.size();
    keys.resize(before + bytes.size() / sizeof(Key));
    std::memcpy(keys.data() + before, bytes.data(), bytes.size());
  }
  return {};
}

}  // namespace

std::uint64_t EvictedRounds::keys() const {
  return std::accumulate(rounds.begin(), rounds.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const EvictedKeys& gone) { return sum + gone.keys.size(); });
}

Result<EvictedRounds> Client::Evicted(std::string_view table, const EvictedSince& since,
                                      const CallOptions& call) {
  v1::ListEvictedRequest request;
  request.set_table(std::string(table));
  request.set_after_round(since.round);
  request.set_incarnation(since.instance);
  EvictedRounds all;
  for (bool first = true;; first = false) {
    v1::ListEvictedReply page;
    if (Status status = impl_->Ask(call, "ListEvicted", request, page); !status.ok()) return status;
    if (first || page.gap()) {
      // After a gap the earlier pages are no part of what is complete.
      all = {.rounds = {},
             .complete_after = page.complete_after(),
             .gap = page.gap(),
             .through_round = page.through_round(),
             .instance = page.incarnation(),
             .generation = page.lineage()};
    }
    if (Status added = AddPage(page, all); !added.ok()) return added;
    if (!page.more()) return all;
    request.set_after_round(page.next_after_round());
    request.set_keys_seen(page.next_keys_seen());
    request.set_through_round(all.through_round);
    request.set_incarnation(all.instance);
  }
}

}  // namespace slotwise
