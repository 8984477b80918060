// Lookups and pushes: the client checks a batch, cuts it, sends its parts, and answers when every part is
// answered.
#include <memory>
#include <string>
#include <utility>

#include "client/cpp/client_impl.h"
#include "slotwise/v1/embedding.pb.h"

namespace slotwise {
namespace {

using client::CheckedBatch;
using client::Request;
using client::SampleRange;

constexpr const char* kLookup = "/slotwise.v1.Embedding/Lookup";
constexpr const char* kPush = "/slotwise.v1.Embedding/Push";

Status WrongSize(std::string_view array, std::size_t size, const CheckedBatch& batch) {
  return InvalidArgument(std::string(array) + " has " + std::to_string(size) + " floats: must have " +
                         std::to_string(batch.samples * batch.width) + " (" + std::to_string(batch.samples) +
                         " samples of " + std::to_string(batch.width) + ")");
}

// The state that the parts of one push share.
struct PushInFlight {
  std::atomic<std::uint64_t> table_step{0};
};

}  // namespace

void Client::LookupAsync(std::string_view table, const BatchView& batch, LookupMode mode,
                         std::span<float> out, Done done) {
  auto finish = [impl = impl_.get(), name = std::string(table),
                 done = std::move(done)](const Status& status) {
    if (!status.ok()) impl->Forget(name);
    done(status);
  };
  impl_->WithTable(table, [impl = impl_.get(), batch, mode, out,
                           finish = std::move(finish)](const Result<TableOptions>& options) {
    if (!options.ok()) return finish(options.status());
    const auto checked = client::CheckBatch(batch, options->slots, options->dim);
    if (!checked.ok()) return finish(checked.status());
    if (out.size() != checked->samples * checked->width)
      return finish(WrongSize("out", out.size(), *checked));

    const DataType type = impl->options().data_type;
    const auto ranges = impl->CutBatch(*checked, [&](SampleRange samples) {
      return client::PartBytes(checked->view, checked->slots, samples);
    });
    std::vector<Request> requests;
    for (const SampleRange samples : ranges) {
      requests.push_back(
          {.method = kLookup,
           .message = client::LookupMessage(options->name.view(), mode, type, *checked, samples)});
    }
    impl->Address(requests);
    auto read = [ranges, width = checked->width, type, out](std::size_t part, const grpc::ByteBuffer& reply) {
      const SampleRange samples = ranges[part];
      return client::ReadLookupReply(reply, samples.size(), width, type,
                                     out.subspan(samples.first * width, samples.size() * width));
    };
    impl->Start(std::move(requests), std::move(read), finish);
  });
}

void Client::PushAsync(std::string_view table, const BatchView& batch, std::span<const float> gradients,
                       const Step& step, PushDone done) {
  auto finish = [impl = impl_.get(), name = std::string(table),
                 done = std::move(done)](const Result<std::uint64_t>& result) {
    if (!result.ok()) impl->Forget(name);
    done(result);
  };
  if (Status status = Validate(step); !status.ok()) return finish(status);
  impl_->WithTable(table, [impl = impl_.get(), batch, gradients, step,
                           finish = std::move(finish)](const Result<TableOptions>& options) {
    if (!options.ok()) return finish(options.status());
    const auto checked = client::CheckBatch(batch, options->slots, options->dim);
    if (!checked.ok()) return finish(checked.status());
    const std::uint32_t width = checked->width;
    if (gradients.size() != checked->samples * width) {
      return finish(WrongSize("gradients", gradients.size(), *checked));
    }
    const DataType type = impl->options().data_type;
    const auto ranges = step.parts > 0 ? client::EvenRanges(checked->samples, step.parts)
                                       : impl->CutBatch(*checked, [&](SampleRange samples) {
                                           return client::PartBytes(checked->view, checked->slots, samples) +
                                                  samples.size() * width * BytesOf(type);
                                         });
    const std::uint64_t parts = ranges.size() * step.trainers;
    if (parts > StepId::kMaxParts) {
      return finish(ResourceExhausted("the batch would be cut into " + std::to_string(parts) +
                                      " parts: a step has at most " + std::to_string(StepId::kMaxParts)));
    }
    StepId id{.session = step.session,
              .number = step.number,
              .part = static_cast<std::uint32_t>(step.trainer * ranges.size()),
              .parts = static_cast<std::uint32_t>(parts)};
    std::vector<Request> requests;
    for (const SampleRange samples : ranges) {
      requests.push_back(
          {.method = kPush,
           .message = client::PushMessage(options->name.view(), id, *checked, samples, gradients, type)});
      ++id.part;
    }
    impl->Address(requests);
    auto push = std::make_shared<PushInFlight>();
    auto read = [push](std::size_t, const grpc::ByteBuffer& bytes) -> Status {
      v1::PushReply reply;
      Status status = client::Deserialize(bytes, reply);
      if (status.ok()) push->table_step = reply.table_step();  // every part gets the same reply
      return status;
    };
    impl->Start(std::move(requests), std::move(read), [push, finish](const Status& status) {
      if (!status.ok()) return finish(status);
      finish(push->table_step.load());
    });
  });
}

std::future<Status> Client::LookupAsync(std::string_view table, const BatchView& batch, LookupMode mode,
                                        std::span<float> out) {
  auto answer = std::make_shared<std::promise<Status>>();
  auto result = answer->get_future();
  LookupAsync(table, batch, mode, out, [answer](Status status) { answer->set_value(std::move(status)); });
  return result;
}

std::future<Result<std::uint64_t>> Client::PushAsync(std::string_view table, const BatchView& batch,
                                                     std::span<const float> gradients, const Step& step) {
  auto answer = std::make_shared<std::promise<Result<std::uint64_t>>>();
  auto result = answer->get_future();
  PushAsync(table, batch, gradients, step,
            [answer](Result<std::uint64_t> step_of_table) { answer->set_value(std::move(step_of_table)); });
  return result;
}

Status Client::Lookup(std::string_view table, const BatchView& batch, LookupMode mode, std::span<float> out) {
  return LookupAsync(table, batch, mode, out).get();
}

Result<std::uint64_t> Client::Push(std::string_view table, const BatchView& batch,
                                   std::span<const float> gradients) {
  return Push(table, batch, gradients, session().Next());
}

Result<std::uint64_t> Client::Push(std::string_view table, const BatchView& batch,
                                   std::span<const float> gradients, const Step& step) {
  return PushAsync(table, batch, gradients, step).get();
}

}  // namespace slotwise
