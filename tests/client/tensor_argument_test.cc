#include "client/cli/tensor_argument.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "proto/weir/v1/tensor.pb.h"

namespace weir::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::vector<T> Values(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

TensorArgument Parsed(const std::string& text) {
  auto tensor = ParseTensorArgument(text);
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  return tensor.ok() ? *std::move(tensor) : TensorArgument{};
}

void ExpectInvalid(const std::string& text, const std::string& part) {
  const absl::Status status = ParseTensorArgument(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  // The form is told too.
  EXPECT_THAT(std::string(status.message()), HasSubstr("NAME="));
}

// Not the form is wrong, but the file.
void ExpectUnreadable(const std::string& path) {
  const absl::Status status = ParseTensorArgument("x=@" + path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << path;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("'x=@" + path + "': cannot read " + path + ": "));
}

class TensorArgumentTest : public ::testing::Test {
 protected:
  TensorArgumentTest() {
    std::string path =
        (std::filesystem::temp_directory_path() / "weir_argument_XXXXXX")
            .string();
    if (mkdtemp(path.data()) == nullptr) abort();
    folder_ = path;
  }
  ~TensorArgumentTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  std::string folder_;
};

TEST_F(TensorArgumentTest, ReadsValues) {
  const TensorArgument tensor = Parsed("x=float:2x2:1,-2.5,3e2,nan");
  EXPECT_EQ(tensor.name, "x");
  EXPECT_EQ(tensor.dtype, v1::DATA_TYPE_FLOAT);
  EXPECT_THAT(tensor.shape, ElementsAre(2, 2));
  const auto values = Values<float>(tensor.bytes);
  ASSERT_EQ(values.size(), 4u);
  EXPECT_EQ(values[1], -2.5f);
  EXPECT_EQ(values[2], 300.f);
  EXPECT_NE(values[3], values[3]);
}

TEST_F(TensorArgumentTest, ReadsEveryTypeUnderBothNames) {
  EXPECT_THAT(Values<uint8_t>(Parsed("x=uint8:2:0,255").bytes),
              ElementsAre(0, 255));
  EXPECT_THAT(Values<int8_t>(Parsed("x=INT8:2:-128,127").bytes),
              ElementsAre(-128, 127));
  EXPECT_THAT(Values<uint16_t>(Parsed("x=UINT16:1:65535").bytes),
              ElementsAre(65535));
  EXPECT_THAT(Values<int16_t>(Parsed("x=int16:1:-32768").bytes),
              ElementsAre(-32768));
  EXPECT_THAT(Values<uint32_t>(Parsed("x=uint32:1:4294967295").bytes),
              ElementsAre(4294967295u));
  EXPECT_THAT(Values<int32_t>(Parsed("x=int32:1:-2147483648").bytes),
              ElementsAre(std::numeric_limits<int32_t>::min()));
  EXPECT_THAT(Values<uint64_t>(Parsed("x=uint64:1:18446744073709551615").bytes),
              ElementsAre(std::numeric_limits<uint64_t>::max()));
  EXPECT_THAT(Values<int64_t>(Parsed("x=INT64:1:-9223372036854775808").bytes),
              ElementsAre(std::numeric_limits<int64_t>::min()));
  EXPECT_THAT(Values<double>(Parsed("x=FP64:1:0.1").bytes), ElementsAre(0.1));
  EXPECT_THAT(Values<uint8_t>(Parsed("x=bool:4:0,1,true,false").bytes),
              ElementsAre(0, 1, 1, 0));
  EXPECT_EQ(Parsed("x=BYTES:2:ab,c").bytes,
            std::string("\2\0\0\0ab\1\0\0\0c", 11));
}

TEST_F(TensorArgumentTest, ReadsScalarsAndEmptyTensors) {
  EXPECT_TRUE(Parsed("x=float:scalar:1").shape.empty());
  EXPECT_TRUE(Parsed("x=float::1").shape.empty());
  const TensorArgument empty = Parsed("x=float:0x3:");
  EXPECT_THAT(empty.shape, ElementsAre(0, 3));
  EXPECT_EQ(empty.bytes, "");
}

TEST_F(TensorArgumentTest, ReadsFiles) {
  const std::string picture = Write("a.jpg", "12345");
  const TensorArgument file = Parsed("image=@" + picture);
  EXPECT_EQ(file.dtype, v1::DATA_TYPE_UINT8);
  EXPECT_THAT(file.shape, ElementsAre(5));
  EXPECT_EQ(file.bytes, "12345");

  const std::string raw = Write("a:b.f32", std::string(24, '\1'));
  const TensorArgument tensor = Parsed("x=@" + raw + ":FP32:2x3");
  EXPECT_EQ(tensor.dtype, v1::DATA_TYPE_FLOAT);
  EXPECT_THAT(tensor.shape, ElementsAre(2, 3));
  EXPECT_EQ(tensor.bytes.size(), 24u);
}

TEST_F(TensorArgumentTest, SaysWhatIsWrong) {
  ExpectInvalid("float:1:1", "no NAME=");
  ExpectInvalid("=float:1:1", "no NAME=");
  ExpectInvalid("x=float:1", "three parts");
  ExpectInvalid("x=floot:1:1", "'floot' is no element type: float, double");
  ExpectInvalid("x=float:-1:1", "'-1'");
  ExpectInvalid("x=float:2xx:1", "'2xx'");
  ExpectInvalid("x=float:1:one", "'one'");
  ExpectInvalid("x=uint8:1:256", "'256'");
  ExpectInvalid("x=uint8:1:-1", "'-1'");
  ExpectInvalid("x=uint32:1:-1", "'-1'");
  ExpectInvalid("x=bool:1:2", "'2'");
  ExpectInvalid("x=float16:1:1", "float16");
  ExpectUnreadable("/no/such/file");
  ExpectUnreadable(folder_);
}

TEST_F(TensorArgumentTest, MapsKservesNames) {
  for (int dtype = 1; dtype <= 16; ++dtype) {
    const std::string name = KserveDatatype(dtype);
    if (dtype == 14 || dtype == 15) {
      EXPECT_EQ(name, "");
    } else {
      EXPECT_EQ(DtypeFromKserve(name), dtype);
    }
  }
  EXPECT_EQ(DtypeFromKserve("FP8"), 0);
}

TEST_F(TensorArgumentTest, SummarizesTensors) {
  const TensorArgument tensor = Parsed("x=int32:4:1,2,3,4");
  EXPECT_EQ(Summary(tensor.dtype, tensor.shape, tensor.bytes, 2),
            "int32 [4]: 1 2 ...");
  EXPECT_EQ(Summary(tensor.dtype, tensor.shape, tensor.bytes),
            "int32 [4]: 1 2 3 4");
  EXPECT_EQ(Summary(v1::DATA_TYPE_STRING, {1}, "\1"), "string [1]");
}

TEST_F(TensorArgumentTest, WritesPicturesAndBytes) {
  const std::string png = folder_ + "/out.png";
  ASSERT_TRUE(
      WriteTensor(png, v1::DATA_TYPE_UINT8, {2, 2, 3}, std::string(12, 'c'))
          .ok());
  EXPECT_EQ(ReadFile(png)->substr(0, 4), "\x89PNG");
  EXPECT_EQ(
      WriteTensor(png, v1::DATA_TYPE_FLOAT, {2, 2, 3}, std::string(48, 'c'))
          .code(),
      absl::StatusCode::kInvalidArgument);
  // Fewer bytes than the shape says.
  EXPECT_FALSE(WriteTensor(png, v1::DATA_TYPE_UINT8, {2, 2, 3}, "short").ok());
  const std::string raw = folder_ + "/out.bin";
  ASSERT_TRUE(WriteTensor(raw, v1::DATA_TYPE_FLOAT, {1}, "abcd").ok());
  EXPECT_EQ(*ReadFile(raw), "abcd");
  ASSERT_TRUE(WriteTensor(raw, v1::DATA_TYPE_FLOAT, {0, 2}, "").ok());
  const auto empty = ReadFile(raw);
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(*empty, "");
  EXPECT_FALSE(
      WriteTensor(folder_ + "/no/out.bin", v1::DATA_TYPE_FLOAT, {1}, "a").ok());
}

}  // namespace
}  // namespace weir::client
