// Checkpoints: the folder of all checkpoints. Lists them, finds their chains, and removes old ones.
//
// A chain is a base and the deltas that follow it; each delta names its parent by id and by the checksum of
// the parent's manifest. A chain is refused whole if a link is missing, comes twice, is of another data
// lineage, or does not follow from the link before. A base that folds an older part of the chain stands for
// that part.
// Errors: FAILED_PRECONDITION, naming the checkpoint, its file and the fault. NOT_FOUND: there is no such
// checkpoint. All other errors are the FileSystem's.
// Thread-safety: any thread, unless another thread, process or rank removes the checkpoints that are read.
#ifndef SLOTWISE_SERVER_DURABILITY_CHECKPOINTS_H_
#define SLOTWISE_SERVER_DURABILITY_CHECKPOINTS_H_

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/durability/file_system.h"
#include "server/durability/manifest.h"
#include "slotwise/status.h"

namespace slotwise {

// The base comes first, then its deltas in order.
using Chain = std::vector<Manifest>;

inline constexpr std::size_t kMaxLinks = 1024;
inline constexpr std::size_t kMaxPinned = 64;

// In a checkpoint's folder, a file of one of these names prevents RemoveOld from removing the checkpoint. Pin
// makes the first, KeepForLoad the second.
inline constexpr std::string_view kPinName = "pinned";
inline constexpr std::string_view kKeptName = "kept";

struct ListedCheckpoint {
  std::string id;                    // the folder's name
  std::optional<Manifest> manifest;  // none if the checkpoint cannot be used
  Status why_not;  // OK: usable. FAILED_PRECONDITION: broken. Others: the manifest could not be read
  std::vector<std::string> chain = {};  // from ListUsable: the ids of its chain, the base first
  bool pinned = false;                  // from ListUsable: by Pin
  bool kept_for_load = false;           // from ListUsable: by KeepForLoad
};

// The amount that a verification has read.
struct ReadBack {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

struct NewestChain {
  Chain chain;
  std::vector<std::string> passed_over;  // for each newer checkpoint, a sentence that says why it was refused
};

class Checkpoints {
 public:
  // REQUIRES: `files` outlives this.
  Checkpoints(FileSystem& files, std::string folder) : files_(&files), folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  FileSystem& files() const { return *files_; }

  // Lists all checkpoints, the newest first, by (round, created, whether it folds another, id); checkpoints
  // whose manifest is broken or unreadable come last. Rounds never fall, although clocks may. Reads manifests
  // only. A missing folder has no checkpoints.
  Result<std::vector<ListedCheckpoint>> List() const;

  // Lists them and says whether each can be restored, judged by sizes: sets `chain`, or else `why_not`, which
  // it may set beside a manifest. A checkpoint that is removed meanwhile is left out.
  Result<std::vector<ListedCheckpoint>> ListUsable() const;

  // Returns the chain that ends with a checkpoint.
  Result<Chain> ChainOf(const std::string& id) const;

  // Returns the newest chain whose manifests are whole and whose files are all there, in the right size.
  // Blocks are verified as they are read; a reader of a damaged block asks again, with its id in `refused`.
  // NOT_FOUND: the folder has no checkpoints. FAILED_PRECONDITION: none of them can be used. If a checkpoint
  // that may be whole could not be read, returns the FileSystem's error and no older checkpoint.
  Result<NewestChain> Newest(const std::vector<std::string>& refused = {}) const;

  // Returns whether a checkpoint can be restored, judged by manifests and sizes: its chain has no gap and no
  // foreign link, and all of the chain's files are there.
  Status CheckChain(const std::string& id) const;

  // Reads and verifies every file of this checkpoint, but no file of the others in its chain.
  Status Verify(const std::string& id) const;
  // Verifies it too. Returns how much was read.
  Result<ReadBack> ReadBackOf(const std::string& id) const;

  // Removes checkpoints that are older than the newest `keep` chains, and returns their ids. A checkpoint
  // stays if it belongs to one of these chains, or to the chain of a checkpoint that Pin or KeepForLoad
  // protects. Chains with the same base count as one. Broken checkpoints stay for a person to see. Removes
  // nothing if a manifest could not be read. REQUIRES: keep > 0.
  Result<std::vector<std::string>> RemoveOld(std::size_t keep) const;

  // Protects a checkpoint and its chain from every process's RemoveOld. OK: the checkpoint is there, and
  // stays until Release. NOT_FOUND: there is none. RESOURCE_EXHAUSTED: kMaxPinned are pinned, or the disk is
  // full. FAILED_PRECONDITION: the pin's name is taken by something that is no file. Processes that pin at
  // the same moment may exceed kMaxPinned by one each. REQUIRES: IsCheckpointId(id).
  Status Pin(const std::string& id) const;
  // NOT_FOUND: there is no such checkpoint. FAILED_PRECONDITION: the pin is a folder.
  // REQUIRES: IsCheckpointId(id).
  Status Release(const std::string& id) const;

  // Called before `loaded` is loaded, while `copy` is the checkpoint that the load will save. Protects
  // `loaded` from RemoveOld, and `newest`, the newest checkpoint so far. If `newest` is itself the copy that
  // the load before saved, the checkpoint that was newest before that load stays protected instead. If
  // `newest` is empty, there is none, and a checkpoint that a load protected as the newest stays protected.
  // These do not count towards kMaxPinned; Release releases them, too. REQUIRES: no other load runs.
  Status KeepForLoad(const std::string& loaded, const std::string& newest, const std::string& copy) const;
  // Called after that load. Releases checkpoints that earlier loads protected and this load does not.
  Status ForgetEarlierLoads(const std::string& loaded, const std::string& copy) const;

  // Removes the folders that writers and RemoveOld left behind. REQUIRES: no checkpoint is being written.
  Status RemoveLeftovers() const;

 private:
  Result<Manifest> ReadManifest(const std::string& id) const;
  Result<Chain> ChainOf(const Manifest& last, const std::vector<ListedCheckpoint>& listed) const;
  Status CheckSizes(const Manifest& manifest) const;
  Status FirstUnusable(const Chain& chain, std::string& id) const;
  Result<bool> Has(const std::string& folder, std::string_view name) const;
  // Returns whether the folder has a file of either name.
  Result<bool> Stays(const std::string& folder) const;
  // Returns the checkpoints that loads protect, each with the text of its file.
  Result<std::map<std::string, std::string>> KeptForLoads() const;
  // Returns the pinned checkpoints and those that they are restored from.
  Result<std::set<std::string>> PinnedAndTheirChains(const std::vector<ListedCheckpoint>& listed) const;
  // Returns false if the checkpoint was not removed because another process has pinned it meanwhile.
  Result<bool> RemoveCheckpoint(const std::string& id) const;

  FileSystem* files_;
  std::string folder_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_CHECKPOINTS_H_
