// This file finds out that the server has restarted: it looks for a new server instance when a connection is
// lost, learns the ranks of an instance that has answered a call, and asks what became of tables.
#include <grpcpp/alarm.h>

#include <algorithm>
#include <utility>

#include "client/cpp/backoff.h"
#include "client/cpp/client_impl.h"
#include "client/cpp/messages.h"
#include "slotwise/v1/admin.pb.h"

namespace slotwise {

using client::Call;
using client::Request;

namespace {

// A look for a new instance asks so many ranks and one seed, and waits so long for each. Failed calls start
// another look.
constexpr std::size_t kAskedRanks = 3;
constexpr std::chrono::seconds kLookLimit{2};
// A call that met a new instance asks so many of the known ranks, beginning with the one that answered, and
// waits so long for one that names the present ranks.
constexpr std::size_t kAskedToLearn = 16;
constexpr std::chrono::seconds kLearnLimit{10};
// A caller that hears that one table has lost steps hears at once of the losses of so many others.
constexpr std::size_t kMostTables = 1024;

}  // namespace

// A Learner is a call that waits until the ranks of a new instance are known. Its alarm ends the wait, at the
// call's deadline or when the alarm is cancelled.
// Thread-safety: safe from any thread.
class Client::Impl::Learner final : public client::Ongoing,
                                    public client::Arrival,
                                    public std::enable_shared_from_this<Learner> {
 public:
  Learner(Impl& impl, std::function<void()> then) : impl_(impl), then_(std::move(then)) {}

  // REQUIRES: the learner has entered the client's runs.
  void WaitUntil(std::chrono::steady_clock::time_point time) {
    const std::lock_guard lock(mutex_);
    alarm_.Set(&impl_.channels_.queue(), client::Until(ended_ ? std::chrono::steady_clock::now() : time),
               static_cast<client::Arrival*>(this));
  }
  void End() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    alarm_.Cancel();  // does nothing if the alarm is not set or is over
  }
  // The call already has its answer, and ends with it.
  void Cancel(const Status&) override { End(); }

  void Arrive(bool) override {
    then_();
    impl_.runs_.Leave(shared_from_this());
  }

 private:
  Impl& impl_;
  const std::function<void()> then_;
  std::mutex mutex_;
  // Guarded by mutex_:
  bool ended_ = false;
  grpc::Alarm alarm_;
};

// Ranks are asked for the topology, and calls wait for the result.
struct Client::Impl::Learning {
  std::uint64_t known = 0;  // the instance that the client knew before
  std::size_t questions = 0;
  std::vector<std::shared_ptr<Learner>> waiting = {};
};

void Client::Impl::LookForNewStart() {
  std::size_t look = 0;
  {
    const std::lock_guard lock(mutex_);
    look_again_ = questions_ > 0;
    if (look_again_ || runs_.closing()) return;
    questions_ = kAskedRanks + 1;
    look = looks_++;
    if (to_seeds_ == nullptr) to_seeds_ = channels_.To(seeds_);
  }
  const auto ended = [this](std::uint64_t) { LookEnded(); };
  for (std::size_t i = 0; i < kAskedRanks; ++i)
    AskForTopology(look * kAskedRanks + i, channels_.now(), kLookLimit, ended);
  AskForTopology(look, to_seeds_, kLookLimit, ended);
}

void Client::Impl::LookEnded() {
  {
    const std::lock_guard lock(mutex_);
    if (--questions_ > 0 || !look_again_) return;
  }
  LookForNewStart();
}

void Client::Impl::LearnOfNewStart(const Call& call, const client::Answer& answer,
                                   const std::function<void()>& then) {
  const std::uint64_t known = instance_;
  if (answer.instance == known) return then();
  const auto learner = std::make_shared<Learner>(*this, then);
  if (!runs_.Enter(learner, call.stop).ok()) return then();
  learner->WaitUntil(call.deadline);
  const auto to = channels_.now();
  const std::size_t questions = std::min(kAskedToLearn, to->ranks());
  std::shared_ptr<Learning> learning;
  {
    const std::lock_guard lock(mutex_);
    if (learning_ != nullptr) return learning_->waiting.push_back(learner);
    learning = learning_ = std::make_shared<Learning>(Learning{known, questions, {learner}});
  }
  // If the client has moved meanwhile, the answering rank may not be among these.
  const auto& ranks = to->addresses();
  const auto answering = std::ranges::find(ranks, answer.address, &client::RankAddress::address);
  const auto first = static_cast<std::size_t>(answering - ranks.begin());
  for (std::size_t i = 0; i < questions; ++i) {
    AskForTopology(first + i, to, kLearnLimit,
                   [this, learning](std::uint64_t instance) { Learned(learning, instance); });
  }
}

void Client::Impl::Learned(const std::shared_ptr<Learning>& learning, std::uint64_t instance) {
  std::vector<std::shared_ptr<Learner>> waiting;
  {
    const std::lock_guard lock(mutex_);
    const bool is_news = instance != 0 && instance != learning->known;
    if (--learning->questions > 0 && !is_news) return;
    waiting.swap(learning->waiting);
    if (learning_ == learning) learning_ = nullptr;  // a later call asks again
  }
  for (const auto& learner : waiting) learner->End();
}

void Client::Impl::AskForTopology(std::size_t rank, std::shared_ptr<client::Connections> to,
                                  std::chrono::milliseconds limit,
                                  const std::function<void(std::uint64_t)>& ended) {
  const auto instance = std::make_shared<std::uint64_t>(0);
  const auto read = [this, instance](const grpc::ByteBuffer& bytes) {
    v1::GetTopologyReply reply;
    Status status = client::Deserialize(bytes, reply);
    if (!status.ok()) return status;
    Meet(client::TopologyOf(reply));
    *instance = reply.incarnation();
    return status;
  };
  Request request = client::ToAsk("GetTopology", v1::GetTopologyRequest(), read);
  request.rank = rank;
  request.once = true;
  runs_.Send(
      CallOf({.timeout = limit}), {std::move(request)},
      [ended, instance](const Status&) { ended(*instance); }, std::move(to));
}

void Client::Impl::AddOtherLosses(const Call& call, const Status& loss, const Done& done) {
  struct Found {
    std::mutex mutex;
    std::string message;
  };
  const auto tables = states_.AllAcknowledged(kMostTables);
  if (tables.empty()) return done(loss);
  const auto found = std::make_shared<Found>();
  std::vector<Request> requests;
  for (const auto& [name, state] : tables) {
    const auto read = [this, name, state, found](const grpc::ByteBuffer& bytes) -> Status {
      v1::DescribeTableReply reply;
      if (Status status = client::Deserialize(bytes, reply); !status.ok()) return status;
      const client::TableState now{reply.lineage(), reply.steps(), 0, reply.lost_from()};
      const Status lost = states_.Check(name, state, now);
      const std::lock_guard lock(found->mutex);
      if (!lost.ok()) found->message += "; " + lost.message();
      return {};
    };
    requests.push_back(client::ToAsk("DescribeTable", client::DescribeRequest(name, state), read));
  }
  runs_.Send(call, std::move(requests),
             [found, loss, done](const Status&) { done(loss.InWords(loss.message() + found->message)); });
}

}  // namespace slotwise
