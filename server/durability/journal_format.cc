#include "server/durability/journal_format.h"

// The functions are compiled into this file, so that programs need no shared library for them.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <charconv>
#include <cstring>
#include <new>

namespace slotwise {
namespace {

static_assert(std::endian::native == std::endian::little, "the journal's numbers are little-endian");

constexpr std::string_view kSegmentMagic = "SLWJRNL\n";
constexpr std::string_view kRecordMagic = "SLWR";
constexpr std::string_view kMarkMagic = "SLWM";
constexpr std::string_view kSuffix = ".journal";
constexpr std::string_view kRankPrefix = "rank-";
constexpr std::size_t kRoundDigits = 20;
constexpr std::size_t kInstanceDigits = 16;
constexpr std::size_t kSegmentHashAt = kSegmentHeaderBytes - sizeof(std::uint64_t);
constexpr std::size_t kRecordHashAt = kRecordHeaderBytes - sizeof(std::uint64_t);

// Writes numbers one after the other.
class Writer {
 public:
  explicit Writer(std::span<std::byte> bytes) : bytes_(bytes) {}

  template <class Number>
  Writer& Put(Number number) {
    std::memcpy(bytes_.data(), &number, sizeof(number));
    bytes_ = bytes_.subspan(sizeof(number));
    return *this;
  }
  Writer& PutText(std::string_view text) {
    std::memcpy(bytes_.data(), text.data(), text.size());
    bytes_ = bytes_.subspan(text.size());
    return *this;
  }

 private:
  std::span<std::byte> bytes_;
};

// Reads numbers one after the other.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class Number>
  Reader& Take(Number& number) {
    std::memcpy(&number, bytes_.data(), sizeof(number));
    bytes_ = bytes_.subspan(sizeof(number));
    return *this;
  }
  bool TakeText(std::string_view text) {
    const bool same = std::memcmp(bytes_.data(), text.data(), text.size()) == 0;
    bytes_ = bytes_.subspan(text.size());
    return same;
  }

 private:
  std::span<const std::byte> bytes_;
};

std::uint64_t NumberAt(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data() + offset, sizeof(number));
  return number;
}

std::string Padded(std::uint64_t number, int base, std::size_t digits) {
  std::array<char, kRoundDigits> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number, base).ptr;
  const auto length = static_cast<std::size_t>(end - text.data());
  return std::string(digits - length, '0') + std::string(text.data(), length);
}

template <class Number>
std::optional<Number> ParseNumber(std::string_view text, int base) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

RecordHeaderBytes EncodeAs(std::string_view magic, const RecordHeader& header, std::uint64_t seed) {
  RecordHeaderBytes bytes{};
  Writer(bytes)
      .PutText(magic)
      .Put(header.kind)
      .Put(header.round)
      .Put(header.body_bytes)
      .Put(header.instance)
      .Put(header.group)
      .Put(header.complete)
      .Put(header.payload_hash);
  const std::uint64_t hash = XXH3_64bits_withSeed(bytes.data(), kRecordHashAt, seed);
  Writer(std::span(bytes).subspan(kRecordHashAt)).Put(hash);
  return bytes;
}

std::optional<RecordHeader> DecodeAs(std::string_view magic,
                                     std::span<const std::byte, kRecordHeaderBytes> bytes,
                                     std::uint64_t seed) {
  Reader reader(bytes);
  if (!reader.TakeText(magic)) return std::nullopt;
  if (NumberAt(bytes, kRecordHashAt) != XXH3_64bits_withSeed(bytes.data(), kRecordHashAt, seed)) {
    return std::nullopt;
  }
  RecordHeader header;
  reader.Take(header.kind)
      .Take(header.round)
      .Take(header.body_bytes)
      .Take(header.instance)
      .Take(header.group)
      .Take(header.complete)
      .Take(header.payload_hash);
  return header;
}

}  // namespace

SegmentHeaderBytes Encode(const SegmentHeader& header) {
  SegmentHeaderBytes bytes{};
  Writer(bytes)
      .PutText(kSegmentMagic)
      .Put(kJournalVersion)
      .Put(header.rank)
      .Put(header.ranks)
      .Put(std::uint32_t{0})
      .Put(header.lineage)
      .Put(header.instance)
      .Put(header.run_number)
      .Put(header.follows)
      .Put(header.follows_round)
      .Put(header.first_round)
      .Put(header.after_round)
      .Put(header.seed);
  const std::uint64_t hash = XXH3_64bits(bytes.data(), kSegmentHashAt);
  Writer(std::span(bytes).subspan(kSegmentHashAt)).Put(hash);
  return bytes;
}

std::optional<SegmentHeader> DecodeSegmentHeader(std::span<const std::byte, kSegmentHeaderBytes> bytes) {
  if (VersionOf(bytes) != kJournalVersion) return std::nullopt;
  if (NumberAt(bytes, kSegmentHashAt) != XXH3_64bits(bytes.data(), kSegmentHashAt)) return std::nullopt;
  SegmentHeader header;
  std::uint32_t zero = 0;
  Reader(bytes.subspan(kSegmentMagic.size() + sizeof(kJournalVersion)))
      .Take(header.rank)
      .Take(header.ranks)
      .Take(zero)
      .Take(header.lineage)
      .Take(header.instance)
      .Take(header.run_number)
      .Take(header.follows)
      .Take(header.follows_round)
      .Take(header.first_round)
      .Take(header.after_round)
      .Take(header.seed);
  return header;
}

std::uint32_t VersionOf(std::span<const std::byte, kSegmentHeaderBytes> bytes) {
  Reader reader(bytes);
  if (!reader.TakeText(kSegmentMagic)) return 0;
  std::uint32_t version = 0;
  reader.Take(version);
  return version;
}

RecordHeaderBytes Encode(const RecordHeader& header, std::uint64_t seed) {
  return EncodeAs(kRecordMagic, header, seed);
}

std::optional<RecordHeader> DecodeRecordHeader(std::span<const std::byte, kRecordHeaderBytes> bytes,
                                               std::uint64_t seed) {
  return DecodeAs(kRecordMagic, bytes, seed);
}

RecordHeaderBytes EncodeMark(const RecordHeader& mark, std::uint64_t seed) {
  return EncodeAs(kMarkMagic, mark, seed);
}

std::optional<RecordHeader> DecodeMark(std::span<const std::byte, kRecordHeaderBytes> bytes,
                                       std::uint64_t seed) {
  return DecodeAs(kMarkMagic, bytes, seed);
}

std::string ToString(const SegmentName& name) {
  return Padded(name.first_round, 10, kRoundDigits) + "-" + Padded(name.instance, 16, kInstanceDigits) +
         std::string(kSuffix);
}

std::optional<SegmentName> ParseSegmentName(std::string_view name) {
  if (name.size() != kRoundDigits + 1 + kInstanceDigits + kSuffix.size()) return std::nullopt;
  const auto round = ParseNumber<std::uint64_t>(name.substr(0, kRoundDigits), 10);
  const auto instance = ParseNumber<std::uint64_t>(name.substr(kRoundDigits + 1, kInstanceDigits), 16);
  if (!round || !instance) return std::nullopt;
  const SegmentName parsed{*round, *instance};
  if (ToString(parsed) != name) return std::nullopt;
  return parsed;
}

std::string RankFolder(std::uint32_t rank) { return std::string(kRankPrefix) + std::to_string(rank); }

std::optional<std::uint32_t> ParseRankFolder(std::string_view name) {
  if (!name.starts_with(kRankPrefix)) return std::nullopt;
  const auto rank = ParseNumber<std::uint32_t>(name.substr(kRankPrefix.size()), 10);
  if (!rank || RankFolder(*rank) != name) return std::nullopt;
  return rank;
}

struct RecordHash::State {
  State() : xxh(XXH3_createState()) {
    if (xxh == nullptr) throw std::bad_alloc();
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  XXH3_state_t* xxh;
};

RecordHash::RecordHash(std::uint64_t seed) : state_(std::make_unique<State>()) {
  XXH3_64bits_reset_withSeed(state_->xxh, seed);
}

RecordHash::~RecordHash() = default;

void RecordHash::Add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
}

std::uint64_t RecordHash::Value() const { return XXH3_64bits_digest(state_->xxh); }

}  // namespace slotwise
