// NVRTC where only we know its folder, as with a toolkit made of wheels.
#include "kernels/device/cuda/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "kernels/device/cuda/dynamic_library.h"

namespace weir {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

std::string MappedFiles() {
  std::ifstream maps("/proc/self/maps");
  return {std::istreambuf_iterator<char>(maps), {}};
}

class NvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "weir-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    for (const std::string& known : CudaLibraryFolders()) {
      if (!fs::exists(fs::path(known) / "libnvrtc.so.13")) continue;
      for (const auto& file : fs::directory_iterator(known)) {
        const std::string library = file.path().filename();
        if (library == "libnvrtc.so.13" ||
            library.starts_with("libnvrtc-builtins.so.13.")) {
          fs::copy_file(file.path(), folder_ / library);
        }
      }
      return;
    }
    GTEST_SKIP() << "no libnvrtc.so.13 on this machine";
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

TEST_F(NvrtcTest, TakesItsBuiltinsFromItsOwnFolder) {
  setenv("WEIR_CUDA_LIBRARY_PATH", folder_.c_str(), 1);
  auto file = Nvrtc::Find();
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->path, (folder_ / "libnvrtc.so.13").string());
  EXPECT_THAT(MappedFiles(), Not(HasSubstr("libnvrtc")))
      << "finding it loads nothing";
  auto nvrtc = Nvrtc::Open(*file);
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  auto cubin = nvrtc->Compile(
      "extern \"C\" __global__ void K(float* x) { *x = __expf(*x); }", 90);
  ASSERT_TRUE(cubin.ok()) << cubin.status();
  EXPECT_FALSE(cubin->empty());
  const std::string mapped = MappedFiles();
  EXPECT_THAT(mapped, HasSubstr((folder_ / "libnvrtc.so.13").string()));
  EXPECT_THAT(mapped, HasSubstr((folder_ / "libnvrtc-builtins.so.").string()));
}

}  // namespace
}  // namespace weir
