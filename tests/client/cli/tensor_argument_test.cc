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
  ExpectInvalid("x=float16:1:one", "'one' is no float16");
  ExpectUnreadable("/no/such/file");
  ExpectUnreadable(folder_);
}

// Which is wrong whatever the server takes.
TEST_F(TensorArgumentTest, CountsTheValuesAgainstTheShape) {
  ExpectInvalid("x=float:3:1,2", "2 values where the dimensions have 3");
  ExpectInvalid("x=float:2x2:1,2,3,4,5", "5 values where");
  ExpectInvalid("x=float:scalar:1,2", "2 values where the dimensions have 1");
  ExpectInvalid("x=float:2:", "0 values where the dimensions have 2");
  ExpectInvalid("x=float:scalar:", "0 values where");
  ExpectInvalid("x=float:0x3:1", "1 values where the dimensions have 0");
  ExpectInvalid("x=BYTES:2:a", "1 values where");
  ExpectInvalid("x=BYTES:2:", "0 values where the dimensions have 2");
  ExpectInvalid("x=uint8:9223372036854775807x3:1", "1 values where");
  EXPECT_EQ(Parsed("x=BYTES:1x1:").bytes, std::string(4, '\0'));
  EXPECT_EQ(Parsed("x=uint8:9223372036854775807x3x0:").bytes, "");
}

// As outputs' may.
TEST_F(TensorArgumentTest, NamesMayHoldWhatDividesThemFromTheirValues) {
  const struct {
    const char* text;
    const char* name;
    size_t bytes;
  } cases[] = {
      {"a=b=float:1:1", "a=b", 4},  {"a=b=FP32:1:1", "a=b", 4},
      {"==float:1:1", "=", 4},      {"x=string:1:y=float:1", "x", 4 + 9},
      {"x=y=@/dev/null", "x=y", 0}, {"x=@/dev/null=:float:0", "", 0}};
  for (const auto& c : cases) {
    const auto tensor = ParseTensorArgument(c.text);
    if (*c.name == '\0') {
      EXPECT_THAT(std::string(tensor.status().message()),
                  HasSubstr("cannot read /dev/null=: "));
      continue;
    }
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->name, c.name);
    EXPECT_EQ(tensor->bytes.size(), c.bytes);
  }
}

TEST_F(TensorArgumentTest, ReadsHalves) {
  // Ties go to even, denormals are there, what is too large is infinite.
  EXPECT_THAT(Values<uint16_t>(
                  Parsed("x=float16:12:1,-0,0.1,65504,65519,65520,2049,2051,"
                         "6e-8,1e-9,-inf,6.1035e-05")
                      .bytes),
              ElementsAre(0x3c00, 0x8000, 0x2e66, 0x7bff, 0x7bff, 0x7c00,
                          0x6800, 0x6802, 0x0001, 0x0000, 0xfc00, 0x0400));
  EXPECT_THAT(
      Values<uint16_t>(
          Parsed("x=BF16:7:1,-2.5,257,259,3.4e38,1e-40,inf").bytes),
      ElementsAre(0x3f80, 0xc020, 0x4380, 0x4382, 0x7f80, 0x0001, 0x7f80));
  const auto nans = Values<uint16_t>(Parsed("x=float16:1:nan").bytes);
  ASSERT_EQ(nans.size(), 1u);
  EXPECT_EQ(nans[0] & 0x7fff, 0x7e00);
}

TEST_F(TensorArgumentTest, ReadsEmptyText) {
  const std::string empty(4, '\0');
  EXPECT_EQ(Parsed("x=string:1:").bytes, empty);
  EXPECT_EQ(Parsed("x=string::").bytes, empty);
  EXPECT_EQ(Parsed("x=string:1x1:").bytes, empty);
  EXPECT_EQ(Parsed("x=string:2:,").bytes, empty + empty);
  EXPECT_EQ(Parsed("x=string:0:").bytes, "");
}

TEST_F(TensorArgumentTest, TellsATypoFromAMissingFile) {
  const std::string raw = Write("a.f32", std::string(24, '\1'));
  ExpectInvalid("x=@" + raw + ":floot:2x3",
                "behind " + raw + " 'floot' is no element type: float, double");
  ExpectInvalid("x=@" + raw + ":float:2q3", "'2q3' are no dimensions");
  ExpectInvalid("x=@" + raw + ":float", "no two parts");
  ExpectUnreadable(folder_ + "/b.f32:floot:2x3");
  // A name may have colons.
  EXPECT_EQ(Parsed("x=@" + Write("a.f32:floot:1", "xyz")).bytes, "xyz");
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

TEST_F(TensorArgumentTest, ShowsWhatIsThere) {
  const auto shown = [](const std::string& text) {
    const TensorArgument tensor = Parsed("x=" + text);
    return Summary(tensor.dtype, tensor.shape, tensor.bytes);
  };
  EXPECT_EQ(shown("int64:3:1234567,9223372036854775807,-1"),
            "int64 [3]: 1234567 9223372036854775807 -1");
  EXPECT_EQ(shown("uint64:1:18446744073709551615"),
            "uint64 [1]: 18446744073709551615");
  EXPECT_EQ(shown("int8:2:-128,65"), "int8 [2]: -128 65");
  EXPECT_EQ(shown("uint8:1:65"), "uint8 [1]: 65");
  EXPECT_EQ(shown("bool:2:true,false"), "bool [2]: 1 0");
  EXPECT_EQ(shown("float:5:0.1,16777215,100000,nan,-inf"),
            "float [5]: 0.1 16777215 100000 nan -inf");
  EXPECT_EQ(shown("double:2:0.1,0.12345678901234567"),
            "double [2]: 0.1 0.12345678901234566");
  EXPECT_EQ(shown("float16:6:0.1,-65504,inf,nan,6e-8,-0"),
            "float16 [6]: 0.0999756 -65504 inf nan 5.96046e-08 -0");
  EXPECT_EQ(shown("bfloat16:2:3.140625,1e-40"),
            "bfloat16 [2]: 3.14062 9.18355e-41");
  EXPECT_EQ(shown("string:3:ab,,\"\xc3\xa4\xff\n"),
            "string [3]: \"ab\" \"\" \"\\\"\\303\\244\\377\\n\"");
  EXPECT_EQ(shown("string:0:"), "string [0]");
  EXPECT_EQ(shown("string:1:" + std::string(100, 'x')),
            "string [1]: \"" + std::string(60, 'x') + "\"...");
  EXPECT_EQ(shown("string:9:a,b,c,d,e,f,g,h,i"),
            "string [9]: \"a\" \"b\" \"c\" \"d\" \"e\" \"f\" \"g\" "
            "\"h\" ...");
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
