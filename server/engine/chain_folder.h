// ChainFolder: folds a chain of checkpoints by its files when the chain is half as long as it may be, so that
// a base of all rows, which every rank would have to write, is seldom due. Rank 0 does the work, beside its
// rounds; all ranks know the same of it.
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
  // This rank does the work, on a thread of its own.
  void WorkHere(Threads& threads) { worker_.emplace(threads); }
  // Waits for the work.
  void Stop() { worker_.reset(); }

  // Returns whether a chain is being folded, and so is still read.
  bool busy() const { return folding_ > 0; }
  // Returns whether the newest checkpoint is of a chain that was folded, or is being folded.
  bool folds_newest() const { return folds_newest_; }
  // The newest checkpoint is a base, or there is none.
  void NoteNewChain() { folds_newest_ = false; }

  // Begins to fold the newest chain, of `links` checkpoints, if that is long for one that may have `most`
  // deltas: by `fold`, on the worker.
  void FoldIfLong(std::size_t links, std::size_t most, std::function<void()> fold) {
    if (busy() || links < 2 || 2 * links < most) return;
    folding_ = links;
    folds_newest_ = true;
    if (worker_) worker_->Post(std::move(fold));
  }
  // Rank 0 has told that it has folded the chain, or could not. Returns how many links fewer the newest chain
  // has.
  std::size_t NoteFolded(bool failed) {
    const std::size_t links = std::exchange(folding_, 0);
    return failed || !folds_newest_ ? 0 : links - 1;
  }

 private:
  std::size_t folding_ = 0;  // links of the chain that is being folded; 0: none
  bool folds_newest_ = false;
  std::optional<Worker> worker_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CHAIN_FOLDER_H_
