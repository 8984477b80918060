#include "client/ctl/repeated_key.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "client/ctl/npy.h"

namespace slotwise::ctl {
namespace {

constexpr std::uint64_t kPieceKeys = 1 << 17;

// Spreads neighbouring keys, because ids often are neighbours (Fibonacci hashing).
std::uint64_t Spread(Key key) { return (Value(key) * 0x9e3779b97f4a7c15U) >> 32; }

std::optional<Key> RepeatedAmong(std::vector<Key>& keys) {
  std::ranges::sort(keys);
  const auto found = std::ranges::adjacent_find(keys);
  return found == keys.end() ? std::nullopt : std::optional(*found);
}

// Checks the keys in one of `parts` parts of a file.
Result<std::optional<Key>> RepeatedInPart(const std::string& path, std::uint64_t part, std::uint64_t parts,
                                          std::size_t at_once) {
  auto file = NpyReader::Open(path, "<u8", false);
  if (!file.ok()) return file.status();
  std::vector<Key> piece;
  std::vector<Key> keys;
  for (std::uint64_t left = file->shape().rows; left > 0; left -= piece.size()) {
    piece.resize(std::min(left, kPieceKeys));
    if (Status status = file->Read(std::as_writable_bytes(std::span(piece))); !status.ok()) return status;
    std::ranges::copy_if(piece, std::back_inserter(keys),
                         [&](Key key) { return Spread(key) % parts == part; });
    if (keys.size() < at_once) continue;
    // So many keys in one part are chance, or one key that occurs many times.
    if (const auto repeated = RepeatedAmong(keys)) return repeated;
    at_once *= 2;
  }
  return RepeatedAmong(keys);
}

}  // namespace

Result<std::optional<Key>> FindRepeatedKey(const std::string& path, std::size_t at_once) {
  const auto file = NpyReader::Open(path, "<u8", false);
  if (!file.ok()) return file.status();
  const std::uint64_t parts = file->shape().rows / std::max<std::size_t>(1, at_once / 2) + 1;
  for (std::uint64_t part = 0; part < parts; ++part) {
    auto repeated = RepeatedInPart(path, part, parts, at_once);
    if (!repeated.ok() || *repeated) return repeated;
  }
  return std::optional<Key>();
}

}  // namespace slotwise::ctl
