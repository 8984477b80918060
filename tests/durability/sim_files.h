// SimFiles: a FileSystem in memory that forgets what was not synced, as a file system may.
//
// A write, a change of length and a change of a name are pending until Sync of the file, or SyncFolder of the
// folder. Crash(seed) settles what is pending as the seed draws it:
//
//   bytes   Each write is cut at the multiples of 512 in the file, and sometimes at one byte more. Of the
//           pieces and changes of length, all, none, the first few, or any, in any order, took place.
//   names   Of a folder's changes (a name made, removed or renamed), all, none, the first few, or any took
//           place. A rename took place whole or not at all. A file whose name is gone is gone with its bytes,
//           synced or not; so is all in a folder.
//
// Kill() is the end of a process alone: all stays as it was seen, and what was pending is so still.
// After either, files that were open give UNAVAILABLE.
// Operations that change or sync something are counted from 1. FailAt lets one of them fail, CrashAt lets the
// process die amid one: that and all later ones give UNAVAILABLE, until Crash or Kill. A write that fails has
// written its first half. A sync of a file that fails has synced nothing, and later syncs do not sync what it
// left out, as on Linux, though reads show it. A sync of a folder that fails changes nothing.
// Rename is within one folder. A file's space is its length; folders and names take none.
// Thread-safety: any thread, as FileSystem says.
#ifndef SLOTWISE_TESTS_DURABILITY_SIM_FILES_H_
#define SLOTWISE_TESTS_DURABILITY_SIM_FILES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/durability/file_system.h"

namespace slotwise {

class SimFiles final : public FileSystem {
 public:
  enum class Fault { kNoSpace, kBroken };

  SimFiles();
  ~SimFiles() override;

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> OpenToWrite(const std::string& path) override;
  Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status RemoveFolder(const std::string& path) override;
  Status MakeFolder(const std::string& path) override;
  Result<std::vector<std::string>> List(const std::string& path) override;
  Status SyncFolder(const std::string& path) override;

  void Crash(std::uint64_t seed);
  void Kill();

  // How many operations there were.
  std::uint64_t operations() const;
  // The operation of that number fails; 0 for none.
  void FailAt(std::uint64_t operation, Fault fault);
  // The process dies amid the operation of that number; 0 for none.
  void CrashAt(std::uint64_t operation);
  bool dead() const;

  // How many bytes there is space for. Files that are larger together stay as they are.
  void SetCapacity(std::uint64_t bytes);
  std::uint64_t used() const;  // bytes of all files

  // Returns a file's bytes, and gives a file bytes, synced with its name: for tests that damage files. No
  // operation is counted. REQUIRES: the folder (and, for Contents, the file) is there.
  std::vector<std::byte> Contents(const std::string& path) const;
  void SetContents(const std::string& path, std::vector<std::byte> bytes);
  // Removes a file for good, likewise. REQUIRES: the file is there.
  void Lose(const std::string& path);

 private:
  friend class SimWritableFile;
  friend class SimReadableFile;
  struct Node;
  enum class Verdict { kGo, kFail, kDie };

  // Where a path leads. folder: null if it is not there. node: null if nothing has the name.
  struct Place {
    std::shared_ptr<Node> folder = nullptr;
    std::string name = {};
    std::shared_ptr<Node> node = nullptr;
  };

  // Counts an operation of a file or caller of that life, and lets it end as it is to.
  Status Operate(const std::string& what, std::uint64_t life, const std::function<Status(Verdict)>& work);
  // The others REQUIRE the mutex, except life().
  Status Dead() const;
  std::shared_ptr<Node> Find(const std::string& path) const;
  Place FindPlace(const std::string& path) const;
  static std::uint64_t UsedBy(const Node& node);
  Status CheckSpace(const Node& file, std::uint64_t size, const std::string& path) const;
  std::uint64_t life() const;

  mutable std::mutex mutex_;
  std::shared_ptr<Node> root_;
  std::uint64_t life_ = 0;  // how many crashes there were: files of an earlier life are closed
  bool dead_ = false;
  std::uint64_t operations_ = 0;
  std::uint64_t fail_at_ = 0;
  std::uint64_t crash_at_ = 0;
  Fault fault_ = Fault::kBroken;
  std::uint64_t capacity_ = std::numeric_limits<std::uint64_t>::max();
};

}  // namespace slotwise

#endif  // SLOTWISE_TESTS_DURABILITY_SIM_FILES_H_
