#include "server/rpc/open_calls.h"

#include <algorithm>

namespace slotwise {

void SharedCalls::Limit(std::uint64_t most, std::uint64_t connections) {
  most_ = most;
  first_ = std::max<std::uint64_t>(1, most / (2 * connections));
}

bool SharedCalls::OpenFirst() {
  const std::uint64_t most = most_;
  Calls open = open_;
  do {
    if (open.all >= most) return false;
  } while (!open_.compare_exchange_weak(open, {open.all + 1, open.further}));
  return true;
}

bool SharedCalls::OpenFurther(std::uint64_t own) {
  const std::uint64_t most = most_;
  const std::uint64_t most_further = most / 2;
  Calls open = open_;
  do {
    const std::uint64_t left = std::min(most - std::min<std::uint64_t>(most, open.all),
                                        most_further - std::min<std::uint64_t>(most_further, open.further));
    if (own >= left) return false;
  } while (!open_.compare_exchange_weak(open, {open.all + 1, open.further + 1}));
  return true;
}

void SharedCalls::Close(std::uint64_t calls, std::uint64_t further) {
  const auto less = [](std::uint32_t from, std::uint64_t by) {
    return static_cast<std::uint32_t>(from - by);
  };
  Calls open = open_;
  while (!open_.compare_exchange_weak(open, {less(open.all, calls), less(open.further, further)})) {
  }
}

OpenCalls::Opened OpenCalls::Open(std::uint32_t stream) {
  if (open() >= most_) return Opened::kTooManyOfConnection;
  if (!(open() < first_ ? shared_.OpenFirst() : shared_.OpenFurther(further()))) return Opened::kTooManyOfAll;
  calls_.push_back({.stream = stream});
  return Opened::kYes;
}

void OpenCalls::Reset(std::uint32_t stream) {
  if (const auto call = Find(stream); call != calls_.end()) Close(call);
}

void OpenCalls::CloseAll() {
  shared_.Close(open(), further());
  calls_.clear();
}

OpenCalls::Calls::iterator OpenCalls::Find(std::uint32_t stream) {
  const auto call = std::ranges::lower_bound(calls_, stream, {}, &Call::stream);
  return call != calls_.end() && call->stream == stream ? call : calls_.end();
}

void OpenCalls::End(std::uint32_t stream, bool Call::*ended) {
  const auto call = Find(stream);
  if (call == calls_.end()) return;
  (*call).*ended = true;
  if (call->client_ended && call->server_ended) Close(call);
}

void OpenCalls::Close(Calls::iterator call) {
  shared_.Close(1, open() > first_ ? 1 : 0);
  calls_.erase(call);
}

}  // namespace slotwise
