#include "server/rpc/checkpoint_service.h"

#include <algorithm>
#include <future>
#include <random>
#include <utility>

#include "server/durability/compaction.h"
#include "server/durability/hex.h"
#include "server/durability/manifest.h"
#include "server/durability/threads.h"
#include "server/intake/quoted.h"
#include "server/rpc/grpc_status.h"

namespace slotwise {
namespace {

Status NoSuchCheckpoint(const std::string& id) {
  return NotFound("there is no checkpoint " + Quoted(id)).Because(Reason::kNoCheckpoint);
}

Status Stopping() { return Unavailable("the server is stopping").Because(Reason::kStopping); }

// Returns the error for an existing checkpoint: it is damaged; or it may be whole but the system cannot read
// it, so trying again does not help.
Status Unusable(const Status& why) {
  if (why.code() == StatusCode::kFailedPrecondition) return DataLoss(why.message());
  return why.code() == StatusCode::kUnavailable ? Status(StatusCode::kInternal, why.message()) : why;
}

// Returns an existing checkpoint, even if it cannot be used.
Result<ListedCheckpoint> Find(const Checkpoints& checkpoints, const std::string& id) {
  auto listed = checkpoints.ListUsable();
  if (!listed.ok()) return listed.status();
  const auto found = std::ranges::find(*listed, id, &ListedCheckpoint::id);
  if (found == listed->end()) return NoSuchCheckpoint(id);
  return std::move(*found);
}

Result<VerifiedCheckpoint> ReadChain(const Checkpoints& checkpoints, const std::string& id) {
  const auto found = Find(checkpoints, id);
  if (!found.ok()) return found.status();
  if (found->chain.empty()) return Unusable(found->why_not);
  VerifiedCheckpoint verified{.chain = found->chain, .read = {}};
  for (const std::string& link : found->chain) {
    const auto read = checkpoints.ReadBackOf(link);
    if (read.status().code() == StatusCode::kFailedPrecondition) {
      // It may have been removed meanwhile, because newer ones are kept.
      const auto still = Find(checkpoints, id);
      return still.ok() ? DataLoss(read.status().message()) : still.status();
    }
    if (!read.ok()) return Unusable(read.status());
    verified.read.files += read->files;
    verified.read.bytes += read->bytes;
  }
  return verified;
}

// Returns the id of a new base: the id of the chain's last checkpoint, with a random end, as the engine and
// other ranks may compact the chain, too.
std::string IdOfFold(const std::string& id) {
  const std::string end = "-" + Hex(std::random_device()()).substr(8);
  constexpr std::size_t kMost = 64;  // manifest.h
  return id.substr(0, kMost - end.size()) + end;
}

Result<ListedCheckpoint> Fold(const Checkpoints& checkpoints, const std::string& id,
                              const std::string& server_version) {
  const auto listed = checkpoints.ListUsable();
  if (!listed.ok()) return listed.status();
  const auto found = std::ranges::find(*listed, id, &ListedCheckpoint::id);
  if (found == listed->end()) return NoSuchCheckpoint(id);
  if (found->chain.empty()) return Unusable(found->why_not);
  for (const ListedCheckpoint& other : *listed) {
    if (other.manifest && other.manifest->folds == found->manifest->name() && !other.chain.empty())
      return AlreadyExists("checkpoint " + other.id + " is " + id + " folded into a base");
  }
  const auto chain = checkpoints.ChainOf(id);
  if (!chain.ok()) return chain.status();
  const auto base = Compact(checkpoints.files(), checkpoints.folder(), *chain,
                            {.id = IdOfFold(id), .server_version = server_version});
  if (base.ok()) return Find(checkpoints, base->id);
  if (base.status().code() != StatusCode::kFailedPrecondition || chain->size() < 2) return base.status();
  // It may have been removed meanwhile, because newer ones are kept.
  const auto still = Find(checkpoints, id);
  return still.ok() ? DataLoss(base.status().message()) : still.status();
}

}  // namespace

CheckpointService::CheckpointService(std::optional<Checkpoints> checkpoints)
    : checkpoints_(std::move(checkpoints)) {
  if (!checkpoints_) return;
  reader_.emplace(SystemThreads());
  long_worker_.emplace(SystemThreads());
}

Status CheckpointService::KeepsCheckpoints() const {
  if (checkpoints_) return {};
  return FailedPrecondition("the server keeps nothing: it was started without a data folder (--data)")
      .Because(Reason::kNoDataFolder);
}

bool CheckpointService::stopping() {
  const std::scoped_lock lock(mutex_);
  return stopping_;
}

template <class Value>
void CheckpointService::Ask(const std::function<Result<Value>()>& answer, const Done<Value>& done) {
  if (Status keeps = KeepsCheckpoints(); !keeps.ok()) return done(keeps);
  {
    std::unique_lock lock(mutex_);
    if (!stopping_ && waiting_ < kMostWaiting) {
      ++waiting_;
      return reader_->Post([this, answer, done] {
        const bool late = stopping();
        Result<Value> found = late ? Result<Value>(Stopping()) : answer();
        {
          const std::scoped_lock relock(mutex_);
          --waiting_;
        }
        done(std::move(found));
      });
    }
    if (stopping_) {
      lock.unlock();
      return done(Stopping());
    }
  }
  done(ResourceExhausted(std::to_string(kMostWaiting) +
                         " questions about checkpoints wait, the most that may"));
}

void CheckpointService::List(const Done<std::vector<ListedCheckpoint>>& done) {
  Ask<std::vector<ListedCheckpoint>>([this] { return checkpoints_->ListUsable(); }, done);
}

void CheckpointService::Describe(const std::string& id, const Done<DescribedCheckpoint>& done) {
  const auto describe = [this, id]() -> Result<DescribedCheckpoint> {
    auto found = Find(*checkpoints_, id);
    if (!found.ok()) return found.status();
    if (!found->manifest) return Unusable(found->why_not);
    return DescribedCheckpoint{.listed = std::move(*found), .folder = checkpoints_->folder() + "/" + id};
  };
  Ask<DescribedCheckpoint>(describe, done);
}

void CheckpointService::Pin(const std::string& id, const Done<ListedCheckpoint>& done) {
  const auto pin = [this, id]() -> Result<ListedCheckpoint> {
    const auto found = Find(*checkpoints_, id);
    if (!found.ok()) return found.status();
    if (found->chain.empty()) return Unusable(found->why_not);
    if (Status pinned = checkpoints_->Pin(id); !pinned.ok()) return pinned;
    return Find(*checkpoints_, id);
  };
  Ask<ListedCheckpoint>(pin, done);
}

void CheckpointService::Release(const std::string& id, const Done<ListedCheckpoint>& done) {
  const auto release = [this, id]() -> Result<ListedCheckpoint> {
    if (!IsCheckpointId(id)) return NoSuchCheckpoint(id);
    if (Status released = checkpoints_->Release(id); !released.ok()) return released;
    return ListedCheckpoint{.id = id, .manifest = {}, .why_not = {}};  // it may have been removed meanwhile
  };
  Ask<ListedCheckpoint>(release, done);
}

template <class Value>
void CheckpointService::Begin(const std::string& id, const std::string& doing, std::function<bool()> gone,
                              StoppableFiles::Changes changes,
                              std::function<Result<Value>(const Checkpoints&)> work, Done<Value> done) {
  if (Status keeps = KeepsCheckpoints(); !keeps.ok()) return done(keeps);
  std::unique_lock lock(mutex_);
  if (stopping_ || !long_work_.empty() || !IsCheckpointId(id)) {
    const Status refusal = stopping_ ? Stopping()
                           : !IsCheckpointId(id)
                               ? NoSuchCheckpoint(id)
                               : ResourceExhausted("checkpoint " + long_work_ +
                                                   ", and a rank verifies or compacts one at a time");
    lock.unlock();
    return done(refusal);
  }
  long_work_ = id + " is being " + doing;
  long_worker_->Post([this, changes, gone = std::move(gone), work = std::move(work), done = std::move(done)] {
    StoppableFiles files(
        checkpoints_->files(), [&] { return stopping() || gone(); }, changes);
    auto result = work(Checkpoints(files, checkpoints_->folder()));
    {
      const std::scoped_lock relock(mutex_);
      long_work_.clear();
    }
    if (result.status().code() == StatusCode::kCancelled && stopping()) result = Stopping();
    done(std::move(result));
  });
}

void CheckpointService::Verify(const std::string& id, std::function<bool()> gone,
                               Done<VerifiedCheckpoint> done) {
  const auto verify = [id](const Checkpoints& checkpoints) { return ReadChain(checkpoints, id); };
  Begin<VerifiedCheckpoint>(id, "verified", std::move(gone), StoppableFiles::Changes::kRefused, verify,
                            std::move(done));
}

void CheckpointService::Compact(const std::string& id, const std::string& server_version,
                                std::function<bool()> gone, Done<ListedCheckpoint> done) {
  const auto compact = [id, server_version](const Checkpoints& checkpoints) {
    return Fold(checkpoints, id, server_version);
  };
  Begin<ListedCheckpoint>(id, "compacted", std::move(gone), StoppableFiles::Changes::kAllowed, compact,
                          std::move(done));
}

void CheckpointService::Stop() {
  {
    const std::scoped_lock lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
  }
  // A worker drops waiting tasks when it ends, but every caller must get an answer.
  for (std::optional<Worker>* const worker : {&reader_, &long_worker_}) {
    if (!*worker) continue;
    std::promise<void> all_answered;
    (*worker)->Post([&] { all_answered.set_value(); });
    all_answered.get_future().wait();
    worker->reset();
  }
}

}  // namespace slotwise
