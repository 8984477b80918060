#include "server/rpc/checkpoint_desk.h"

#include <algorithm>
#include <future>
#include <utility>

#include "server/durability/threads.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/stoppable_files.h"

namespace slotwise {
namespace {

Status NoSuchCheckpoint(const std::string& id) { return NotFound("there is no checkpoint " + Quoted(id)); }

Status Stopping() { return Unavailable("the server is stopping"); }

// Returns a checkpoint that is there, whether it can be used or not.
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
  if (found->chain.empty()) return DataLoss(found->why_not.message());
  VerifiedCheckpoint verified{.chain = found->chain, .read = {}};
  for (const std::string& link : found->chain) {
    const auto read = checkpoints.ReadBackOf(link);
    if (read.status().code() == StatusCode::kFailedPrecondition) {
      // Somebody may have removed it meanwhile, because newer ones are kept.
      const auto still = Find(checkpoints, id);
      return still.ok() ? DataLoss(read.status().message()) : still.status();
    }
    if (!read.ok()) return read.status();
    verified.read.files += read->files;
    verified.read.bytes += read->bytes;
  }
  return verified;
}

}  // namespace

CheckpointDesk::CheckpointDesk(std::optional<Checkpoints> checkpoints)
    : checkpoints_(std::move(checkpoints)) {
  if (!checkpoints_) return;
  reader_.emplace(SystemThreads());
  verifier_.emplace(SystemThreads());
}

Status CheckpointDesk::KeepsCheckpoints() const {
  if (checkpoints_) return {};
  return FailedPrecondition("the server keeps nothing: it was started without a data folder (--data)");
}

bool CheckpointDesk::stopping() {
  const std::scoped_lock lock(mutex_);
  return stopping_;
}

template <class Value>
void CheckpointDesk::Ask(const std::function<Result<Value>()>& answer, const Done<Value>& done) {
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

void CheckpointDesk::List(const Done<std::vector<ListedCheckpoint>>& done) {
  Ask<std::vector<ListedCheckpoint>>([this] { return checkpoints_->ListUsable(); }, done);
}

void CheckpointDesk::Describe(const std::string& id, const Done<DescribedCheckpoint>& done) {
  const auto describe = [this, id]() -> Result<DescribedCheckpoint> {
    auto found = Find(*checkpoints_, id);
    if (!found.ok()) return found.status();
    if (!found->manifest) return DataLoss(found->why_not.message());
    return DescribedCheckpoint{.listed = std::move(*found), .folder = checkpoints_->folder() + "/" + id};
  };
  Ask<DescribedCheckpoint>(describe, done);
}

void CheckpointDesk::Verify(const std::string& id, std::function<bool()> gone,
                            Done<VerifiedCheckpoint> done) {
  if (Status keeps = KeepsCheckpoints(); !keeps.ok()) return done(keeps);
  std::unique_lock lock(mutex_);
  if (stopping_ || !verifying_.empty() || !IsCheckpointId(id)) {
    const Status refusal = stopping_ ? Stopping()
                           : !IsCheckpointId(id)
                               ? NoSuchCheckpoint(id)
                               : ResourceExhausted("checkpoint " + verifying_ +
                                                   " is being verified, and a rank verifies one at a time");
    lock.unlock();
    return done(refusal);
  }
  verifying_ = id;
  verifier_->Post([this, id, gone = std::move(gone), done = std::move(done)] {
    StoppableFiles files(checkpoints_->files(), [&] { return stopping() || gone(); });
    auto verified = ReadChain(Checkpoints(files, checkpoints_->folder()), id);
    {
      const std::scoped_lock relock(mutex_);
      verifying_.clear();
    }
    if (verified.status().code() == StatusCode::kCancelled && stopping()) verified = Stopping();
    done(std::move(verified));
  });
}

void CheckpointDesk::Stop() {
  {
    const std::scoped_lock lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
  }
  // Workers forget what waits when they end, and everybody must be answered.
  for (std::optional<Worker>* const worker : {&reader_, &verifier_}) {
    if (!*worker) continue;
    std::promise<void> all_answered;
    (*worker)->Post([&] { all_answered.set_value(); });
    all_answered.get_future().wait();
    worker->reset();
  }
}

}  // namespace slotwise
