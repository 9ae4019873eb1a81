// weir.v1.Catalog over the wire.
#include <gmock/gmock.h>

#include <set>
#include <string>

#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

template <typename Request, typename Response>
Answer<Response> Call(TestServer& server,
                      grpc::Status (v1::Catalog::Stub::*method)(
                          grpc::ClientContext*, const Request&, Response*),
                      const Request& request) {
  grpc::ClientContext context;
  SetPatience(&context);
  Answer<Response> answer;
  answer.status =
      (server.catalog().*method)(&context, request, &answer.response);
  return answer;
}

TEST(CatalogTest, TellsWhatTheServerIs) {
  TestServer server([](ServerOptions& o) {
    o.queue_length = 77;
    o.max_message_bytes = 1 << 20;
  });
  const auto answer = Call(server, &v1::Catalog::Stub::GetServerInfo, {});
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  const v1::GetServerInfoResponse& info = answer.response;
  EXPECT_EQ(info.name(), "weir");
  EXPECT_EQ(info.version(), Version());
  EXPECT_TRUE(info.ready());
  EXPECT_EQ(info.reason(), "");
  EXPECT_GT(info.started_ns(), 1'600'000'000'000'000'000);
  EXPECT_FALSE(info.incarnation().empty());
  EXPECT_EQ(info.limits().queue_length(), 77u);
  EXPECT_EQ(info.limits().streams(), 2u);
  EXPECT_EQ(info.limits().max_message_bytes(), 1u << 20);
  EXPECT_THAT(info.modes(),
              ::testing::ElementsAre(v1::EAGER, v1::SYNC_CPU, v1::SYNC_FULL));
  TestServer other;
  EXPECT_NE(
      Call(other, &v1::Catalog::Stub::GetServerInfo, {}).response.incarnation(),
      info.incarnation());
}

TEST(CatalogTest, ListsTheDevice) {
  TestServer server;
  const auto answer = Call(server, &v1::Catalog::Stub::ListDevices, {});
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.devices_size(), 1);
  const v1::Device& device = answer.response.devices(0);
  EXPECT_EQ(device.name(), "cpu");
  EXPECT_EQ(device.type(), v1::CPU);
  EXPECT_FALSE(device.uuid().empty());
  EXPECT_EQ(device.failure(), "");
  EXPECT_TRUE(device.is_default());
  EXPECT_GT(device.memory_bytes(), 0u);
  EXPECT_GT(device.compute_units(), 0u);
}

TEST(CatalogTest, ListsOperatorsByDomainAndName) {
  TestServer server;
  v1::ListOperatorsRequest request;
  auto answer = Call(server, &v1::Catalog::Stub::ListOperators, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  std::vector<std::pair<std::string, std::string>> names;
  for (const v1::OperatorSummary& op : answer.response.operators()) {
    names.emplace_back(op.domain(), op.name());
    EXPECT_FALSE(op.summary().empty()) << op.name();
    EXPECT_THAT(op.devices(), ::testing::Contains(v1::CPU)) << op.name();
  }
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const auto& [domain, name] :
       std::vector<std::pair<std::string, std::string>>{{"", "Conv"},
                                                        {"", "Gemm"},
                                                        {"weir", "DecodeImage"},
                                                        {"weir", "Spin"}}) {
    EXPECT_THAT(names, ::testing::Contains(std::make_pair(domain, name)));
  }
  request.set_domain("weir");
  answer = Call(server, &v1::Catalog::Stub::ListOperators, request);
  for (const v1::OperatorSummary& op : answer.response.operators()) {
    EXPECT_EQ(op.domain(), "weir");
  }
  EXPECT_LT(answer.response.operators_size(), static_cast<int>(names.size()));
  request.set_domain("");
  const auto standard =
      Call(server, &v1::Catalog::Stub::ListOperators, request);
  EXPECT_EQ(static_cast<size_t>(standard.response.operators_size() +
                                answer.response.operators_size()),
            names.size());
}

TEST(CatalogTest, OffersTestOperatorsOnlyWhenTold) {
  TestServer server([](ServerOptions& o) { o.enable_test_operators = false; });
  v1::DescribeOperatorRequest request;
  request.set_domain("weir");
  request.set_name("Spin");
  EXPECT_TRUE(Refused(
      Call(server, &v1::Catalog::Stub::DescribeOperator, request).status,
      grpc::StatusCode::NOT_FOUND, "Spin"));
  EXPECT_TRUE(Refused(
      Evaluate(server, SpinRequest(std::chrono::microseconds(1))).status,
      grpc::StatusCode::UNIMPLEMENTED, "Spin"));
}

TEST(CatalogTest, DescribesAnOperator) {
  TestServer server;
  v1::DescribeOperatorRequest request;
  request.set_name("Gemm");
  const auto answer =
      Call(server, &v1::Catalog::Stub::DescribeOperator, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  const v1::OperatorDescription& op = answer.response.operator_description();
  EXPECT_EQ(op.summary().name(), "Gemm");
  ASSERT_EQ(op.inputs_size(), 3);
  EXPECT_EQ(op.inputs(0).presence(), v1::OperatorArgument::REQUIRED);
  EXPECT_EQ(op.inputs(2).presence(), v1::OperatorArgument::OPTIONAL);
  EXPECT_EQ(op.outputs_size(), 1);
  std::set<std::string> attributes;
  for (const auto& attribute : op.attributes()) {
    attributes.insert(attribute.name());
  }
  EXPECT_EQ(attributes,
            (std::set<std::string>{"alpha", "beta", "transA", "transB"}));
  request.set_name("Nothing");
  EXPECT_TRUE(Refused(
      Call(server, &v1::Catalog::Stub::DescribeOperator, request).status,
      grpc::StatusCode::NOT_FOUND, "Nothing"));
}

TEST(CatalogTest, ListsModels) {
  TestServer server(
      [](ServerOptions& o) { o.model_repository = TestData("models"); });
  const auto answer = Call(server, &v1::Catalog::Stub::ListModels, {});
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.models_size(), 1);
  const v1::Model& model = answer.response.models(0);
  EXPECT_EQ(model.name(), "digits");
  ASSERT_EQ(model.versions_size(), 1);
  EXPECT_EQ(model.versions(0).version(), 1);
  EXPECT_EQ(model.versions(0).state(), v1::READY);
  EXPECT_EQ(model.max_batch_size(), 512);
  ASSERT_EQ(model.inputs_size(), 1);
  EXPECT_EQ(model.inputs(0).spec().dtype(), v1::FLOAT);
  EXPECT_THAT(model.inputs(0).spec().shape(),
              ::testing::ElementsAre(-1, 1, 8, 8));
  EXPECT_EQ(model.outputs_size(), 2);
}

TEST(CatalogTest, ExplainsWithoutRunning) {
  TestServer server;
  v1::ExplainRequest request;
  *request.mutable_graph() = IdentityRequest().graph();
  v1::NamedTensorSpec* input = request.add_inputs();
  input->set_name("x");
  input->mutable_spec()->set_dtype(v1::FLOAT);
  input->mutable_spec()->add_shape(4);
  const auto answer = Call(server, &v1::Catalog::Stub::Explain, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.inputs_size(), 1);
  ASSERT_EQ(answer.response.outputs_size(), 1);
  EXPECT_EQ(answer.response.outputs(0).name(), "y");
  EXPECT_EQ(answer.response.outputs(0).spec().dtype(), v1::FLOAT);
  EXPECT_EQ(answer.response.outputs(0).spec().shape_size(), 1);
  EXPECT_FALSE(answer.response.device_uuid().empty());
  EXPECT_EQ(server.Metric("weir_stream_pool_leases_total"), 0);

  request.mutable_graph()->mutable_definition()->mutable_nodes(0)->set_op("No");
  EXPECT_TRUE(Refused(Call(server, &v1::Catalog::Stub::Explain, request).status,
                      grpc::StatusCode::UNIMPLEMENTED, "No"));
}

}  // namespace
}  // namespace weir::testing
