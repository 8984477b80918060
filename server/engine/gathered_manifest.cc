#include "server/engine/gathered_manifest.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slotwise {
namespace {

// Appends a text with its length in front.
void Add(std::string& texts, const std::string& text) { texts += std::to_string(text.size()) + "\n" + text; }

std::string Take(std::string_view& texts) {
  std::size_t size = 0;
  const auto end = std::from_chars(texts.data(), texts.data() + texts.size(), size).ptr;
  texts.remove_prefix(static_cast<std::size_t>(end - texts.data()) + 1);
  std::string text(texts.substr(0, size));
  texts.remove_prefix(size);
  return text;
}

}  // namespace

Result<Manifest> GatherManifest(Collective& collective, Manifest manifest,
                                const Result<WrittenPart>& result) {
  // y: written; g: given up because of another rank; f: the disk was full; n: not written.
  const StatusCode code = result.status().code();
  std::string mine(1, result.ok()                              ? 'y'
                      : code == StatusCode::kCancelled         ? 'g'
                      : code == StatusCode::kResourceExhausted ? 'f'
                                                               : 'n');
  if (result.ok()) {
    Add(mine, std::to_string(manifest.created));
    RankEntry ledger;
    ledger.files = {result->ledger};
    Add(mine, SerializeRankEntry(ledger));
    for (const RankEntry& entry : result->tables) Add(mine, SerializeRankEntry(entry));
  } else {
    Add(mine, result.status().message());
  }
  const std::vector<std::string> texts = AllGatherTexts(collective, mine);
  for (const std::string_view bad : {"fn", "g"}) {
    const auto why = std::ranges::find_if(
        texts, [&](const std::string& text) { return bad.find(text.front()) != std::string_view::npos; });
    if (why == texts.end()) continue;
    std::string_view text = std::string_view(*why).substr(1);
    return Status(why->front() == 'f' ? StatusCode::kResourceExhausted : StatusCode::kInternal,
                  "rank " + std::to_string(why - texts.begin()) + ": " + Take(text));
  }
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    std::string_view text = texts[rank];
    text.remove_prefix(1);
    const std::string first = Take(text);
    const auto ledger = ParseRankEntry(Take(text));
    if (!ledger.ok()) return ledger.status();
    if (rank == 0) {
      manifest.created = std::stoull(first);
      manifest.ledger = ledger->files.front();
    }
    for (TableEntry& table : manifest.tables) {
      auto entry = ParseRankEntry(Take(text));
      if (!entry.ok()) return entry.status();
      table.ranks.push_back(std::move(*entry));
    }
  }
  // Every rank computes the manifest's checksum, which a delta will name.
  if (const auto serialized = SerializeManifest(manifest); !serialized.ok()) return serialized.status();
  return manifest;
}

}  // namespace slotwise
