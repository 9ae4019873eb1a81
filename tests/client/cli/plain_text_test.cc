#include "client/cli/plain_text.h"

#include <gtest/gtest.h>

#include <string>

namespace weir::client {
namespace {

TEST(PlainTextTest, KnowsUtf8) {
  for (const char* text : {"", "digits", "caf\xc3\xa9", "\xe2\x82\xac", "\n"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
  }
  // A byte of Latin-1, a cut one, a surrogate, one written too long.
  for (const char* text :
       {"caf\xe9", "\xe2\x82", "\xed\xa0\x80", "\xc0\xaf", "a\xff"}) {
    EXPECT_FALSE(IsUtf8(text)) << text;
  }
}

TEST(PlainTextTest, ALineIsOne) {
  EXPECT_EQ(OneLine("no model \"a\nb\""), "no model \"a\\nb\"");
  EXPECT_EQ(OneLine("a\r\t\x1b[2J\x7f"), "a\\r\\t\\x1b[2J\\x7f");
  EXPECT_EQ(OneLine("caf\xc3\xa9 \\ 'x'"), "caf\xc3\xa9 \\ 'x'");
  EXPECT_EQ(OneLine(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(OneLine(""), "");
}

}  // namespace
}  // namespace weir::client
