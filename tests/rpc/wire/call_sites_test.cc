#include "server/rpc/wire/call_sites.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/base/error_info.h"
#include "proto/weir/v1/graph.pb.h"
#include "server/bytes/call_arena.h"
#include "tests/bytes/sliced.h"

namespace weir {
namespace {

// Nodes with these call sites, and what else a graph has.
v1::GraphDefinition Definition(const std::vector<std::string>& sites) {
  v1::GraphDefinition definition;
  definition.add_inputs()->set_name("x");
  for (const std::string& site : sites) {
    v1::Node* const node = definition.add_nodes();
    node->set_name(std::string(100, 'n'));
    node->set_op("Neg");
    node->add_inputs("x");
    node->add_outputs("y");
    v1::Attribute* const attribute = node->add_attributes();
    attribute->set_name("a");
    attribute->set_i(7);
    node->set_call_site(site);
  }
  definition.add_outputs("y");
  definition.set_opset(17);
  return definition;
}

std::string Told(const CallSites& sites, size_t node) {
  return std::string(
      sites.Tell(WithNodeIndex(absl::InternalError("!"), node)).message());
}

TEST(CallSitesWireTest, AreReadByTheNodesPlaces) {
  const std::string bytes =
      Definition({"a.py:1", "", "b.py:22"}).SerializeAsString();
  for (const size_t size : {size_t{1}, size_t{7}, bytes.size()}) {
    SCOPED_TRACE(size);
    const Sliced pieces(bytes, size);
    CallArena arena;
    const CallSites sites = ReadCallSites(pieces.view(), &arena);
    EXPECT_EQ(Told(sites, 0), "a.py:1: !");
    EXPECT_EQ(Told(sites, 1), "!");
    EXPECT_EQ(Told(sites, 2), "b.py:22: !");
  }
}

// What is left is the same message without them, whatever they were.
TEST(CallSitesWireTest, AreTakenOut) {
  const std::string without = Definition({"", "", ""}).SerializeAsString();
  const std::vector<std::vector<std::string>> all = {
      {"a", "", ""},
      {"", "", "b.py:1"},
      {"a.py:1", std::string(3000, 'x'), "c"},
      {std::string(10, 'y'), std::string(200, 'z'), ""}};
  for (const std::vector<std::string>& sites : all) {
    const std::string bytes = Definition(sites).SerializeAsString();
    for (const size_t size : {size_t{1}, size_t{7}, bytes.size()}) {
      SCOPED_TRACE(size);
      const Sliced pieces(bytes, size);
      CallArena arena;
      const auto taken = WithoutCallSites(pieces.view(), &arena);
      ASSERT_TRUE(taken.has_value());
      EXPECT_EQ(std::string(taken->begin(), taken->end()), without);
    }
  }
}

TEST(CallSitesWireTest, NothingIsCopiedWhereThereAreNone) {
  const Sliced pieces(Definition({"", ""}).SerializeAsString(), 1000);
  CallArena arena;
  EXPECT_FALSE(WithoutCallSites(pieces.view(), &arena).has_value());
  EXPECT_TRUE(ReadCallSites(pieces.view(), &arena).empty());
}

// The last of several counts, as protobuf has it, and all are taken out.
TEST(CallSitesWireTest, ANodeMayHaveSeveral) {
  v1::Node first, second;
  first.set_call_site("first");
  second.set_op("Neg");
  second.set_call_site("second");
  const std::string node =
      first.SerializeAsString() + second.SerializeAsString();
  std::string bytes = "\x0a";
  bytes += static_cast<char>(node.size());
  bytes += node;
  const Sliced pieces(bytes, 5);
  CallArena arena;
  EXPECT_EQ(Told(ReadCallSites(pieces.view(), &arena), 0), "second: !");
  const auto taken = WithoutCallSites(pieces.view(), &arena);
  ASSERT_TRUE(taken.has_value());
  v1::GraphDefinition left;
  ASSERT_TRUE(
      left.ParseFromArray(taken->data(), static_cast<int>(taken->size())));
  ASSERT_EQ(left.nodes_size(), 1);
  EXPECT_EQ(left.nodes(0).op(), "Neg");
  EXPECT_EQ(left.nodes(0).call_site(), "");
}

// Nobody's program writes so many.
TEST(CallSitesWireTest, ANodeOfVeryManyIsNotRead) {
  v1::Node one;
  one.set_call_site("a.py:1");
  for (const size_t count : {size_t{16}, size_t{17}}) {
    std::string node;
    for (size_t i = 0; i < count; ++i) node += one.SerializeAsString();
    std::string bytes = "\x0a";
    bytes += static_cast<char>(0x80 | (node.size() & 0x7F));
    bytes += static_cast<char>(node.size() >> 7);
    bytes += node;
    const Sliced pieces(bytes, 1000);
    CallArena arena;
    EXPECT_EQ(ReadCallSites(pieces.view(), &arena).empty(), count > 16);
    EXPECT_EQ(WithoutCallSites(pieces.view(), &arena).has_value(), count <= 16);
  }
}

TEST(CallSitesWireTest, WhatIsMalformedIsLeftAlone) {
  const std::string bytes = Definition({"a.py:1"}).SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Sliced pieces(bytes.substr(0, size), 3);
    CallArena arena;
    const auto taken = WithoutCallSites(pieces.view(), &arena);
    if (!taken.has_value()) continue;
    v1::GraphDefinition left;
    EXPECT_TRUE(
        left.ParseFromArray(taken->data(), static_cast<int>(taken->size())));
  }
}

// It is repeated in a protobuf's string.
TEST(CallSitesWireTest, BytesThatAreNoTextAreEscaped) {
  std::string bytes = Definition({"abc"}).SerializeAsString();
  bytes[bytes.find("abc")] = '\xff';
  const Sliced pieces(bytes, 1000);
  CallArena arena;
  EXPECT_EQ(Told(ReadCallSites(pieces.view(), &arena), 0), "\\xffbc: !");
}

}  // namespace
}  // namespace weir
