#include "client/cpp/export.h"

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <random>
#include <utility>

#include "client/cpp/backoff.h"
#include "client/cpp/from_grpc.h"

namespace slotwise::client {
namespace {

using std::chrono::steady_clock;

// A rank waits once so many of its replies wait for the caller.
constexpr std::size_t kAhead = 2;

}  // namespace

class Export::Event final : public Arrival {
 public:
  explicit Event(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
  void Arrive(bool ok) override;

 private:
  const std::shared_ptr<Stream> stream_;
};

// A stream has one event on its way, or is paused. The export's mutex guards it.
class Export::Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(std::shared_ptr<Export> owner, std::size_t rank, const grpc::ByteBuffer& request)
      : owner_(std::move(owner)),
        rank_(rank),
        request_(request),
        deadline_(steady_clock::now() + owner_->call_.timeout),
        random_(static_cast<std::uint32_t>(deadline_.time_since_epoch().count() + static_cast<long>(rank))) {}

  void StartLocked() {
    attempt_ = std::make_unique<Attempt>();
    state_ = State::kStarting;
    owner_->channels_.access().Add(attempt_->context);
    attempt_->stream = owner_->ranks_->at(rank_, 0).grpc->stub().PrepareCall(&attempt_->context, kMethod,
                                                                             &owner_->channels_.queue());
    ++attempts_;
    attempt_->stream->StartCall(NewEvent());
  }

  void CancelLocked() {
    if (state_ == State::kWaiting) return alarm_.Cancel();
    attempt_->context.TryCancel();
    if (state_ == State::kPaused) FinishLocked();
  }

  // Called after the caller took a reply of this rank's.
  void GoOnLocked() {
    --ahead_;
    if (state_ == State::kPaused) ReadLocked();
  }

  void Arrive(bool ok) {
    Lock lock(owner_->mutex_);
    switch (state_) {
      case State::kStarting:
        if (!ok) break;
        state_ = State::kWriting;
        return attempt_->stream->WriteLast(request_, grpc::WriteOptions(), NewEvent());
      case State::kWriting:
        if (!ok) break;
        return ReadLocked();
      case State::kReading:
        if (!ok) break;
        TakeInLocked();
        return;
      case State::kWaiting:
        if (!owner_->failure_.ok()) return EndLocked(std::move(lock));
        return StartLocked();
      case State::kFinishing:
        return FinishedLocked(std::move(lock));
      case State::kPaused:
        return;  // no event is on its way then
    }
    FinishLocked();
  }

 private:
  enum class State { kStarting, kWriting, kReading, kPaused, kFinishing, kWaiting };
  static constexpr const char* kMethod = "/slotwise.v1.Rows/Export";

  // One try of the call.
  struct Attempt {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    grpc::ByteBuffer reply;
    grpc::Status status;
  };

  void* NewEvent() { return static_cast<Arrival*>(new Event(shared_from_this())); }

  void ReadLocked() {
    state_ = State::kReading;
    attempt_->stream->Read(&attempt_->reply, NewEvent());
  }

  void FinishLocked() {
    state_ = State::kFinishing;
    attempt_->stream->Finish(&attempt_->status, NewEvent());
  }

  void TakeInLocked() {
    // Nobody would take the reply any more, and it would keep this stream, and so the export, for ever.
    if (!owner_->failure_.ok()) return FinishLocked();
    began_ = true;
    owner_->replies_.push_back({shared_from_this(), std::exchange(attempt_->reply, {})});
    owner_->changed_.notify_all();
    state_ = State::kPaused;
    if (++ahead_ < kAhead) ReadLocked();
  }

  void FinishedLocked(Lock lock) {
    const RankAddress& at = owner_->ranks_->addresses()[rank_];
    const std::string& address = at.address;
    const Status status = FromGrpc(attempt_->status, attempt_->context, address, at.gives_reasons);
    if (!status.ok() && owner_->failure_.ok()) {
      const auto backoff = WaitToRetry(status.retry_after(), attempts_, random_);
      if (!began_ && IsWorthAnotherTry(status) && steady_clock::now() + backoff < deadline_) {
        state_ = State::kWaiting;
        alarm_.Set(&owner_->channels_.queue(), Until(steady_clock::now() + backoff), NewEvent());
        lock.unlock();
        return owner_->channels_.Log(address + ": " + std::string(ToString(status.code())) + ": " +
                                     status.message() + "; trying again");
      }
      owner_->FailLocked(ForCaller(status, address, owner_->call_.timeout));
    }
    EndLocked(std::move(lock));
  }

  void EndLocked(Lock lock) {
    owner_->streams_[rank_] = nullptr;
    --owner_->running_;
    owner_->EndIfOver(std::move(lock));
  }

  const std::shared_ptr<Export> owner_;
  const std::size_t rank_;
  const grpc::ByteBuffer request_;
  const steady_clock::time_point deadline_;  // to begin
  std::minstd_rand random_;
  State state_ = State::kStarting;
  std::unique_ptr<Attempt> attempt_;
  grpc::Alarm alarm_;
  std::size_t attempts_ = 0;
  std::size_t ahead_ = 0;  // replies that wait for the caller
  bool began_ = false;     // some reply came
};

void Export::Event::Arrive(bool ok) {
  const std::unique_ptr<Event> self(this);
  stream_->Arrive(ok);
}

Export::Export(Channels& channels, const Call& call, std::vector<grpc::ByteBuffer> requests)
    : channels_(channels), ranks_(channels.now()), call_(call), requests_(std::move(requests)) {}

Export::~Export() = default;

void Export::Start(std::function<void()> on_over) {
  Lock lock(mutex_);
  on_over_ = std::move(on_over);
  EndIfOver(std::move(lock));
}

void Export::StartStreamsLocked() {
  const grpc::ByteBuffer& request = requests_[next_request_++];
  running_ = ranks_->ranks();
  streams_.assign(running_, nullptr);
  for (std::size_t rank = 0; rank < streams_.size(); ++rank) {
    streams_[rank] = std::make_shared<Stream>(shared_from_this(), rank, request);
    streams_[rank]->StartLocked();
  }
}

void Export::EndIfOver(Lock lock) {
  if (running_ > 0) return;
  if (failure_.ok() && next_request_ < requests_.size()) return StartStreamsLocked();
  over_ = true;
  const auto on_over = std::exchange(on_over_, nullptr);
  changed_.notify_all();
  lock.unlock();
  on_over();
}

void Export::FailLocked(Status status) {
  if (!failure_.ok()) return;
  failure_ = std::move(status);
  replies_.clear();
  changed_.notify_all();
  for (const auto& stream : streams_) {
    if (stream) stream->CancelLocked();
  }
}

void Export::Cancel(const Status& status) {
  const Lock lock(mutex_);
  FailLocked(status);
}

bool Export::Wait(steady_clock::time_point time) {
  Lock lock(mutex_);
  // The timeout runs while the caller waits, in however many pieces.
  if (!waiting_until_) waiting_until_ = steady_clock::now() + call_.timeout;
  if (changed_.wait_until(lock, std::min(time, *waiting_until_), [this] { return IsThereLocked(); }))
    return true;
  if (steady_clock::now() < *waiting_until_) return false;
  FailLocked(ForCaller(DeadlineExceeded("no rank sent anything"), "a rank", call_.timeout));
  return true;
}

Result<std::optional<grpc::ByteBuffer>> Export::Take() {
  while (!Wait(steady_clock::time_point::max())) {
  }
  const Lock lock(mutex_);
  waiting_until_.reset();
  if (!failure_.ok()) return failure_;
  if (replies_.empty()) return std::optional<grpc::ByteBuffer>();
  const Reply reply = std::move(replies_.front());
  replies_.pop_front();
  reply.stream->GoOnLocked();
  return std::optional(reply.bytes);
}

}  // namespace slotwise::client
