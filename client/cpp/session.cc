#include "slotwise/session.h"

#include <random>
#include <string>

#include "slotwise/batch.h"

namespace slotwise {

Status Validate(const Step& step) {
  if (step.trainer >= step.trainers) {
    return InvalidArgument("step.trainer is " + std::to_string(step.trainer) +
                           ": must be below step.trainers, which is " + std::to_string(step.trainers));
  }
  if (step.trainers > 1 && step.parts == 0) {
    return InvalidArgument("step.parts is 0: several trainers must agree on a number of parts");
  }
  if (std::uint64_t{step.trainers} * step.parts > StepId::kMaxParts) {
    return InvalidArgument("step.trainers x step.parts is " +
                           std::to_string(std::uint64_t{step.trainers} * step.parts) +
                           ": a step has at most " + std::to_string(StepId::kMaxParts) + " parts");
  }
  return {};
}

std::uint64_t Session::NewId() {
  std::random_device system;
  return std::uint64_t{system()} << 32 | system();
}

Session::Session() : Session(Options{.id = NewId()}) {}

Session::Session(const Options& options) : options_(options), last_(options.last) {}

std::uint64_t Session::id() const {
  const std::lock_guard lock(mutex_);
  return options_.id;
}

std::uint64_t Session::epoch() const {
  const std::lock_guard lock(mutex_);
  return options_.epoch;
}

void Session::Renew(std::uint64_t forgotten, std::uint64_t epoch) {
  const std::lock_guard lock(mutex_);
  if (options_.id != forgotten) return;
  options_.id = NewId();
  options_.epoch = epoch;
  last_ = 0;
}

Step Session::Next() {
  const std::lock_guard lock(mutex_);
  return {.session = options_.id,
          .number = ++last_,
          .trainer = options_.trainer,
          .trainers = options_.trainers,
          .parts = options_.parts == 0 && options_.trainers > 1 ? 1 : options_.parts,
          .epoch = options_.epoch};
}

}  // namespace slotwise
