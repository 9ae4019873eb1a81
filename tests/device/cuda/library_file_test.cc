// Libraries that are looked at and not loaded, with a library of our own as the
// example.
#include "kernels/device/cuda/library_file.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "kernels/backend/devices.h"
#include "kernels/device/cuda/dynamic_library.h"

namespace weir {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kSoname[] = "libweir.so";

std::string Mapped() {
  std::ifstream maps("/proc/self/maps");
  return {std::istreambuf_iterator<char>(maps), {}};
}

class LibraryFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "weir-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    Dl_info info;
    ASSERT_NE(dladdr(reinterpret_cast<void*>(&BuildId), &info), 0);
    original_ = info.dli_fname;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name = kSoname) const {
    return (folder_ / name).string();
  }
  void Write(const std::string& text) const {
    std::ofstream(Path(), std::ios::binary) << text;
  }
  std::string Message(const std::string& soname = kSoname) const {
    const auto file = InspectLibrary(Path(), soname);
    EXPECT_EQ(file.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(file.status().message());
  }

  fs::path folder_;
  fs::path original_;
};

TEST_F(LibraryFileTest, TellsWhatItIsAndLoadsNothing) {
  fs::copy_file(original_, Path());
  const auto file = InspectLibrary(Path(), kSoname);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->path, Path());
  EXPECT_THAT(Mapped(), ::testing::Not(HasSubstr(Path())));
}

TEST_F(LibraryFileTest, KnowsTheBuild) {
  // The C library of every distribution carries an id.
  Dl_info info;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&getenv), &info), 0);
  const auto file = InspectLibrary(info.dli_fname, "libc.so.6");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_GE(file->build_id.size(), 16u);
  EXPECT_EQ(file->build_id.find_first_not_of("0123456789abcdef"),
            std::string::npos);
}

TEST_F(LibraryFileTest, AMissingFileIsNotFound) {
  EXPECT_EQ(InspectLibrary(Path(), kSoname).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(LibraryFileTest, AnotherLibraryIsRefused) {
  fs::copy_file(original_, Path());
  EXPECT_THAT(Message("libnvrtc.so.13"),
              HasSubstr("is \"libweir.so\", not libnvrtc.so.13"));
}

TEST_F(LibraryFileTest, ACopyThatBrokeOffIsRefused) {
  fs::copy_file(original_, Path());
  // Within what is loaded: the most of a file may be there for debuggers.
  const auto size = fs::file_size(Path());
  for (const uintmax_t kept : {size / 16, uintmax_t{4096}}) {
    fs::resize_file(Path(), kept);
    EXPECT_THAT(Message(), HasSubstr("is cut off")) << kept;
  }
  fs::resize_file(Path(), 64);
  EXPECT_THAT(Message(), HasSubstr("is cut off"));
  fs::resize_file(Path(), 63);
  EXPECT_THAT(Message(), HasSubstr("is no shared library"));
}

TEST_F(LibraryFileTest, AnythingElseIsRefused) {
  Write("");
  EXPECT_THAT(Message(), HasSubstr("is no shared library"));
  Write(std::string(100'000, 'x'));
  EXPECT_THAT(Message(), HasSubstr("is no shared library"));
  fs::copy_file("/proc/self/exe", Path(), fs::copy_options::overwrite_existing);
  Message();  // a program, or a library without a name
}

// Headers that lie about everything behind them.
TEST_F(LibraryFileTest, DamagedHeadersAreNoMoreThanAnError) {
  std::ifstream in(original_, std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(in), {});
  for (size_t at = 16; at < 512; ++at) {
    std::string damaged = whole.substr(0, 32 * 1024);
    damaged[at] = static_cast<char>(damaged[at] ^ 0xff);
    Write(damaged);
    InspectLibrary(Path(), kSoname).status().IgnoreError();
  }
}

TEST_F(LibraryFileTest, TheNamedFolderComesFirst) {
  fs::copy_file(original_, Path());
  setenv("WEIR_CUDA_LIBRARY_PATH", folder_.c_str(), 1);
  const auto file = FindLibrary(kSoname);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->path, Path());
  // A damaged one is passed over for a sound one: our own, beside us.
  Write("nonsense");
  const auto other = FindLibrary(kSoname);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(other->path, Path());
}

TEST_F(LibraryFileTest, WhatIsNowhereNamesTheRemedy) {
  setenv("WEIR_CUDA_LIBRARY_PATH", folder_.c_str(), 1);
  const auto none = FindLibrary("libweir-none.so.13");
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.status().message()),
              HasSubstr("WEIR_CUDA_LIBRARY_PATH"));
  std::ofstream(Path("libweir-none.so.13")) << "nonsense";
  const auto damaged = FindLibrary("libweir-none.so.13");
  EXPECT_EQ(damaged.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(damaged.status().message()),
              HasSubstr(Path("libweir-none.so.13")));
}

}  // namespace
}  // namespace weir
