#include "server/engine/read_beside.h"

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

namespace slotwise {
namespace {

// The data of one sink call.
struct Piece {
  bool erases = false;
  std::vector<Key> keys;
  std::vector<float> records;
};

// Passes pieces from the reading thread to the using one. A used piece is filled again.
class Passage {
 public:
  explicit Passage(Threads& threads) : threads_(threads) {}

  // Called by the reading thread.
  Status PutRows(std::vector<Key>& keys, std::vector<float>& records) {
    return Put(false, [&](Piece& piece) {
      piece.keys.swap(keys);
      piece.records.swap(records);
    });
  }
  Status PutErased(std::span<const Key> keys) {
    return Put(true, [&](Piece& piece) { piece.keys.assign(keys.begin(), keys.end()); });
  }
  void End(Status status, bool no_memory) {
    Change([&] {
      result_ = std::move(status);
      no_memory_ = no_memory;
      ended_ = true;
    });
  }

  // Called by the using thread. Returns null once all pieces are used and `read` has returned.
  Piece* Next() {
    std::unique_lock lock(mutex_);
    threads_.Wait(changed_, lock, [this] { return ended_ || filled_ > used_; });
    return filled_ > used_ ? &pieces_[used_ % kPieces] : nullptr;
  }
  void GiveBack() {
    Change([this] { ++used_; });
  }
  void Close() {
    Change([this] { closed_ = true; });
  }
  // REQUIRES: Next returned null.
  Status TakeResult() {
    if (no_memory_) throw std::bad_alloc();
    return std::move(result_);
  }

 private:
  static constexpr std::size_t kPieces = 2;

  template <class Fill>
  Status Put(bool erases, const Fill& fill) {
    {
      std::unique_lock lock(mutex_);
      threads_.Wait(changed_, lock, [this] { return closed_ || filled_ - used_ < kPieces; });
      if (closed_) return {StatusCode::kCancelled, "what was read before could not be used"};
    }
    Piece& piece = pieces_[filled_ % kPieces];
    piece.erases = erases;
    fill(piece);
    Change([this] { ++filled_; });
    return {};
  }

  template <class F>
  void Change(const F& f) {
    {
      const std::scoped_lock lock(mutex_);
      f();
    }
    changed_.notify_all();
  }

  Threads& threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Piece pieces_[kPieces];
  std::size_t filled_ = 0;
  std::size_t used_ = 0;
  bool closed_ = false;  // no more pieces are used
  bool ended_ = false;   // no more pieces are read
  bool no_memory_ = false;
  Status result_;
};

// Closes the passage in its destructor, which runs before the wait for the thread.
struct Closes {
  Passage& passage;
  ~Closes() { passage.Close(); }
};

}  // namespace

Status ReadBeside(Threads& threads, const std::function<Status(const RowSink&)>& read, const RowSink& use) {
  Passage passage(threads);
  const RowSink sink{.rows = [&](std::vector<Key>& keys,
                                 std::vector<float>& records) { return passage.PutRows(keys, records); },
                     .erase = [&](std::span<const Key> keys) { return passage.PutErased(keys); }};
  std::unique_ptr<Threads::Thread> reading;
  try {
    reading = threads.Begin([&] {
      try {
        passage.End(read(sink), false);
      } catch (const std::bad_alloc&) {
        passage.End({}, true);
      } catch (const std::exception& error) {
        passage.End({StatusCode::kInternal, error.what()}, false);
      }
    });
  } catch (const std::system_error& error) {
    return NoMoreThreads(error);
  }
  const Closes closes{passage};
  while (Piece* const piece = passage.Next()) {
    Status used = piece->erases ? use.erase(piece->keys) : use.rows(piece->keys, piece->records);
    if (!used.ok()) return used;
    passage.GiveBack();
  }
  return passage.TakeResult();
}

}  // namespace slotwise
