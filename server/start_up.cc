#include "server/start_up.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <type_traits>

namespace slotwise {
namespace {

template <std::size_t kSize>
using Text = std::array<char, kSize>;  // ends with a zero, or is cut

template <std::size_t kSize>
void Write(std::string_view from, Text<kSize>& to) {
  std::copy_n(from.begin(), std::min(from.size(), kSize - 1), to.begin());
}

// What ranks tell each other: of one size, so that one all-gather does it. Value-initialised: no padding is sent.
struct Record {
  Text<1024> error{};  // empty: ready
  Text<288> address{};
  Text<256> device{};
  std::uint64_t fingerprint = 0;

  bool ready() const { return error[0] == '\0'; }
};
static_assert(std::is_trivially_copyable_v<Record>);

Record RecordOf(const Result<ReadyRank>& mine) {
  Record record;
  if (!mine.ok()) {
    Write(mine.status().message(), record.error);
    if (record.ready()) Write("unknown error", record.error);
    return record;
  }
  Write(mine->place.address, record.address);
  Write(mine->place.device, record.device);
  record.fingerprint = mine->fingerprint;
  return record;
}

// The same mistake is usually everybody's: the first rank that made it speaks.
void LogIfFirst(const std::vector<Record>& records, std::size_t rank) {
  const auto first = std::ranges::find(records, records[rank].error, &Record::error);
  if (first == records.begin() + static_cast<std::ptrdiff_t>(rank))
    spdlog::error("{}", records[rank].error.data());
}

}  // namespace

std::optional<std::vector<RankPlace>> AgreeToStart(Collective& collective, const Result<ReadyRank>& mine) {
  const Record record = RecordOf(mine);
  std::vector<Record> records(static_cast<std::size_t>(collective.size()));
  collective.AllGather(std::as_bytes(std::span(&record, 1)), std::as_writable_bytes(std::span(records)));

  const auto rank = static_cast<std::size_t>(Value(collective.rank()));
  if (!std::ranges::all_of(records, &Record::ready)) {
    if (!record.ready()) LogIfFirst(records, rank);
    return std::nullopt;
  }
  const auto other = std::ranges::find_if(
      records, [&](const Record& peer) { return peer.fingerprint != records.front().fingerprint; });
  if (other != records.end()) {
    if (rank == 0) {
      spdlog::error("rank {} has another configuration (limits or tables) or version than rank 0",
                    other - records.begin());
    }
    return std::nullopt;
  }

  std::vector<RankPlace> places;
  for (const Record& peer : records) places.push_back({peer.address.data(), peer.device.data()});
  return places;
}

}  // namespace slotwise
