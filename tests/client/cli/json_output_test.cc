#include "client/cli/json_output.h"

#include <gtest/gtest.h>

#include "client/cli/tensor_argument.h"
#include "proto/weir/v1/catalog.pb.h"

namespace weir::client {
namespace {

// The values of a tensor as the command line writes it.
std::string Values(const std::string& text) {
  const TensorArgument tensor = *ParseTensorArgument("x=" + text);
  return TensorJson("x", tensor.dtype, tensor.shape, tensor.bytes)["values"]
      .dump();
}

TEST(JsonOutputTest, ElementsAreNumbers) {
  EXPECT_EQ(Values("float:3:0.1,-2,3e10"), "[0.1,-2,30000000000.0]");
  EXPECT_EQ(Values("float16:2:0.5,65504"), "[0.5,65504]");
  EXPECT_EQ(Values("int64:1:-9223372036854775808"), "[-9223372036854775808]");
  EXPECT_EQ(Values("uint64:1:18446744073709551615"), "[18446744073709551615]");
  EXPECT_EQ(Values("bool:2:true,0"), "[true,false]");
  EXPECT_EQ(Values("float:2:-0,0"), "[-0.0,0]");
  EXPECT_EQ(Values("double:3:nan,inf,-inf"),
            R"(["NaN","Infinity","-Infinity"])");
  EXPECT_EQ(Values("float:0:"), "[]");
}

TEST(JsonOutputTest, TextIsText) {
  EXPECT_EQ(Values("string:2:a\"b,\xc3\xa9"), "[\"a\\\"b\",\"\xc3\xa9\"]");
  EXPECT_EQ(Values("string:1:\xff"), R"([{"base64":"/w=="}])");
}

TEST(JsonOutputTest, ATensorSaysWhatItIs) {
  EXPECT_EQ(TensorJson("y", v1::DATA_TYPE_UINT8, {1, 2}, "\x01\x02").dump(),
            R"({"name":"y","dtype":"uint8","shape":[1,2],"values":[1,2]})");
}

// What is false, nothing or empty is there too.
TEST(JsonOutputTest, MessagesAreWhole) {
  v1::GetServerInfoResponse info;
  info.set_started_ns(5);
  info.add_modes(v1::EVAL_MODE_EAGER);
  const Json json = MessageJson(info);
  EXPECT_EQ(json["ready"], false);
  EXPECT_EQ(json["reason"], "");
  EXPECT_EQ(json["started_ns"], "5");
  EXPECT_EQ(json["modes"][0], "EVAL_MODE_EAGER");
}

}  // namespace
}  // namespace weir::client
