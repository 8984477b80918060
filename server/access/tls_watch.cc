#include "server/access/tls_watch.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace slotwise {
namespace {

std::string StampsOf(const TlsFiles& files) {
  return StampOf(files.certificate_file) + ", " + StampOf(files.key_file) + ", " +
         StampOf(files.client_ca_file);
}

}  // namespace

Result<std::unique_ptr<TlsWatch>> TlsWatch::Make(TlsFiles files, std::chrono::milliseconds look_every) {
  std::string stamps = StampsOf(files);  // taken first, so that a file that changes meanwhile is read again
  auto texts = ReadTlsFiles(files);
  if (!texts.ok()) return texts.status();
  std::unique_ptr<TlsWatch> watch(new TlsWatch(std::move(files), std::move(stamps), std::move(*texts)));
  watch->watch_ = std::thread([&watch = *watch, look_every] { watch.Watch(look_every); });
  return watch;
}

TlsWatch::TlsWatch(TlsFiles files, std::string stamps, TlsTexts texts)
    : files_(std::move(files)),
      used_(std::move(stamps)),
      seen_(used_),
      newest_(std::make_unique<TlsTexts>(std::move(texts))) {}

TlsWatch::~TlsWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stop_changed_.notify_all();
  if (watch_.joinable()) watch_.join();
}

std::unique_ptr<const TlsTexts> TlsWatch::TakeNew() {
  const std::lock_guard lock(mutex_);
  return std::move(newest_);
}

void TlsWatch::Watch(std::chrono::milliseconds look_every) {
  std::unique_lock lock(mutex_);
  while (!stop_changed_.wait_for(lock, look_every, [this] { return stop_; })) {
    lock.unlock();
    Look();
    lock.lock();
  }
}

void TlsWatch::Look() {
  std::string stamps = StampsOf(files_);
  const bool rest = stamps == std::exchange(seen_, stamps);
  if (!rest) return;
  if (stamps == used_) {
    trouble_.clear();
    return;
  }
  auto texts = ReadTlsFiles(files_);
  if (!texts.ok()) {
    const std::string trouble = texts.status().message();
    if (trouble != trouble_) spdlog::error("the certificates stay as they were: {}", trouble);
    trouble_ = trouble;
    return;
  }
  spdlog::info("the certificates are read again: new connections are shown them");
  trouble_.clear();
  used_ = std::move(stamps);
  auto newest = std::make_unique<const TlsTexts>(std::move(*texts));
  const std::lock_guard lock(mutex_);
  newest_ = std::move(newest);
}

}  // namespace slotwise
