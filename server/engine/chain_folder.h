// ChainFolder: folds a chain of checkpoints into a base when the chain is half as long as it may be. Folding
// works on the files alone, so that ranks seldom have to write a base of all rows. Rank 0 folds in the
// background; all ranks know the same state of it.
// Thread-safety: the engine's thread only.
#ifndef SLOTWISE_SERVER_ENGINE_CHAIN_FOLDER_H_
#define SLOTWISE_SERVER_ENGINE_CHAIN_FOLDER_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <utility>

#include "server/engine/worker.h"

namespace slotwise {

class ChainFolder {
 public:
  // Makes this rank the one that folds, on a thread of its own.
  void WorkHere(Threads& threads) { worker_.emplace(threads); }
  // Waits until the fold under way has ended.
  void Stop() { worker_.reset(); }

  // Returns whether a chain is being folded; its files are still read then.
  bool busy() const { return folding_ > 0; }
  // Returns whether the newest checkpoint belongs to a chain that was or is being folded.
  bool folds_newest() const { return folds_newest_; }
  // The newest checkpoint is a base, or there is none.
  void NoteNewChain() { folds_newest_ = false; }

  // Posts `fold` to the worker if the newest chain, of `links` checkpoints, is at least half as long as the
  // `most` deltas that a chain may have.
  void FoldIfLong(std::size_t links, std::size_t most, std::function<void()> fold) {
    if (busy() || links < 2 || 2 * links < most) return;
    folding_ = links;
    folds_newest_ = true;
    if (worker_) worker_->Post(std::move(fold));
  }
  // Rank 0 has reported that it folded the chain, or `failed`. Returns how many links shorter the newest
  // chain is.
  std::size_t NoteFolded(bool failed) {
    const std::size_t links = std::exchange(folding_, 0);
    return failed || !folds_newest_ ? 0 : links - 1;
  }

 private:
  std::size_t folding_ = 0;  // links of the chain being folded; 0: none
  bool folds_newest_ = false;
  std::optional<Worker> worker_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CHAIN_FOLDER_H_
