// Implements exports, in which all ranks send their rows, and RowStream, which reads one.
#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "client/cpp/backoff.h"
#include "client/cpp/client_impl.h"
#include "client/cpp/from_grpc.h"
#include "client/cpp/messages.h"
#include "slotwise/status.h"
#include "slotwise/v1/rows.pb.h"

namespace slotwise::client {
namespace {

using std::chrono::steady_clock;

// A rank pauses when so many of its replies wait for the caller.
constexpr std::size_t kAhead = 2;

}  // namespace

// An Export reads one stream of rows from each rank, all at once.
//
// Each rank's stream has the rows of that rank alone, so a stream never goes to another rank. A stream that
// cannot begin is tried again until the timeout. A stream that breaks later fails the export, because the
// caller has seen some of its rows already. Each stream reads a little ahead, and then waits until the caller
// takes its replies.
// Thread-safety: safe from any thread; one thread at a time takes replies.
class Export final : public Ongoing, public std::enable_shared_from_this<Export> {
 public:
  // `requests` are v1.ExportRequests. Each goes to all ranks; the next one follows when all have answered.
  // `channels` outlive the export's streams.
  Export(Channels& channels, const Call& call, std::vector<grpc::ByteBuffer> requests);
  ~Export() override;

  // Calls `on_over` once, when nothing is in flight any more; `channels` may then be destroyed.
  void Start(std::function<void()> on_over);
  void Cancel(const Status& status) override;

  // Waits until there is a reply, an error or the end, or until `time`; returns whether there is one.
  bool Wait(std::chrono::steady_clock::time_point time);
  // Takes the next reply, or nothing at the end. Ends the export with DEADLINE_EXCEEDED if no rank sends
  // anything within the timeout.
  Result<std::optional<grpc::ByteBuffer>> Take();

 private:
  class Stream;  // of one rank, for one request
  class Event;   // a stream's next event
  struct Reply {
    std::shared_ptr<Stream> stream;
    grpc::ByteBuffer bytes;
  };
  using Lock = std::unique_lock<std::mutex>;

  bool IsThereLocked() const { return !replies_.empty() || over_ || !failure_.ok(); }
  void StartStreamsLocked();
  void FailLocked(Status status);
  // Called after a stream's event was handled; ends the export if that was the last one.
  void EndIfOver(Lock lock);

  Channels& channels_;
  const std::shared_ptr<Connections> ranks_;  // the ranks at the export's begin; each sends its own rows
  const Call call_;
  const std::vector<grpc::ByteBuffer> requests_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::function<void()> on_over_;
  std::size_t next_request_ = 0;
  std::vector<std::shared_ptr<Stream>> streams_;  // by rank; null when it has ended
  std::size_t running_ = 0;                       // streams that have not ended
  std::deque<Reply> replies_;
  Status failure_;
  bool over_ = false;
  std::optional<std::chrono::steady_clock::time_point> waiting_until_;  // while the caller waits
};

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
        return;  // no event is on its way
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
    // The caller takes no more replies, and a waiting reply would keep this stream and the export for ever.
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
  const steady_clock::time_point deadline_;  // for the stream's begin
  std::minstd_rand random_;
  State state_ = State::kStarting;
  std::unique_ptr<Attempt> attempt_;
  grpc::Alarm alarm_;
  std::size_t attempts_ = 0;
  std::size_t ahead_ = 0;  // replies that wait for the caller
  bool began_ = false;     // a reply has come
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
  // The timeout runs only while the caller waits.
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

namespace slotwise {
namespace {

std::vector<Key> Unique(std::span<const Key> keys) {
  std::vector<Key> unique(keys.begin(), keys.end());
  std::ranges::sort(unique);
  unique.erase(std::ranges::unique(unique).begin(), unique.end());
  return unique;
}

}  // namespace

class RowStream::Impl {
 public:
  explicit Impl(std::shared_ptr<client::Export> rows) : rows_(std::move(rows)) {}
  ~Impl() { rows_->Cancel(Cancelled("nobody reads the export any more")); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  bool Wait(std::chrono::milliseconds most) { return rows_->Wait(std::chrono::steady_clock::now() + most); }

  Result<std::optional<RowsView>> Next() {
    const auto reply = rows_->Take();
    if (!reply.ok()) return reply.status();
    if (!*reply) return std::optional<RowsView>();
    if (Status status = client::ReadExportReply(**reply, own_); !status.ok()) {
      rows_->Cancel(status);
      return status;
    }
    if (generation_ == 0) generation_ = own_.generation;
    if (own_.generation != generation_) {
      const Status replaced =
          DataLoss("a checkpoint was loaded while rows were read: those before are of another state")
              .Because(Reason::kStepsLost);
      rows_->Cancel(replaced);
      return replaced;
    }
    return std::optional(RowsView{.keys = own_.keys, .values = own_.values, .state = own_.state});
  }

 private:
  const std::shared_ptr<client::Export> rows_;
  client::ExportedRows own_;
  std::uint64_t generation_ = 0;  // of the first reply
};

RowStream::RowStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RowStream::~RowStream() = default;
RowStream::RowStream(RowStream&&) noexcept = default;
RowStream& RowStream::operator=(RowStream&&) noexcept = default;

Result<std::optional<RowsView>> RowStream::Next() { return impl_->Next(); }
bool RowStream::Wait(std::chrono::milliseconds most) { return impl_->Wait(most); }

Result<RowStream> Client::Export(std::string_view table, bool with_state,
                                 std::optional<std::span<const Key>> keys, const CallOptions& options) {
  v1::ExportRequest request;
  request.set_table(std::string(table));
  request.set_with_state(with_state);
  std::vector<grpc::ByteBuffer> requests;
  if (!keys) requests.push_back(client::Serialize(request));
  // A request without keys asks for all keys, so if there are no keys, no request is made.
  const std::vector<Key> wanted = keys ? Unique(*keys) : std::vector<Key>();
  const std::size_t most = impl_->RowsAMessage(sizeof(Key));
  for (std::size_t first = 0; first < wanted.size(); first += most) {
    const auto some = std::span(wanted).subspan(first, std::min(most, wanted.size() - first));
    request.set_keys(std::string(reinterpret_cast<const char*>(some.data()), some.size_bytes()));
    requests.push_back(client::Serialize(request));
  }
  // Every rank sends its own rows, so the export must know all present ranks of the server.
  if (const auto topology = Topology(options); !topology.ok()) return topology.status();
  const client::Call call = impl_->CallOf(options);
  const auto rows = std::make_shared<client::Export>(impl_->channels(), call, std::move(requests));
  if (Status status = impl_->runs().Enter(rows, call.stop); !status.ok()) return status;
  const std::weak_ptr<client::Export> weak = rows;
  rows->Start([impl = impl_.get(), weak] { impl->runs().Leave(weak.lock()); });
  return RowStream(std::make_unique<RowStream::Impl>(rows));
}

}  // namespace slotwise
