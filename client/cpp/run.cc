#include "client/cpp/run.h"

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <new>
#include <utility>

#include "client/cpp/backoff.h"
#include "client/cpp/from_grpc.h"

namespace slotwise::client {
namespace {

using std::chrono::steady_clock;

// What gRPC says when our own clock, not the server, ended a try.
constexpr std::string_view kOwnDeadline = "Deadline Exceeded";

}  // namespace

class Run::Flight {
 public:
  Flight(std::shared_ptr<Run> run, std::size_t index, std::shared_ptr<Connections> connections)
      : run_(std::move(run)), index_(index), connections_(std::move(connections)) {}
  virtual ~Flight() = default;

  virtual void Start(std::size_t attempt) = 0;
  virtual void Cancel() = 0;

 protected:
  Connections::Channel& ChannelOf(std::size_t attempt) {
    rank_ = run_->requests_[index_].rank + attempt;
    return Channel();
  }
  // The flight is over, and about to be destroyed.
  void End(const grpc::Status& status, const std::function<Status()>& read) {
    Connections::Channel& channel = Channel();
    if (status.ok() && channel.NoteAnswer()) run_->channels_.NoteLost();
    if (!status.ok() && IsWorthAnotherTry(status) && RetryAfter(status).count() == 0) channel.NoteFailure();
    run_->FlightEnded(index_, channel.address, status, read);
  }

  const std::shared_ptr<Run> run_;
  const std::size_t index_;
  const std::shared_ptr<Connections> connections_;

 private:
  Connections::Channel& Channel() const {
    const Request& request = run_->requests_[index_];
    if (!request.gpu.empty()) return *connections_->by_gpu(request.gpu);
    return connections_->at(rank_, request.channel);
  }

  std::size_t rank_ = 0;
};

class Run::GrpcFlight final : public Flight, public Arrival {
 public:
  using Flight::Flight;

  void Start(std::size_t attempt) override {
    Request& request = run_->requests_[index_];
    if (request.write) request.message = std::exchange(request.write, nullptr)();
    context_.set_deadline(Until(run_->call_.deadline));
    context_.set_wait_for_ready(request.once);
    run_->channels_.access().Add(context_);
    if (!run_->call_.traceparent.empty()) context_.AddMetadata("traceparent", run_->call_.traceparent);
    Connections::Channel& channel = ChannelOf(attempt);
    channel.NoteState();
    reader_ =
        channel.stub->PrepareUnaryCall(&context_, request.method, request.message, &run_->channels_.queue());
    reader_->StartCall();
    reader_->Finish(&reply_, &status_, static_cast<Arrival*>(this));
  }

  void Cancel() override { context_.TryCancel(); }

  void Arrive(bool) override {
    const std::unique_ptr<GrpcFlight> self(this);
    End(WithRetryAfter(status_, context_), [this] { return run_->on_reply_(index_, reply_); });
  }

 private:
  grpc::ClientContext context_;
  grpc::ByteBuffer reply_;
  grpc::Status status_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader_;
};

class Run::DataFlight final : public Flight {
 public:
  using Flight::Flight;

  void Start(std::size_t attempt) override {
    Connections::Channel& channel = ChannelOf(attempt);
    channel.NoteState();
    link_ = channel.data.get();
    call_ = link_->Send(
        run_->requests_[index_].data, run_->call_.deadline,
        [this](const grpc::Status& status, const Status& read) {
          const std::unique_ptr<DataFlight> self(this);
          End(status, [&read] { return read; });
        },
        run_->call_.traceparent);
  }

  void Cancel() override { link_->Cancel(call_); }

 private:
  DataLink* link_ = nullptr;
  std::uint64_t call_ = 0;
};

class Run::Wait final : public Arrival {
 public:
  Wait(std::shared_ptr<Run> run, std::size_t index) : run_(std::move(run)), index_(index) {}

  void Start(steady_clock::duration time) {
    alarm_.Set(&run_->channels_.queue(), Until(steady_clock::now() + time), static_cast<Arrival*>(this));
  }

  void Cancel() { alarm_.Cancel(); }

  void Arrive(bool) override {
    const std::unique_ptr<Wait> self(this);
    run_->Send(index_);
  }

 private:
  const std::shared_ptr<Run> run_;
  const std::size_t index_;
  grpc::Alarm alarm_;
};

Run::Run(Channels& channels, const Call& call, std::vector<Request> requests, OnReply on_reply,
         OnDone on_done, std::shared_ptr<Connections> to)
    : channels_(channels),
      to_(std::move(to)),
      call_(call),
      requests_(std::move(requests)),
      on_reply_(std::move(on_reply)),
      on_done_(std::move(on_done)),
      attempts_(requests_.size()),
      flights_(requests_.size()),
      waits_(requests_.size()),
      reasons_(requests_.size()),
      pending_(requests_.size()),
      // The seed only decides how long to wait. Seeds differ, so that trainers that failed together do not
      // return together.
      random_(static_cast<std::uint32_t>(
          reinterpret_cast<std::uintptr_t>(this) >> 4 ^
          static_cast<std::uintptr_t>(call_.deadline.time_since_epoch().count()))) {}

void Run::Start() {
  const auto self = shared_from_this();  // keeps the run alive if the last reply comes before Start returns
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    // A message is written without the lock that replies need.
    Request& request = requests_[i];
    if (request.write &&
        (request.data == nullptr || To()->at(request.rank, request.channel).data == nullptr)) {
      try {
        request.message = std::exchange(request.write, nullptr)();
      } catch (const std::bad_alloc&) {
        Cancel(ResourceExhausted("there is no memory for a request"));
      }
    }
    Send(i);
  }
}

void Run::Refuse(const Status& status) { std::exchange(on_done_, nullptr)(status); }

// pending_ counts the request already, and counts its flight from here on.
void Run::Send(std::size_t index) {
  std::unique_lock lock(mutex_);
  waits_[index] = nullptr;
  if (!failure_.ok()) {
    --pending_;
    return EndIfOver(std::move(lock));
  }
  const std::size_t attempt = attempts_[index]++;
  std::unique_ptr<Flight> flight;
  auto to = To();  // once: the client may move to connections of another kind meanwhile
  if (const std::string& gpu = requests_[index].gpu; !gpu.empty() && to->by_gpu(gpu) == nullptr) {
    FailLocked(FailedPrecondition("the server has no rank that shares memory of GPU " + gpu));
    --pending_;
    return EndIfOver(std::move(lock));
  }
  const Request& request = requests_[index];
  const bool by_data =
      request.data != nullptr &&
      (!request.gpu.empty() || to->at(request.rank + attempt, request.channel).data != nullptr);
  if (by_data) {
    flight = std::make_unique<DataFlight>(shared_from_this(), index, std::move(to));
  } else {
    flight = std::make_unique<GrpcFlight>(shared_from_this(), index, std::move(to));
  }
  // The flight starts under the lock, so that nobody cancels a flight that has not begun. Answers come later,
  // never from inside Start.
  try {
    flight->Start(attempt);
  } catch (const std::bad_alloc&) {
    FailLocked(ResourceExhausted("there is no memory for a request"));
    --pending_;
    return EndIfOver(std::move(lock));
  }
  flights_[index] = flight.release();
}

void Run::FlightEnded(std::size_t index, const std::string& address, const grpc::Status& status,
                      const std::function<Status()>& read) {
  std::unique_lock lock(mutex_);
  flights_[index] = nullptr;
  if (!status.ok() && failure_.ok()) {
    const std::string line = SendAgainLater(index, address, status);
    if (failure_.ok()) {
      lock.unlock();
      channels_.Log(line);
      return RetryAfter(status).count() == 0 ? channels_.NoteLost() : void();
    }
  } else if (failure_.ok()) {
    if (const auto& answered_by = requests_[index].answered_by) *answered_by = address;
    lock.unlock();
    Status status_of_reply = read();
    lock.lock();
    if (!status_of_reply.ok()) FailLocked(std::move(status_of_reply));
  }
  --pending_;
  EndIfOver(std::move(lock));
}

// Sends a request again after a wait, or fails the run if another try cannot help or the deadline is too
// near.
std::string Run::SendAgainLater(std::size_t index, const std::string& address, const grpc::Status& status) {
  const std::size_t attempts = attempts_[index];
  // If our own clock ended this try, an earlier try may know the reason.
  const bool knows_no_reason = status.error_message() == kOwnDeadline && !reasons_[index].empty();
  const grpc::Status said(status.error_code(), knows_no_reason ? reasons_[index] : status.error_message(),
                          status.error_details());
  reasons_[index] = said.error_message();
  const auto backoff = WaitToRetry(RetryAfter(status), attempts, random_);
  const Request& request = requests_[index];
  const auto begin = call_.deadline - call_.timeout;
  const auto taken = steady_clock::now() - begin;
  const auto patience = std::min(call_.timeout, call_.retry_for);
  if (request.once || !IsWorthAnotherTry(status) || taken + backoff >= patience) {
    const auto waited = std::chrono::ceil<std::chrono::milliseconds>(taken);
    FailLocked(FromGrpc(said, address, std::clamp(waited, patience, call_.timeout)));
    return {};
  }
  if (request.sent_again) *request.sent_again = true;
  // Connect to the next rank during the wait.
  const auto to = To();
  if (request.gpu.empty()) {
    to->at(request.rank + attempts, request.channel).Connect();
  } else if (Connections::Channel* const way = to->by_gpu(request.gpu)) {
    way->Connect();
  }
  auto wait = std::make_unique<Wait>(shared_from_this(), index);
  wait->Start(backoff);
  waits_[index] = wait.release();
  return address + ": " + NameOf(said.error_code()) + ": " + said.error_message() + "; trying again";
}

void Run::Cancel(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (pending_ > 0) FailLocked(status);
}

void Run::FailLocked(Status status) {
  if (!failure_.ok()) return;
  failure_ = std::move(status);
  for (Flight* flight : flights_) {
    if (flight != nullptr) flight->Cancel();
  }
  for (Wait* wait : waits_) {
    if (wait != nullptr) wait->Cancel();
  }
}

void Run::EndIfOver(std::unique_lock<std::mutex> lock) {
  if (pending_ > 0) return;
  const OnDone done = std::exchange(on_done_, nullptr);
  const Status status = failure_;
  lock.unlock();
  done(status);
}

}  // namespace slotwise::client
