// TemporaryFolder: a new, empty folder on disk, which is removed with its contents at the end.
// Thread-safety: a plain value.
#ifndef SLOTWISE_TESTS_SUPPORT_TEMPORARY_FOLDER_H_
#define SLOTWISE_TESTS_SUPPORT_TEMPORARY_FOLDER_H_

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace slotwise::test {

class TemporaryFolder {
 public:
  // Throws std::runtime_error if the folder cannot be made.
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "slotwise-test-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make a folder like " + path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_TEMPORARY_FOLDER_H_
