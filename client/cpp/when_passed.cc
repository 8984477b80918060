#include "client/cpp/when_passed.h"

#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <utility>

#include "wire/spare_processors.h"

namespace slotwise::client {
namespace {

using std::chrono::steady_clock;

// So often a loop looks for a point that is far away.
constexpr std::chrono::microseconds kRarely{100};

class Watch : public std::enable_shared_from_this<Watch> {
 public:
  Watch(BriskLoop& loop, std::shared_ptr<StreamPoint> point, std::function<void(Status)> then)
      : loop_(loop), timer_(loop.context()), point_(std::move(point)), then_(std::move(then)) {}

  void Look() {
    if (point_->Passed()) return then_(point_->Wait());
    const auto again = [self = shared_from_this()](auto...) { self->Look(); };
    if (steady_clock::now() - begin_ < kBriskTime) return asio::post(loop_.context(), again);
    timer_.expires_after(kRarely);
    timer_.async_wait(again);
  }

 private:
  BriskLoop& loop_;
  asio::steady_timer timer_;
  const std::shared_ptr<StreamPoint> point_;
  const std::function<void(Status)> then_;
  const steady_clock::time_point begin_ = steady_clock::now();
};

}  // namespace

void WhenPassed(BriskLoop& loop, std::shared_ptr<StreamPoint> point, std::function<void(Status)> then) {
  if (!HasSpareProcessors() || point->Passed()) return then(point->Wait());
  std::make_shared<Watch>(loop, std::move(point), std::move(then))->Look();
}

}  // namespace slotwise::client
