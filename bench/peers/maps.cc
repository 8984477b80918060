#include "bench/peers/maps.h"

#include <unordered_map>
#include <utility>

#ifdef SLOTWISE_BENCH_ABSL
#include <absl/container/flat_hash_map.h>
#endif

namespace slotwise::bench {
namespace {

template <class Map>
class MapOf final : public PeerMap {
 public:
  explicit MapOf(std::string name) : name_(std::move(name)) {}

  std::string name() const override { return name_; }
  void Reset(std::uint64_t keys) override {
    map_ = Map();
    map_.reserve(keys);
  }
  void Find(std::span<const Key> keys, RowIndex* rows) override {
    for (const Key key : keys) {
      const auto found = map_.find(Value(key));
      *rows++ = found == map_.end() ? kNoRow : RowIndex{found->second};
    }
  }
  void FindOrInsert(std::span<const Key> keys, RowIndex* rows) override {
    for (const Key key : keys) {
      *rows++ = RowIndex{map_.try_emplace(Value(key), static_cast<std::uint32_t>(map_.size())).first->second};
    }
  }

 private:
  std::string name_;
  Map map_;
};

}  // namespace

std::vector<std::unique_ptr<PeerMap>> MakePeerMaps() {
  std::vector<std::unique_ptr<PeerMap>> maps;
  maps.push_back(
      std::make_unique<MapOf<std::unordered_map<std::uint64_t, std::uint32_t>>>("std::unordered_map"));
#ifdef SLOTWISE_BENCH_ABSL
  maps.push_back(
      std::make_unique<MapOf<absl::flat_hash_map<std::uint64_t, std::uint32_t>>>("absl::flat_hash_map"));
#endif
  return maps;
}

}  // namespace slotwise::bench
