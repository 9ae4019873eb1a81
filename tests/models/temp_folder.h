// A folder for one test's files.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace weir::testing {

// A folder of its own, removed with everything in it.
class TempFolder {
 public:
  TempFolder() {
    std::string path =
        (std::filesystem::temp_directory_path() / "weir_test_XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) abort();
    path_ = path;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

  // Makes the folders on the way.
  std::string Write(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
    return file.string();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace weir::testing
