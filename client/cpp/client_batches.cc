// Lookups and pushes: the client checks batches, cuts them, sends their parts, and answers when every part is
// answered.
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client/cpp/batch_call.h"

namespace slotwise {

using client::Batches;

namespace {

// Returns a callback that keeps its answer for a future.
template <class Answer>
auto Promise() {
  auto promise = std::make_shared<std::promise<Answer>>();
  auto future = promise->get_future();
  return std::pair([promise](Answer answer) { promise->set_value(std::move(answer)); }, std::move(future));
}

}  // namespace

void Client::LookupAsync(std::span<const TableLookup> lookups, LookupMode mode, Done done,
                         const CallOptions& call) {
  Batches batches;
  for (const TableLookup& lookup : lookups) {
    batches.tables.push_back({std::string(lookup.table), lookup.batch, lookup.out, {}, {}, {}});
  }
  BatchCall::Lookup(*impl_, impl_->Begin(call), std::move(batches), mode, std::move(done));
}

void Client::PushAsync(std::span<const TablePush> pushes, const std::optional<Step>& step, PushDone done,
                       const CallOptions& call) {
  Batches batches{.tables = {}, .pushes = true};
  for (const TablePush& push : pushes) {
    batches.tables.push_back({.table = std::string(push.table),
                              .view = push.batch,
                              .out = {},
                              .gradients = push.gradients,
                              .checked = {}});
  }
  BatchCall::Push(*impl_, impl_->Begin(call), std::move(batches), step, std::move(done));
}

namespace {

// Returns batches of one request without their tables, or says why the GPU cannot be had.
Result<Batches> OnGpu(const Gpu& gpu) {
  auto access = client::DeviceAccess::Find(gpu.name);
  if (!access.ok()) return access.status();
  Batches batches;
  batches.gpu = std::make_shared<client::GpuBatches>();
  batches.gpu->gpu = gpu.name;
  batches.gpu->of = {.access = std::move(*access), .stream = gpu.stream};
  return batches;
}

// Adds a batch whose arrays nobody looks at here: of wide offsets, their number counts.
template <class Given>
void AddOnGpu(const Given& given, Batches& batches) {
  BatchView view = given.batch;
  const bool wide = !given.wide_offsets.empty();
  if (wide) {
    const auto* const first = reinterpret_cast<const std::uint32_t*>(given.wide_offsets.data());
    view.offsets = {first, given.wide_offsets.size()};
  }
  batches.tables.push_back({std::string(given.table), view, {}, {}, {}, {}});
  batches.gpu->wide.push_back(wide);
}

}  // namespace

void Client::LookupOnGpuAsync(std::span<const GpuLookup> lookups, LookupMode mode, const Gpu& gpu,
                              GpuRowsDone done, const CallOptions& call,
                              const std::shared_ptr<GpuPushUnderWay>& behind) {
  auto batches = OnGpu(gpu);
  if (!batches.ok()) return done(batches.status());
  batches->gpu->of.behind = std::static_pointer_cast<client::Turn>(behind);
  for (const GpuLookup& lookup : lookups) AddOnGpu(lookup, *batches);
  BatchCall::Lookup(*impl_, impl_->Begin(call), *batches, mode,
                    [gpu = batches->gpu, done = std::move(done)](const Status& status) {
                      gpu->of.carried.reset();
                      if (!status.ok()) return done(status);
                      done(std::move(gpu->rows));
                    });
}

std::shared_ptr<GpuPushUnderWay> Client::PushOnGpuAsync(std::span<const GpuPush> pushes,
                                                        const std::optional<Step>& step, const Gpu& gpu,
                                                        PushDone done, const CallOptions& call) {
  const auto turn = std::make_shared<client::Turn>();
  auto batches = OnGpu(gpu);
  if (!batches.ok()) {
    turn->End(false);
    done(batches.status());
    return turn;
  }
  batches->pushes = true;
  batches->gpu->of.turn = turn;
  for (const GpuPush& push : pushes) {
    AddOnGpu(push, *batches);
    batches->gpu->gradients.push_back(push.gradients);
  }
  BatchCall::Push(
      *impl_, impl_->Begin(call), *batches, step,
      [gpu = batches->gpu, turn, done = std::move(done)](const Result<std::vector<std::uint64_t>>& steps) {
        gpu->of.carried.reset();
        turn->End(steps.ok());
        done(steps);
      });
  return turn;
}

LookedUpState Client::LookedUp(std::string_view table) const {
  const client::TableState state = impl_->states().LookedUp(table);
  return {.lineage = state.lineage, .table_step = state.step};
}

std::vector<std::string> Client::Gpus() const {
  std::vector<std::string> here;
  for (const std::string& gpu : impl_->channels().now()->gpus()) {
    if (client::DeviceAccess::Find(gpu).ok()) here.push_back(gpu);
  }
  return here;
}

Status Client::Lookup(std::string_view table, const BatchView& batch, LookupMode mode, std::span<float> out,
                      const CallOptions& call) {
  const TableLookup one{table, batch, out};
  return Lookup(std::span(&one, 1), mode, call);
}

Status Client::Lookup(std::span<const TableLookup> lookups, LookupMode mode, const CallOptions& call) {
  auto [done, answer] = Promise<Status>();
  LookupAsync(lookups, mode, done, call);
  return answer.get();
}

Result<std::uint64_t> Client::Push(std::string_view table, const BatchView& batch,
                                   std::span<const float> gradients, const std::optional<Step>& step,
                                   const CallOptions& call) {
  const TablePush one{table, batch, gradients};
  const auto steps = Push(std::span(&one, 1), step, call);
  if (!steps.ok()) return steps.status();
  return steps->front();
}

Result<std::vector<std::uint64_t>> Client::Push(std::span<const TablePush> pushes,
                                                const std::optional<Step>& step, const CallOptions& call) {
  auto [done, answer] = Promise<Result<std::vector<std::uint64_t>>>();
  PushAsync(pushes, step, done, call);
  return answer.get();
}

}  // namespace slotwise
