#include "server/collective/collective.h"

#include <algorithm>

namespace slotwise {

std::vector<std::string> AllGatherTexts(Collective& collective, const std::string& mine) {
  const auto sizes = AllGatherValues(collective, std::uint64_t{mine.size()});
  const std::size_t longest = std::ranges::max(sizes);
  std::string padded = mine;
  padded.resize(longest);
  std::vector<char> all(longest * sizes.size());
  if (longest > 0)
    collective.AllGather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)));
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank)
    texts.emplace_back(&all[rank * longest], sizes[rank]);
  return texts;
}

}  // namespace slotwise
