#include "server/start_up.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

namespace slotwise {
namespace {

template <std::size_t kSize>
using Text = std::array<char, kSize>;  // ends with a zero; a longer text is cut

template <std::size_t kSize>
void Write(std::string_view from, Text<kSize>& to) {
  std::copy_n(from.begin(), std::min(from.size(), kSize - 1), to.begin());
}

// Ranks exchange texts of a fixed size, so that one all-gather suffices. The arrays are value-initialised, so
// that no indeterminate bytes are sent.
using Reason = Text<1024>;  // empty: ready
struct Place {
  Text<288> address{};
  Text<256> device{};
  Text<108> local{};
  Text<40> gpu{};
  std::uint32_t local_user = 0;
  Text<288> metrics{};
};

void LogLines(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) spdlog::error("{}", line);
}

bool NobodyRefuses(Collective& collective, const Status& mine) {
  Reason reason{};
  if (!mine.ok()) Write(mine.message().empty() ? "unknown error" : mine.message(), reason);
  const std::vector<Reason> reasons = AllGatherValues(collective, reason);
  // Ranks usually make the same mistake, so only the first rank that made a mistake logs it.
  const auto first = std::ranges::find(reasons, reason);
  if (!mine.ok() && first - reasons.begin() == Value(collective.rank())) LogLines(mine.message());
  return std::ranges::all_of(reasons, [](const Reason& r) { return r[0] == '\0'; });
}

}  // namespace

bool AllReady(Collective& collective, const Result<std::uint64_t>& mine) {
  if (!NobodyRefuses(collective, mine.status())) return false;
  const std::vector<std::uint64_t> fingerprints = AllGatherValues(collective, *mine);
  const auto other = std::ranges::find_if(fingerprints, [&](auto peer) { return peer != fingerprints[0]; });
  if (other == fingerprints.end()) return true;
  if (Value(collective.rank()) == 0) {
    spdlog::error(
        "rank {} has another configuration (limits, tables, durability, security, deterministic or "
        "partial_sums) or version than rank 0",
        other - fingerprints.begin());
  }
  return false;
}

std::optional<std::vector<RankPlace>> AgreeOnPlaces(Collective& collective, const Result<RankPlace>& mine) {
  if (!NobodyRefuses(collective, mine.status())) return std::nullopt;
  Place place;
  Write(mine->address, place.address);
  Write(mine->device, place.device);
  Write(mine->local, place.local);
  Write(mine->gpu, place.gpu);
  place.local_user = mine->local_user;
  Write(mine->metrics, place.metrics);
  std::vector<RankPlace> places;
  for (const Place& peer : AllGatherValues(collective, place)) {
    places.push_back({.address = peer.address.data(),
                      .device = peer.device.data(),
                      .local = peer.local.data(),
                      .gpu = peer.gpu.data(),
                      .local_user = peer.local_user,
                      .metrics = peer.metrics.data()});
  }
  return places;
}

std::string DrawPeersToken(Collective& collective) {
  std::random_device random;
  Text<65> token{};
  for (std::size_t at = 0; at + 8 < token.size(); at += 8) {
    std::snprintf(token.data() + at, token.size() - at, "%08x", random());
  }
  return AllGatherValues(collective, token).front().data();
}

Instance DrawInstance(Collective& collective) {
  // A server begins fewer than 2^10 epochs a second.
  constexpr int kEpochBits = 10;
  std::random_device random;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  const Instance mine{.id = std::uint64_t{random()} << 32 | random() | 1,
                      .first_epoch = static_cast<std::uint64_t>(seconds) << kEpochBits};
  return AllGatherValues(collective, mine).front();
}

}  // namespace slotwise
