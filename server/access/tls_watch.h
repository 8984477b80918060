// TlsWatch checks the files of TLS every second in its own thread. It reads all of them again when one has
// changed and they are the same at the next check, so a certificate and its key always change together. Bad
// files leave the earlier ones in use, are logged once for each reason, and are read at every check until
// they are right. Thread-safety: safe from any thread.
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
  // Returns promptly, because a check never blocks.
  ~TlsWatch();
  TlsWatch(const TlsWatch&) = delete;
  TlsWatch& operator=(const TlsWatch&) = delete;

  // Returns the newest texts and keeps no copy; null: they were taken already.
  std::unique_ptr<const TlsTexts> TakeNew();

 private:
  TlsWatch(TlsFiles files, std::string stamps, TlsTexts texts);
  void Watch(std::chrono::milliseconds look_every);
  void Look();

  const TlsFiles files_;
  // These three are the watching thread's.
  std::string used_;     // identifies the files of the newest texts, with their times of change
  std::string seen_;     // the same for the files at the last check
  std::string trouble_;  // why those files are bad, as logged; empty: they are right
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;                       // guarded by mutex_
  std::unique_ptr<const TlsTexts> newest_;  // guarded by mutex_
  std::thread watch_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ACCESS_TLS_WATCH_H_
