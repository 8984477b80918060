// SimFiles: a FileSystem in memory that forgets bytes that were not synced, as a file system may.
//
// A write, a change of length and a change of a name are pending until Sync of the file, or SyncFolder of the
// folder. Crash(seed) settles pending changes as the seed draws:
//
//   bytes   Each write is cut at the multiples of 512 in the file, and sometimes at one byte more. Of the
//           pieces and changes of length, all, none, the first few, or any, in any order, took place.
//   names   Of a folder's changes (a name made, removed or renamed), all, none, the first few, or any took
//           place. A rename took place whole or not at all. A file whose name is gone is gone with its bytes,
//           synced or not; so is all in a folder.
//
// Kill() ends the process alone: all files stay as the process saw them, and pending changes stay pending.
// After Crash or Kill, files that were open return UNAVAILABLE.
// Operations that change or sync something are counted from 1. FailAt lets one of them fail. CrashAt lets the
// process die during one: this operation and all later ones return UNAVAILABLE, until Crash or Kill. A failed
// write has written its first half. A failed sync of a file has synced nothing, and later syncs leave the
// same bytes out, as on Linux, though reads show them. A failed sync of a folder changes nothing. Rename
// works within one folder. A file's space is its length; folders and names take none.
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

  // Returns the number of operations so far.
  std::uint64_t operations() const;
  // Lets the operation of that number fail; 0 for none.
  void FailAt(std::uint64_t operation, Fault fault);
  // Lets the process die during the operation of that number; 0 for none.
  void CrashAt(std::uint64_t operation);
  bool dead() const;

  // Sets the disk's size. Files that are larger together stay as they are.
  void SetCapacity(std::uint64_t bytes);
  std::uint64_t used() const;  // bytes of all files

  // Reads or replaces a file's bytes, synced with its name, for tests that damage files. Counts no operation.
  // REQUIRES: the folder (and, for Contents, the file) exists.
  std::vector<std::byte> Contents(const std::string& path) const;
  void SetContents(const std::string& path, std::vector<std::byte> bytes);
  // Removes a file durably, without an operation. REQUIRES: the file exists.
  void Lose(const std::string& path);

 private:
  friend class SimWritableFile;
  friend class SimReadableFile;
  struct Node;
  enum class Verdict { kGo, kFail, kDie };

  // The target of a path. folder: null if it is missing. node: null if the name is missing.
  struct Place {
    std::shared_ptr<Node> folder = nullptr;
    std::string name = {};
    std::shared_ptr<Node> node = nullptr;
  };

  // Counts an operation that was begun in life `life`, and lets it succeed, fail or die.
  Status Operate(const std::string& what, std::uint64_t life, const std::function<Status(Verdict)>& work);
  // The functions below REQUIRE the mutex, except life().
  Status Dead() const;
  std::shared_ptr<Node> Find(const std::string& path) const;
  Place FindPlace(const std::string& path) const;
  static std::uint64_t UsedBy(const Node& node);
  Status CheckSpace(const Node& file, std::uint64_t size, const std::string& path) const;
  std::uint64_t life() const;

  mutable std::mutex mutex_;
  std::shared_ptr<Node> root_;
  std::uint64_t life_ = 0;  // the number of crashes; files of an earlier life are closed
  bool dead_ = false;
  std::uint64_t operations_ = 0;
  std::uint64_t fail_at_ = 0;
  std::uint64_t crash_at_ = 0;
  Fault fault_ = Fault::kBroken;
  std::uint64_t capacity_ = std::numeric_limits<std::uint64_t>::max();
};

}  // namespace slotwise

#endif  // SLOTWISE_TESTS_DURABILITY_SIM_FILES_H_
