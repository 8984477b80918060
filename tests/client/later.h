// Starts calls for one table, and returns futures of the answers.
// Thread-safety: free functions.
#ifndef SLOTWISE_TESTS_CLIENT_LATER_H_
#define SLOTWISE_TESTS_CLIENT_LATER_H_

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "slotwise/client.h"

namespace slotwise {

inline std::future<Status> LookupLater(Client& client, std::string_view table, const BatchView& batch,
                                       LookupMode mode, std::span<float> out, const CallOptions& call = {}) {
  const auto answer = std::make_shared<std::promise<Status>>();
  const TableLookup lookup{table, batch, out};
  client.LookupAsync(
      {&lookup, 1}, mode, [answer](Status status) { answer->set_value(std::move(status)); }, call);
  return answer->get_future();
}

inline std::future<Result<std::uint64_t>> PushLater(Client& client, std::string_view table,
                                                    const BatchView& batch, std::span<const float> gradients,
                                                    const std::optional<Step>& step,
                                                    const CallOptions& call = {}) {
  using Answer = Result<std::uint64_t>;
  const auto answer = std::make_shared<std::promise<Answer>>();
  const TablePush push{table, batch, gradients};
  client.PushAsync(
      {&push, 1}, step,
      [answer](const Result<std::vector<std::uint64_t>>& steps) {
        answer->set_value(steps.ok() ? Answer(steps->front()) : Answer(steps.status()));
      },
      call);
  return answer->get_future();
}

}  // namespace slotwise

#endif  // SLOTWISE_TESTS_CLIENT_LATER_H_
