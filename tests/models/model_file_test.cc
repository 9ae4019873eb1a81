#include "server/models/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/models/temp_folder.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::weir::testing::TempFolder;

TEST(ModelFileTest, ReadsWhatIsAskedFor) {
  const TempFolder folder;
  const auto file = ModelFile::Open(folder.Write("a", "0123456789"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->size(), 10u);
  char bytes[] = "abcdef";
  ASSERT_TRUE((*file)->Read(3, bytes, 4).ok());
  EXPECT_STREQ(bytes, "3456ef");
  EXPECT_TRUE((*file)->Read(10, bytes, 0).ok());
}

// Whoever overwrites a file cuts it short first.
TEST(ModelFileTest, SaysThatAFileBecameShorterWhileItWasRead) {
  const TempFolder folder;
  const std::string path = folder.Write("weights.bin", std::string(9000, 'x'));
  const auto file = ModelFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::filesystem::resize_file(path, 5000);
  std::string bytes(9000, ' ');
  const absl::Status status = (*file)->Read(0, bytes.data(), bytes.size());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(path + ": it ends after 5000 bytes where it had 9000"));
}

TEST(ModelFileTest, OpensFilesAlone) {
  const TempFolder folder;
  const std::string fifo = (folder.path() / "fifo").string();
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path :
       {fifo, folder.path().string(), std::string("/dev/zero")}) {
    const absl::Status status = ModelFile::Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(path + " is not a regular file"));
  }
  EXPECT_EQ(ModelFile::Open((folder.path() / "none").string()).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace weir
