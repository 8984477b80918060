#include "client/cpp/run.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <future>
#include <new>
#include <utility>

#include "client/cpp/backoff.h"
#include "client/cpp/from_grpc.h"
#include "client/cpp/messages.h"

namespace slotwise::client {
namespace {

using std::chrono::steady_clock;

Status Closed() { return FailedPrecondition("the client is closed").Because(Reason::kClientClosed); }
Status NoMemory() { return ResourceExhausted("there is no memory for a request").Because(Reason::kNoMemory); }

}  // namespace

Request ToAsk(std::string_view method, const google::protobuf::MessageLite& message,
              MessageExchange::Read read) {
  return {.exchange =
              std::make_shared<MessageExchange>(std::string("/") + kAdminService + "/" + std::string(method),
                                                Serialize(message), std::move(read))};
}

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

Run::Run(Channels& channels, const Call& call, std::vector<Request> requests, std::shared_ptr<Connections> to)
    : channels_(channels),
      to_(std::move(to)),
      call_(call),
      requests_(std::move(requests)),
      attempts_(requests_.size()),
      under_way_(requests_.size()),
      waits_(requests_.size()),
      reasons_(requests_.size()),
      pending_(requests_.size()),
      // The seed only decides how long to wait. Seeds differ, so that trainers that failed together do not
      // return together.
      random_(static_cast<std::uint32_t>(
          reinterpret_cast<std::uintptr_t>(this) >> 4 ^
          static_cast<std::uintptr_t>(call_.deadline.time_since_epoch().count()))) {}

void Run::Start(OnDone on_done) {
  on_done_ = std::move(on_done);
  const auto self = shared_from_this();  // keeps the run alive if the last reply comes before Start returns
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    // Writes each message before Send takes the mutex: earlier parts travel meanwhile, and replies do not
    // wait.
    const Request& request = requests_[i];
    const auto to = To();
    const Connections::Channel* const channel = ChannelOf(request, 0, *to);
    if (channel != nullptr && &TransportOf(request, *channel) == channel->grpc.get()) {
      try {
        static_cast<void>(request.exchange->Message());
      } catch (const std::bad_alloc&) {
        Cancel(NoMemory());
      }
    }
    Send(i);
  }
}

Connections::Channel* Run::ChannelOf(const Request& request, std::size_t attempt, Connections& to) {
  if (!request.gpu.empty()) return to.by_gpu(request.gpu);
  return &to.at(request.rank + attempt, request.channel);
}

Transport& Run::TransportOf(const Request& request, const Connections::Channel& channel) {
  if (channel.data && request.exchange->data() != nullptr) return *channel.data;
  return *channel.grpc;
}

// pending_ counts the request from the run's begin until the request is answered, or fails; a try that is
// sent again stays counted.
void Run::Send(std::size_t index) {
  std::unique_lock lock(mutex_);
  waits_[index] = nullptr;
  if (failure_.ok()) {
    Status refused;
    try {
      refused = SendLocked(index);
    } catch (const std::bad_alloc&) {
      refused = NoMemory();
    }
    if (refused.ok()) return;
    FailLocked(std::move(refused));
  }
  --pending_;
  EndIfOver(std::move(lock));
}

Status Run::SendLocked(std::size_t index) {
  const Request& request = requests_[index];
  const std::size_t attempt = attempts_[index]++;
  auto to = To();  // called once: the client may move to other connections meanwhile
  Connections::Channel* const channel = ChannelOf(request, attempt, *to);
  if (channel == nullptr) {
    return FailedPrecondition("the server has no rank that shares memory of GPU " + request.gpu)
        .Because(Reason::kNoSharedGpu);
  }
  Transport& transport = TransportOf(request, *channel);
  if (&transport == channel->grpc.get()) {
    const std::uint64_t bytes = request.exchange->Message().Length();
    if (const std::uint64_t most = channels_.most_message_bytes(); bytes > most) {
      return ResourceExhausted("a request has " + std::to_string(bytes) + " bytes, more than the " +
                               std::to_string(most) + " of limits.max_message_mib")
          .Because(Reason::kTooLarge);
    }
  }
  channel->NoteState();
  under_way_[index] = transport.Send(
      request.exchange,
      {.deadline = call_.deadline, .traceparent = call_.traceparent, .waits_for_connection = request.once},
      [self = shared_from_this(), index, to = std::move(to), channel](const Status& answer,
                                                                      const Transport::Read& read) {
        self->TryEnded(index, *channel, answer, read);
      });
  return {};
}

void Run::TryEnded(std::size_t index, Connections::Channel& channel, const Status& answer,
                   const Transport::Read& read) {
  const bool is_busy = answer.retry_after().count() > 0;
  if (answer.ok() && channel.NoteAnswer()) channels_.NoteLost();
  if (!answer.ok() && IsWorthAnotherTry(answer) && !is_busy) channel.NoteFailure();
  std::unique_lock lock(mutex_);
  under_way_[index] = nullptr;
  if (!answer.ok() && failure_.ok()) {
    const std::string line = SendAgainLater(index, channel.address, answer);
    if (failure_.ok()) {
      lock.unlock();
      channels_.Log(line);
      return is_busy ? void() : channels_.NoteLost();
    }
  } else if (failure_.ok()) {
    if (const auto& answered_by = requests_[index].answered_by) *answered_by = channel.address;
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
std::string Run::SendAgainLater(std::size_t index, const std::string& address, const Status& status) {
  const std::size_t attempts = attempts_[index];
  // If our own clock ended this try, an earlier try may know why.
  const bool knows_no_reason = IsOwnDeadline(status) && !reasons_[index].empty();
  const Status said = knows_no_reason ? status.InWords(reasons_[index]) : status;
  reasons_[index] = said.message();
  const auto backoff = WaitToRetry(status.retry_after(), attempts, random_);
  const Request& request = requests_[index];
  const auto begin = call_.deadline - call_.timeout;
  const auto taken = steady_clock::now() - begin;
  const auto patience = std::min(call_.timeout, call_.retry_for);
  if (request.once || !IsWorthAnotherTry(status) || taken + backoff >= patience) {
    const auto waited = std::chrono::ceil<std::chrono::milliseconds>(taken);
    FailLocked(ForCaller(said, address, std::clamp(waited, patience, call_.timeout)));
    return {};
  }
  if (request.sent_again) *request.sent_again = true;
  // Connects to the next rank during the wait.
  if (Connections::Channel* const next = ChannelOf(request, attempts, *To())) next->Connect();
  auto wait = std::make_unique<Wait>(shared_from_this(), index);
  wait->Start(backoff);
  waits_[index] = wait.release();
  return address + ": " + std::string(ToString(said.code())) + ": " + said.message() + "; trying again";
}

void Run::Cancel(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (pending_ > 0) FailLocked(status);
}

void Run::FailLocked(Status status) {
  if (!failure_.ok()) return;
  failure_ = std::move(status);
  for (const Transport::Cancel& cancel : under_way_) {
    if (cancel) cancel();
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

void Runs::Send(const Call& call, std::vector<Request> requests, Run::OnDone on_done,
                std::shared_ptr<Connections> to) {
  const auto run = std::make_shared<Run>(channels_, call, std::move(requests), std::move(to));
  if (Status status = Enter(run, call.stop); !status.ok()) return on_done(status);
  run->Start([this, run, done = std::move(on_done)](const Status& status) {
    done(status);
    Leave(run);
  });
}

Status Runs::SendAndWait(const Call& call, std::vector<Request> requests) {
  std::promise<Status> answer;
  Send(call, std::move(requests), [&answer](const Status& status) { answer.set_value(status); });
  return answer.get_future().get();
}

Status Runs::Enter(const std::shared_ptr<Ongoing>& work, const std::stop_token& stop) {
  if (!AreOfThisProcess()) return OfAnotherProcess();
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return Closed();
    ongoing_.emplace(work, nullptr);
  }
  if (!stop.stop_possible()) return {};
  // Made without the lock, because the callback runs at once if a stop was requested already.
  auto callback = std::make_unique<StopCallback>(
      stop, [work] { work->Cancel(Cancelled("the caller cancelled the call")); });
  const std::lock_guard lock(mutex_);
  ongoing_.at(work) = std::move(callback);
  return {};
}

void Runs::Leave(const std::shared_ptr<Ongoing>& work) {
  std::unique_lock lock(mutex_);
  auto stop = std::move(ongoing_.at(work));
  lock.unlock();
  stop.reset();  // may wait for the callback in another thread
  lock.lock();
  ongoing_.erase(work);
  changed_.notify_all();
}

void Runs::Close() {
  std::vector<std::shared_ptr<Ongoing>> ongoing;
  std::unique_lock lock(mutex_);
  closing_ = true;
  for (const auto& [work, stop] : ongoing_) ongoing.push_back(work);
  lock.unlock();
  for (const auto& work : ongoing) work->Cancel(Closed());
  lock.lock();
  changed_.wait(lock, [this] { return ongoing_.empty(); });
}

Status Runs::OfAnotherProcess() {
  return FailedPrecondition("the client was made before a fork, which gRPC does not survive")
      .Because(Reason::kClientClosed);
}

}  // namespace slotwise::client
