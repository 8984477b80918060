#include "server/engine/operations/list_evicted.h"

#include <algorithm>
#include <span>
#include <utility>

#include "server/engine/evicted_log.h"
#include "server/engine/operations/round_context.h"

namespace slotwise::operations {
namespace {

using Entry = EvictedLog::Entry;
using Place = EvictedLog::Place;

// What a rank has for a page.
struct Offer {
  Place end;                // of its entries
  std::uint64_t count = 0;  // of its entries
};

// Returns where the table's part of all ranks' logs begins. Collective.
EvictedLog::Start StartOfAll(RoundContext& context, TableId table) {
  EvictedLog::Start all;
  for (const EvictedLog::Start& start : AllGatherValues(context.collective, context.evicted.StartOf(table))) {
    all.round = std::max(all.round, start.round);
    all.lacks |= start.lacks;
  }
  return all;
}

// Returns whether keys that went after the round may be missing, in a round of number `now`.
bool HasGap(const EvictedLog::Start& start, std::uint64_t after_round, std::uint64_t now) {
  if (after_round >= now) return true;  // the round was an earlier server's
  // Nothing went before the table was made, but a caller may ask for an earlier table of the name.
  return after_round < start.round && (start.lacks != 0 || after_round > 0);
}

// Gathers the ranks' entries, which begin at `from`. Returns those before `end`, by round. Collective.
std::vector<Entry> Gather(Collective& collective, std::span<const Offer> offers, const Place& from,
                          const Place& end, std::vector<Entry> mine) {
  const std::size_t most = std::ranges::max(offers, {}, &Offer::count).count;
  std::vector<Entry> all(most * offers.size());
  if (most == 0) return all;
  mine.resize(most);
  collective.AllGather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  std::vector<Entry> page;
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    Place at = from;
    for (const Entry& entry : std::span(all).subspan(rank * most, offers[rank].count)) {
      if (entry.round != at.round) at = {entry.round, 0};
      if (at >= end) break;
      page.push_back(entry);
      ++at.key;
    }
  }
  std::ranges::stable_sort(page, {}, &Entry::round);
  return page;
}

void Fill(EvictedPage& page, std::span<const Entry> entries) {
  for (const Entry& entry : entries) {
    if (entry.round > page.through_round) break;
    if (page.rounds.empty() || page.rounds.back().round != entry.round)
      page.rounds.push_back({entry.round, static_cast<Removal>(entry.why), {}});
    page.rounds.back().keys.push_back(entry.key);
  }
}

}  // namespace

void ListEvicted::Run(RoundContext& context, const Round& round) {
  const Table& table = *context.tables.Get(round.table);
  const auto asked = round.payload.As<Request::Asked>();
  const EvictedLog::Start start = StartOfAll(context, table.info.id);
  EvictedPage page;
  page.generation = table.generation;
  page.gap = HasGap(start, asked.after_round, round.number);
  page.complete_after = page.gap ? start.round : asked.after_round;
  const Place from{page.complete_after + 1, page.gap ? 0 : asked.keys_seen};

  const auto share =
      std::max<std::size_t>(1, kMostKeys / static_cast<std::size_t>(context.collective.size()));
  std::vector<Entry> mine;
  const Place mine_end = context.evicted.List(table.info.id, from, share, mine);
  const auto offers = AllGatherValues(context.collective, Offer{mine_end, mine.size()});
  const Place end = std::ranges::min(offers, {}, &Offer::end).end;
  const std::vector<Entry> entries = Gather(context.collective, offers, from, end, std::move(mine));

  const Ticket& asker = round.parts[0].ticket;
  if (!context.IsMine(asker)) return;
  const std::uint64_t through = context.tickets.Get<Request>(asker.number).through_round;
  page.through_round = page.gap || through == 0 ? round.number : std::min(through, round.number);
  Fill(page, entries);
  page.more = end.round <= page.through_round;
  if (page.more) {
    page.next_after_round = end.round - 1;
    page.next_keys_seen = end.key;
  }
  context.AnswerMineOnceRecorded<Request>(round, page);
}

}  // namespace slotwise::operations
