// TlsWatch looks at the files of TLS every second, from a thread of its own, and reads all of them again when
// one has changed and they stay as they are until the next look. Files that are not right leave in use what
// was read before, are logged once for each reason, and are read at every look until they are right: so a
// certificate and its key always change together. Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_ACCESS_TLS_WATCH_H_
#define SLOTWISE_SERVER_ACCESS_TLS_WATCH_H_

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "server/access/tls_files.h"
#include "slotwise/status.h"

namespace slotwise {

class TlsWatch {
 public:
  // Fails as ReadTlsFiles does. REQUIRES: there is TLS.
  static Result<std::unique_ptr<TlsWatch>> Make(
      TlsFiles files, std::chrono::milliseconds look_every = std::chrono::seconds(1));
  // Returns promptly: a look does not wait.
  ~TlsWatch();
  TlsWatch(const TlsWatch&) = delete;
  TlsWatch& operator=(const TlsWatch&) = delete;

  // Returns the newest texts, if they were not taken yet, and keeps no copy; null: he who took some has the
  // newest.
  std::unique_ptr<const TlsTexts> TakeNew();

 private:
  TlsWatch(TlsFiles files, std::string stamps, TlsTexts texts);
  void Watch(std::chrono::milliseconds look_every);
  void Look();

  const TlsFiles files_;
  // These three are the watching thread's.
  std::string used_;     // which files the newest texts are from, and when they were changed
  std::string seen_;     // the same of the files that were there at the last look
  std::string trouble_;  // why those files are not right, as the log said; empty: they are
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;                       // guarded by mutex_
  std::unique_ptr<const TlsTexts> newest_;  // guarded by mutex_
  std::thread watch_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ACCESS_TLS_WATCH_H_
