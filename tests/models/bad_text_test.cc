#include "server/models/bad_text.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/weir/v1/graph.pb.h"

namespace weir {
namespace {

v1::GraphDefinition Definition() {
  v1::GraphDefinition definition;
  definition.add_inputs()->set_name("x");
  definition.add_outputs("y");
  for (const char* name : {"first", "second"}) {
    v1::Node* node = definition.add_nodes();
    node->set_name(name);
    node->set_op("Neg");
    node->add_inputs("x");
    v1::Attribute* attribute = node->add_attributes();
    attribute->set_name("axis");
    attribute->set_i(1);
  }
  v1::NamedTensor* constant = definition.add_constants();
  constant->set_name("c");
  // Bytes may be any.
  constant->mutable_value()->set_raw("\xff\xfe");
  return definition;
}

std::string Replaced(std::string bytes, const std::string& from,
                     const std::string& to) {
  bytes.replace(bytes.find(from), from.size(), to);
  return bytes;
}

TEST(BadTextTest, NamesTheFieldAtFault) {
  const auto& type = *v1::GraphDefinition::descriptor();
  const std::string good = Definition().SerializeAsString();
  EXPECT_FALSE(FindBadText(type, good).has_value());
  const struct {
    std::string bytes;
    std::string path;
    std::string text;
  } cases[] = {
      {Replaced(good, "second", "sec\xffnd"), "nodes[1].name", "sec\xffnd"},
      {Replaced(good, "axis", "ax\xc3s"), "nodes[0].attributes[0].name",
       "ax\xc3s"},
      {Replaced(good, "\x01y", "\x01\x80"), "outputs[0]", "\x80"},
  };
  for (const auto& c : cases) {
    v1::GraphDefinition parsed;
    EXPECT_FALSE(parsed.ParseFromString(c.bytes));
    const auto bad = FindBadText(type, c.bytes);
    ASSERT_TRUE(bad.has_value()) << c.path;
    EXPECT_EQ(bad->path, c.path);
    EXPECT_EQ(bad->text, c.text);
  }
}

TEST(BadTextTest, EndsWhereThereIsNoMessage) {
  const auto& type = *v1::GraphDefinition::descriptor();
  const std::string good = Definition().SerializeAsString();
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(FindBadText(type, good.substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(FindBadText(type, std::string(1000, '\x0b')).has_value());
  EXPECT_FALSE(FindBadText(type, std::string(1000, '\xff')).has_value());
}

}  // namespace
}  // namespace weir
