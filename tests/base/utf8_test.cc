#include "kernels/base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace weir {
namespace {

TEST(Utf8Test, TakesEveryCharacter) {
  for (const char* text :
       {"", "plain", "\x7f", "\xc2\x80", "caf\xc3\xa9", "\xdf\xbf",
        "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf",
        "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
    EXPECT_EQ(EscapeNonUtf8(text), text);
  }
  EXPECT_TRUE(IsUtf8(std::string("a\0b", 3)));
}

TEST(Utf8Test, EscapesWhatIsNone) {
  for (const auto& [text, escaped] : {
           std::pair("caf\xe9", "caf\\xe9"),
           std::pair("\xff", "\\xff"),
           std::pair("a\x80"
                     "b",
                     "a\\x80b"),
           std::pair("\xc3", "\\xc3"),
           std::pair("\xe2\x82", "\\xe2\\x82"),
           std::pair("\xc0\x80", "\\xc0\\x80"),           // too long for NUL
           std::pair("\xe0\x9f\xbf", "\\xe0\\x9f\\xbf"),  // for U+07FF
           std::pair("\xf0\x8f\xbf\xbf", "\\xf0\\x8f\\xbf\\xbf"),
           std::pair("\xed\xa0\x80", "\\xed\\xa0\\x80"),  // a surrogate
           std::pair("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"),
           std::pair("\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80"),
           std::pair("\xf8\x88\x80\x80\x80", "\\xf8\\x88\\x80\\x80\\x80"),
           std::pair("\xc3\xa9\xe9\xc3\xa9", "\xc3\xa9\\xe9\xc3\xa9"),
       }) {
    EXPECT_FALSE(IsUtf8(text)) << escaped;
    EXPECT_EQ(EscapeNonUtf8(text), escaped);
    EXPECT_TRUE(IsUtf8(EscapeNonUtf8(text)));
  }
}

TEST(Utf8Test, CutsNoCharacter) {
  EXPECT_EQ(CutText("", 4), "");
  EXPECT_EQ(CutText("a", 0), "");
  EXPECT_EQ(CutText("four", 4), "four");
  EXPECT_EQ(CutText("four more", 4), "four");
  const std::string e = "\xc3\xa9", euro = "\xe2\x82\xac",
                    bridge = "\xf0\x9f\x8c\x89";
  EXPECT_EQ(CutText("a" + e + e, 4), "a" + e);
  EXPECT_EQ(CutText("a" + e + e, 5), "a" + e + e);
  for (const size_t bytes : {size_t{1}, size_t{2}, size_t{3}}) {
    EXPECT_EQ(CutText("a" + euro, bytes), "a");
    EXPECT_EQ(CutText("a" + bridge, bytes), "a");
    EXPECT_EQ(CutText(euro, bytes), bytes < 3 ? "" : euro);
  }
  EXPECT_EQ(CutText("a" + bridge, 4), "a");
  EXPECT_EQ(CutText("a" + bridge + "b", 5), "a" + bridge);
  // What is no character has nothing to be kept together.
  EXPECT_EQ(CutText("\x80\x80\x80\x80\x80\x80", 5), "\x80\x80\x80\x80\x80");
  EXPECT_EQ(CutText("\xc3\xa9\x80\x80", 3), "\xc3\xa9\x80");
  EXPECT_EQ(CutText("a\xe2\x82", 2), "a\xe2");
}

TEST(Utf8Test, QuotesHowATextBegins) {
  const std::string whole(64, 'a');
  EXPECT_EQ(QuoteStart(""), "\"\"");
  EXPECT_EQ(QuoteStart(whole), "\"" + whole + "\"");
  EXPECT_EQ(QuoteStart(whole + "b"), "\"" + whole + "...\"");
  EXPECT_EQ(QuoteStart("caf\xe9"), "\"caf\\xe9\"");
  // No character is cut through; what is none is escaped.
  const std::string most(63, 'a');
  EXPECT_EQ(QuoteStart(most + "\xc3\xa9"), "\"" + most + "...\"");
  EXPECT_EQ(QuoteStart(most + "\xe9more"), "\"" + most + "\\xe9...\"");
}

}  // namespace
}  // namespace weir
