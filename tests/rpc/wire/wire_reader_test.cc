#include "server/rpc/wire/wire_reader.h"

#include <gmock/gmock.h>

#include <string>

#include "kernels/base/error_info.h"
#include "tests/bytes/sliced.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// Reads everything, as a parser does with fields that it does not know.
absl::Status SkipAll(const std::string& bytes, size_t piece = 1) {
  const Sliced sliced(bytes, piece);
  CallArena arena;
  WireReader reader(sliced.view(), &arena);
  while (reader.NextField()) reader.Skip();
  return reader.status("Test");
}

TEST(WireReaderTest, ReadsEveryKindOfFieldAcrossPieces) {
  const std::string bytes =
      std::string("\x08\x96\x01", 3) +              // 1: 150
      std::string("\x15\x01\x02\x03\x04", 5) +      // 2: fixed32
      std::string("\x19\x01\0\0\0\0\0\0\x80", 9) +  // 3: fixed64
      std::string("\x22\x05hello", 7) +             // 4: string
      std::string("\x2a\x03\x08\x07\x06", 5);       // 5: bytes
  for (size_t piece : {1u, 2u, 3u, 5u, 100u}) {
    SCOPED_TRACE(piece);
    const Sliced sliced(bytes, piece);
    CallArena arena;
    WireReader reader(sliced.view(), &arena);
    ASSERT_TRUE(reader.NextField());
    EXPECT_EQ(reader.number(), 1u);
    EXPECT_EQ(reader.Varint(), 150u);
    ASSERT_TRUE(reader.NextField());
    EXPECT_EQ(reader.Fixed32(), 0x04030201u);
    ASSERT_TRUE(reader.NextField());
    EXPECT_EQ(reader.Fixed64(), 0x8000000000000001u);
    ASSERT_TRUE(reader.NextField());
    EXPECT_EQ(reader.Name("text"), "hello");
    ASSERT_TRUE(reader.NextField());
    EXPECT_EQ(ToString(reader.Bytes()), "\x08\x07\x06");
    EXPECT_FALSE(reader.NextField());
    EXPECT_TRUE(reader.status("Test").ok());
  }
}

TEST(WireReaderTest, ANameHasAtMost1024Bytes) {
  for (size_t size : {size_t{1024}, size_t{1025}}) {
    const std::string name(size, 'n');
    const std::string head = {'\x0a', static_cast<char>((size & 0x7f) | 0x80),
                              static_cast<char>(size >> 7)};
    const Sliced sliced(head + name, 100);
    CallArena arena;
    WireReader reader(sliced.view(), &arena);
    ASSERT_TRUE(reader.NextField());
    EXPECT_EQ(reader.Name("name"), size == 1024 ? name : "");
    const absl::Status status = reader.status("Test");
    EXPECT_EQ(status.ok(), size == 1024) << status;
    if (status.ok()) continue;
    EXPECT_EQ(status.message(), "name has 1025 bytes; it may have 1024");
    EXPECT_EQ(Field(status), "name");
  }
}

TEST(WireReaderTest, BytesStayWhereTheyAre) {
  const Sliced sliced(
      "\x0a\x06"
      "abcdef",
      5);
  CallArena arena;
  WireReader reader(sliced.view(), &arena);
  ASSERT_TRUE(reader.NextField());
  const ByteView view = reader.Bytes();
  ASSERT_EQ(view.pieces().size(), 2u);
  EXPECT_EQ(view.pieces()[0].data(), sliced.view().pieces()[0].data() + 2);
  EXPECT_EQ(view.pieces()[1].data(), sliced.view().pieces()[1].data());
  EXPECT_EQ(ToString(view), "abcdef");
}

TEST(WireReaderTest, RepeatedNumbersPackedOrNot) {
  const Sliced sliced("\x0a\x03\x01\x96\x01\x08\x07", 2);
  CallArena arena;
  WireReader reader(sliced.view(), &arena);
  std::vector<uint64_t> values;
  while (reader.NextField()) {
    reader.RepeatedVarint([&](uint64_t value) { values.push_back(value); });
  }
  EXPECT_TRUE(reader.ok());
  EXPECT_THAT(values, testing::ElementsAre(1, 150, 7));
}

// Lets the arena have nothing, and counts what it asks for.
absl::Status Refuse(void* asked, size_t bytes) {
  *static_cast<size_t*>(asked) += bytes;
  return absl::ResourceExhaustedError("no room");
}

// What lies in several slices is copied, or listed: not without room for it.
TEST(WireReaderTest, TakesNothingThatItIsRefused) {
  constexpr size_t kBytes = 100'000;
  const std::string field =
      std::string("\x0a\xa0\x8d\x06", 4) + std::string(kBytes, 'x');
  const Sliced sliced(field, 10);
  const auto read = [&](bool as_string) {
    size_t asked = 0;
    CallArena arena(&Refuse, &asked);
    WireReader reader(sliced.view(), &arena);
    EXPECT_TRUE(reader.NextField());
    EXPECT_EQ(as_string ? reader.String("text", kBytes).size()
                        : reader.Bytes().size(),
              0u);
    EXPECT_GE(asked, as_string ? kBytes : kBytes / 10 * sizeof(BytePiece));
    EXPECT_TRUE(absl::IsResourceExhausted(reader.status("a message")));
  };
  read(/*as_string=*/true);
  read(/*as_string=*/false);
}

TEST(WireReaderTest, ANestedMessageEndsWhereItSays) {
  // 1: { 1: 5, 2: 6 } 2: 7
  const Sliced sliced("\x0a\x04\x08\x05\x10\x06\x10\x07", 3);
  CallArena arena;
  WireReader reader(sliced.view(), &arena);
  ASSERT_TRUE(reader.NextField());
  int fields = 0;
  reader.Nested([&](WireReader&) {
    while (reader.NextField()) {
      reader.Varint();
      ++fields;
    }
  });
  EXPECT_EQ(fields, 2);
  ASSERT_TRUE(reader.NextField());
  EXPECT_EQ(reader.Varint(), 7u);
  EXPECT_TRUE(reader.ok());
}

TEST(WireReaderTest, AFieldAtFaultIsNamedWithItsPath) {
  // 1: { 1: { 1: "\xff..." } }
  const std::string text = "\xff\xfe" + std::string(98, 'n');
  const Sliced sliced(std::string("\x0a\x68\x0a\x66\x0a\x64") + text, 3);
  CallArena arena;
  WireReader reader(sliced.view(), &arena);
  ASSERT_TRUE(reader.NextField());
  reader.Message("inputs", 7, [&](WireReader&) {
    ASSERT_TRUE(reader.NextField());
    reader.Message("value", [&](WireReader&) {
      ASSERT_TRUE(reader.NextField());
      reader.Name("name");
    });
  });
  EXPECT_FALSE(reader.NextField());
  reader.FailTooMany("outputs", 3);  // the first error wins
  const absl::Status status = reader.status("Test");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Field(status), "inputs[7].value.name");
  EXPECT_EQ(status.message(),
            "inputs[7].value.name is not UTF-8: \"\\xff\\xfe" +
                std::string(62, 'n') + "...\"");
}

TEST(WireReaderTest, SkipsGroups) {
  EXPECT_TRUE(SkipAll("\x0b\x10\x05\x13\x14\x0c").ok());
  EXPECT_FALSE(SkipAll("\x0b\x10\x05").ok());
  EXPECT_FALSE(SkipAll("\x0b\x14").ok());
  EXPECT_FALSE(SkipAll("\x0c").ok());
}

TEST(WireReaderTest, GroupsInGroupsAreBounded) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '\x0b') + std::string(depth, '\x0c');
  };
  EXPECT_TRUE(SkipAll(nested(32)).ok());
  EXPECT_FALSE(SkipAll(nested(33)).ok());
}

TEST(WireReaderTest, ANumberHasAtMostTenBytes) {
  // As negative ones have.
  const Sliced sliced("\x08" + std::string(9, '\xff') + "\x01", 4);
  CallArena arena;
  WireReader reader(sliced.view(), &arena);
  ASSERT_TRUE(reader.NextField());
  EXPECT_EQ(reader.Int64(), -1);
  EXPECT_FALSE(reader.NextField());
  EXPECT_TRUE(reader.status("Test").ok());

  EXPECT_FALSE(SkipAll("\x08" + std::string(10, '\xff') + "\x01").ok());
}

TEST(WireReaderTest, RefusesBrokenBytes) {
  const std::string broken[] = {
      std::string("\0", 1),  // field 0
      "\x0e",                // wire type 6
      "\x08",                // no value
      "\x08\xff",            // a number without an end
      std::string("\x08") + std::string(11, '\xff'),
      "\x0d\x01\x02",  // short fixed32
      "\x09\x01\x02",  // short fixed64
      "\x0a\x05"
      "abc",  // longer than the message
      "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
      std::string("\x88\x80\x80\x80\x80\0\x01", 7),   // a tag of 6 bytes
      std::string("\x0a\x81\x80\x80\x80\x80\0z", 8),  // a length of 6
      "\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x01",     // field number too large
  };
  for (const std::string& bytes : broken) {
    for (size_t piece : {1u, 4u, 100u}) {
      const absl::Status status = SkipAll(bytes, piece);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr("malformed Test"));
    }
  }
}

// What follows the tag could be read as any of them.
TEST(WireReaderTest, WrongWireTypesAreErrors) {
  const struct {
    WireType type;
    void (*read)(WireReader&);
  } readers[] = {
      {WireType::kVarint, [](WireReader& reader) { reader.Varint(); }},
      {WireType::kFixed64, [](WireReader& reader) { reader.Fixed64(); }},
      {WireType::kBytes, [](WireReader& reader) { reader.Bytes(); }},
      {WireType::kBytes, [](WireReader& reader) { reader.Name("text"); }},
      {WireType::kFixed32, [](WireReader& reader) { reader.Fixed32(); }},
  };
  for (const char type : {0, 1, 2, 3, 5}) {
    for (const auto& [right, read] : readers) {
      SCOPED_TRACE(static_cast<int>(type));
      const std::string tag(1, static_cast<char>(1 << 3 | type));
      const Sliced sliced(tag + "\x01\x02\x03\x04\x05\x06\x07\x08", 10);
      CallArena arena;
      WireReader reader(sliced.view(), &arena);
      ASSERT_TRUE(reader.NextField());
      read(reader);
      EXPECT_EQ(reader.ok(), reader.type() == right);
    }
  }
}

}  // namespace
}  // namespace weir
