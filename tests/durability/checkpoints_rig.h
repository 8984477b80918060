// Shared code of the tests of a folder of checkpoints.
#ifndef SLOTWISE_TESTS_DURABILITY_CHECKPOINTS_RIG_H_
#define SLOTWISE_TESTS_DURABILITY_CHECKPOINTS_RIG_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/durability/checkpoint_rig.h"

namespace slotwise {

// Returns a checkpoint of one small table whose rows depend on the round.
inline CheckpointOfTest Small(const std::string& id, std::uint64_t round,
                              std::optional<CheckpointName> parent = {}) {
  const auto options = OptionsOf(OptimizerKind::kSgd, 1);
  return {.id = id,
          .parent = std::move(parent),
          .tables = {{.options = options, .rows = RowsOf(round, round + 5, round, 1)}},
          .created = 1000 + round,
          .round = round};
}

inline std::vector<std::string> IdsOf(const Chain& chain) {
  std::vector<std::string> ids;
  for (const Manifest& link : chain) ids.push_back(link.id);
  return ids;
}

inline std::vector<std::string> IdsOf(const std::vector<ListedCheckpoint>& listed) {
  std::vector<std::string> ids;
  for (const ListedCheckpoint& checkpoint : listed) ids.push_back(checkpoint.id);
  return ids;
}

class CheckpointsTest : public CheckpointTest {
 protected:
  // Saves a delta if `parent` is given, and else a base.
  Manifest SaveSmall(const std::string& id, std::uint64_t round, const Manifest* parent = nullptr) {
    return MustSave(files_,
                    Small(id, round, parent == nullptr ? std::nullopt : std::optional(parent->name())));
  }

  std::string PathOf(const std::string& id) const { return kCheckpoints + "/" + id + "/manifest.json"; }

  // Replaces a manifest.
  void Overwrite(const std::string& path, Manifest manifest) {
    files_.SetContents(path, BytesOf(test::Must(SerializeManifest(manifest))));
  }

  void Break(const std::string& path) {
    Bytes bytes = files_.Contents(path);
    bytes.back() ^= std::byte{1};
    files_.SetContents(path, bytes);
  }

  Checkpoints checkpoints_{files_, kCheckpoints};
};

}  // namespace slotwise

#endif  // SLOTWISE_TESTS_DURABILITY_CHECKPOINTS_RIG_H_
