// JournalThread: the thread that writes a journal's queued records and marks.
// Thread-safety: one owner.
#ifndef SLOTWISE_SERVER_DURABILITY_JOURNAL_THREAD_H_
#define SLOTWISE_SERVER_DURABILITY_JOURNAL_THREAD_H_

#include <memory>

#include "server/durability/journal.h"
#include "server/durability/threads.h"

namespace slotwise {

class JournalThread {
 public:
  // REQUIRES: `journal` outlives this, and no other code calls its WriteQueued.
  explicit JournalThread(Journal& journal, Threads& threads = SystemThreads())
      : journal_(journal), thread_(threads.Begin([this] {
          for (;;) {
            const Journal::Work work = journal_.WaitForWork();
            if (work == Journal::Work::kWrite) journal_.WriteQueued();
            if (work != Journal::Work::kWrite) journal_.WriteMark();
            if (work == Journal::Work::kStop) return;
          }
        })) {}

  // Returns when all appended records are written, or the journal has failed. If all ranks are known to have
  // the records, a mark is written, too.
  ~JournalThread() {
    journal_.StopWaiting();
    thread_.reset();
  }
  JournalThread(const JournalThread&) = delete;
  JournalThread& operator=(const JournalThread&) = delete;

 private:
  Journal& journal_;
  std::unique_ptr<Threads::Thread> thread_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_JOURNAL_THREAD_H_
