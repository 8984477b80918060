// Checkpoints: the folder of all checkpoints: which there are, which belong together, which may go.
//
// A chain is a base and the deltas that follow it, each naming the one before it by id and by the checksum of
// its manifest. A chain is refused whole if a link is missing, comes twice, is of another lineage of data, or
// does not follow from the one before it. Where a base folds an older part of the chain, the base stands for
// that part.
// Errors: FAILED_PRECONDITION, naming the checkpoint, its file and what is wrong. NOT_FOUND: there is no such
// checkpoint. All others are the FileSystem's.
// Thread-safety: any thread, unless another thread, process or rank removes what is read.
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

// The base first, its deltas in order.
using Chain = std::vector<Manifest>;

inline constexpr std::size_t kMaxLinks = 1024;
inline constexpr std::size_t kMaxPinned = 64;

// A file of one of these names in a checkpoint's folder keeps RemoveOld from it: the first is Pin's, and the
// second is KeepForLoad's.
inline constexpr std::string_view kPinName = "pinned";
inline constexpr std::string_view kKeptName = "kept";

struct ListedCheckpoint {
  std::string id;                    // the folder's name
  std::optional<Manifest> manifest;  // none if it cannot be used
  Status why_not;  // OK if it can. FAILED_PRECONDITION: it is broken. Others: it could not be read
  std::vector<std::string> chain = {};  // ListUsable's: what it is restored from, the base first
  bool pinned = false;                  // ListUsable's: by Pin
  bool kept_for_load = false;           // ListUsable's: by KeepForLoad
};

// What a verification has read.
struct ReadBack {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

struct NewestChain {
  Chain chain;
  std::vector<std::string> passed_over;  // why each newer checkpoint is not the newest, in words
};

class Checkpoints {
 public:
  // REQUIRES: `files` outlives this.
  Checkpoints(FileSystem& files, std::string folder) : files_(&files), folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  FileSystem& files() const { return *files_; }

  // Returns all checkpoints, the newest first, by (round, created, whether it folds another, id); then those
  // whose manifest is broken or could not be read. Nothing but manifests is read. A folder that is not there
  // has none. Rounds never fall, as clocks may.
  Result<std::vector<ListedCheckpoint>> List() const;

  // The same, and whether each can be restored, as far as sizes tell: `chain`, or `why_not` even if there is
  // a manifest. A checkpoint that is removed meanwhile is left out.
  Result<std::vector<ListedCheckpoint>> ListUsable() const;

  // Returns the chain that ends with a checkpoint.
  Result<Chain> ChainOf(const std::string& id) const;

  // Returns the newest chain of which all manifests are whole and all files there, of the right size. Blocks
  // are verified as they are read; a reader who finds a damaged one asks for the newest without `refused`.
  // NOT_FOUND: the folder has no checkpoints. FAILED_PRECONDITION: it has, and none can be used. A checkpoint
  // that could not be read may be whole: the FileSystem's error is returned then, and no older checkpoint.
  Result<NewestChain> Newest(const std::vector<std::string>& refused = {}) const;

  // Returns whether a checkpoint can be restored, as far as manifests and sizes tell: its chain has no gap
  // and no foreign link, and all of the chain's files are there.
  Status CheckChain(const std::string& id) const;

  // Reads back every file of a checkpoint, and of no other of its chain.
  Status Verify(const std::string& id) const;
  // The same, and says how much that was.
  Result<ReadBack> ReadBackOf(const std::string& id) const;

  // Removes checkpoints that are older than the newest `keep` chains and no part of them, nor of the chain of
  // one that is pinned, and returns their ids. Chains that begin with the same base count as one. What is
  // broken stays for a person to see. Nothing is removed if a manifest could not be read. REQUIRES: keep > 0.
  Result<std::vector<std::string>> RemoveOld(std::size_t keep) const;

  // Keeps RemoveOld, of whatever process, from a checkpoint and its chain; OK: it is there, and stays until
  // Release. NOT_FOUND: there is none. RESOURCE_EXHAUSTED: kMaxPinned are pinned, or the disk is full.
  // FAILED_PRECONDITION: the pin's name is that of something else than a file.
  // Processes that pin at the same moment may pass kMaxPinned by one each. REQUIRES: IsCheckpointId(id).
  Status Pin(const std::string& id) const;
  // NOT_FOUND: there is no such checkpoint. FAILED_PRECONDITION: the pin is a folder. REQUIRES:
  // IsCheckpointId(id).
  Status Release(const std::string& id) const;

  // Before `loaded` is loaded, which checkpoint `copy` will save: keeps RemoveOld from `loaded`, and from
  // `newest`, the newest one by now. Where that is itself the copy that the load before made, what was newest
  // before that load stays kept in its place. Empty `newest`: there is none, and what a load has kept as the
  // newest stays kept. These do not count towards kMaxPinned, and Release lets them go, too. Errors are the
  // FileSystem's. REQUIRES: no other thread or process loads a checkpoint.
  Status KeepForLoad(const std::string& loaded, const std::string& newest, const std::string& copy) const;
  // After that load: lets go what earlier loads have kept, and this one does not.
  Status ForgetEarlierLoads(const std::string& loaded, const std::string& copy) const;

  // Removes what writers and RemoveOld left behind. REQUIRES: no checkpoint is being written.
  Status RemoveLeftovers() const;

 private:
  Result<Manifest> ReadManifest(const std::string& id) const;
  Result<Chain> ChainOf(const Manifest& last, const std::vector<ListedCheckpoint>& listed) const;
  Status CheckSizes(const Manifest& manifest) const;
  Status FirstUnusable(const Chain& chain, std::string& id) const;
  Result<bool> Has(const std::string& folder, std::string_view name) const;
  // Whether one of the two files is there.
  Result<bool> Stays(const std::string& folder) const;
  // The checkpoints that loads keep, with what their files say.
  Result<std::map<std::string, std::string>> KeptForLoads() const;
  // The checkpoints that are pinned, and those that they are restored from.
  Result<std::set<std::string>> PinnedAndTheirChains(const std::vector<ListedCheckpoint>& listed) const;
  // Returns whether it was removed: one that somebody has pinned meanwhile is not.
  Result<bool> RemoveCheckpoint(const std::string& id) const;

  FileSystem* files_;
  std::string folder_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_CHECKPOINTS_H_
