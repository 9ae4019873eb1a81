// weir.v1.Catalog over the wire.
#include <gmock/gmock.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "tests/server/lane_hold.h"
#include "tests/server/model_folder.h"
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
  EXPECT_THAT(
      info.modes(),
      ::testing::ElementsAre(v1::EVAL_MODE_DEFERRED, v1::EVAL_MODE_EAGER,
                             v1::EVAL_MODE_SYNC_CPU, v1::EVAL_MODE_SYNC_FULL));
  EXPECT_THAT(info.precisions(), ::testing::ElementsAre(v1::PRECISION_STRICT));
  TestServer other;
  EXPECT_NE(
      Call(other, &v1::Catalog::Stub::GetServerInfo, {}).response.incarnation(),
      info.incarnation());
}

TEST(CatalogTest, ListsTheDevice) {
  TestServer server;
  const auto answer = Call(server, &v1::Catalog::Stub::ListDevices, {});
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  // The CPU stands beside a GPU.
  ASSERT_EQ(answer.response.devices_size(), TestDevice() == "cpu" ? 1 : 2);
  const auto served = std::find_if(
      answer.response.devices().begin(), answer.response.devices().end(),
      [](const v1::Device& listed) { return listed.is_default(); });
  ASSERT_NE(served, answer.response.devices().end());
  const v1::Device& device = *served;
  EXPECT_THAT(device.name(), ::testing::AnyOf("cpu", "cuda:0"));
  EXPECT_EQ(device.type(), device.name() == "cpu" ? v1::DEVICE_TYPE_CPU
                                                  : v1::DEVICE_TYPE_CUDA);
  EXPECT_FALSE(device.uuid().empty());
  EXPECT_EQ(device.failure(), "");
  EXPECT_TRUE(device.is_default());
  EXPECT_GT(device.memory_bytes(), 0u);
  EXPECT_GT(device.memory_free_bytes(), 0u);
  EXPECT_LE(device.memory_free_bytes(), device.memory_bytes());
  const bool cpu = device.name() == "cpu";
  EXPECT_THAT(device.driver_version(),
              ::testing::StartsWith(cpu ? "Linux " : "CUDA driver "));
  EXPECT_THAT(device.runtime_version(),
              ::testing::StartsWith(cpu ? "glibc " : "CUDA runtime "));
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
    EXPECT_THAT(op.devices(), ::testing::Contains(v1::DEVICE_TYPE_CPU))
        << op.name();
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
  // As Node.domain has it.
  request.set_domain("ai.onnx");
  EXPECT_EQ(Call(server, &v1::Catalog::Stub::ListOperators, request)
                .response.operators_size(),
            standard.response.operators_size());
  v1::DescribeOperatorRequest add;
  add.set_domain("ai.onnx");
  add.set_name("Add");
  const auto described =
      Call(server, &v1::Catalog::Stub::DescribeOperator, add);
  EXPECT_TRUE(described.status.ok()) << described.status.error_message();
  EXPECT_EQ(described.response.operator_description().summary().domain(), "");
}

TEST(CatalogTest, AReplyThatIsTooLargeTellsTheRemedy) {
  TestServer server([](ServerOptions& o) { o.max_message_bytes = 1024; });
  v1::ListOperatorsRequest request;
  EXPECT_TRUE(
      Refused(Call(server, &v1::Catalog::Stub::ListOperators, request).status,
              grpc::StatusCode::RESOURCE_EXHAUSTED,
              "--max-message-bytes): ask for a smaller page_size"));
  request.set_page_size(2);
  EXPECT_TRUE(
      Call(server, &v1::Catalog::Stub::ListOperators, request).status.ok());
}

TEST(CatalogTest, ListsComeInPages) {
  TestServer server;
  const auto whole = Call(server, &v1::Catalog::Stub::ListOperators, {});
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  EXPECT_EQ(whole.response.next_page_token(), "");
  v1::ListOperatorsRequest request;
  request.set_page_size(7);
  v1::ListOperatorsResponse pages;
  int count = 0;
  do {
    const auto page = Call(server, &v1::Catalog::Stub::ListOperators, request);
    ASSERT_TRUE(page.status.ok()) << page.status.error_message();
    ASSERT_LE(page.response.operators_size(), 7);
    ASSERT_GT(page.response.operators_size(), 0);
    pages.MergeFrom(page.response);
    request.set_page_token(page.response.next_page_token());
    ++count;
  } while (!request.page_token().empty());
  EXPECT_EQ(count, (whole.response.operators_size() + 6) / 7);
  pages.clear_next_page_token();
  EXPECT_EQ(pages.SerializeAsString(), whole.response.SerializeAsString());

  // A token is good for its list and filter alone, and survives the server.
  request.clear_page_token();
  const std::string token =
      Call(server, &v1::Catalog::Stub::ListOperators, request)
          .response.next_page_token();
  request.set_page_token(token);
  TestServer other;
  EXPECT_TRUE(
      Call(other, &v1::Catalog::Stub::ListOperators, request).status.ok());
  request.set_domain("weir");
  EXPECT_TRUE(
      Refused(Call(server, &v1::Catalog::Stub::ListOperators, request).status,
              grpc::StatusCode::INVALID_ARGUMENT, "token"));
  v1::ListModelsRequest models;
  models.set_page_token(token);
  EXPECT_TRUE(
      Refused(Call(server, &v1::Catalog::Stub::ListModels, models).status,
              grpc::StatusCode::INVALID_ARGUMENT, "token"));
  v1::ListDevicesRequest devices;
  devices.set_page_size(-1);
  EXPECT_TRUE(
      Refused(Call(server, &v1::Catalog::Stub::ListDevices, devices).status,
              grpc::StatusCode::INVALID_ARGUMENT, "negative"));
  EXPECT_TRUE(ServesOn(server));
}

TEST(CatalogTest, OffersTestOperatorsOnlyWhenTold) {
  TestServer server([](ServerOptions& o) { o.enable_test_operators = false; });
  v1::DescribeOperatorRequest request;
  request.set_domain("weir");
  request.set_name("Spin");
  EXPECT_TRUE(Refused(
      Call(server, &v1::Catalog::Stub::DescribeOperator, request).status,
      grpc::StatusCode::NOT_FOUND,
      "no operator \"Spin\" in domain \"weir\"; it is one for tests, which "
      "--enable-test-operators offers"));
  request.set_name("Nothing");
  EXPECT_TRUE(Refused(
      Call(server, &v1::Catalog::Stub::DescribeOperator, request).status,
      grpc::StatusCode::NOT_FOUND,
      "no operator \"Nothing\" in domain \"weir\"; ListOperators, or \"weir "
      "ops\","));
  EXPECT_TRUE(Refused(
      Evaluate(server, SpinRequest(std::chrono::microseconds(1))).status,
      grpc::StatusCode::UNIMPLEMENTED,
      "it is one for tests, which --enable-test-operators offers"));
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
  EXPECT_EQ(op.inputs(0).presence(), v1::OperatorArgument::PRESENCE_REQUIRED);
  EXPECT_EQ(op.inputs(2).presence(), v1::OperatorArgument::PRESENCE_OPTIONAL);
  EXPECT_THAT(op.inputs(0).types(),
              ::testing::IsSupersetOf({v1::DATA_TYPE_FLOAT, v1::DATA_TYPE_INT64,
                                       v1::DATA_TYPE_BFLOAT16}));
  EXPECT_THAT(op.inputs(0).types(),
              ::testing::Not(::testing::Contains(v1::DATA_TYPE_STRING)));
  EXPECT_EQ(op.outputs_size(), 1);
  EXPECT_EQ(op.outputs(0).types_size(), op.inputs(0).types_size());
  // All of one type.
  for (const auto& input : op.inputs()) EXPECT_EQ(input.type_group(), 1u);
  EXPECT_EQ(op.outputs(0).type_group(), 1u);
  std::map<std::string, v1::OperatorAttribute::Kind> attributes;
  for (const auto& attribute : op.attributes()) {
    attributes[attribute.name()] = attribute.kind();
  }
  EXPECT_EQ(attributes, (std::map<std::string, v1::OperatorAttribute::Kind>{
                            {"alpha", v1::OperatorAttribute::KIND_FLOAT},
                            {"beta", v1::OperatorAttribute::KIND_FLOAT},
                            {"transA", v1::OperatorAttribute::KIND_INT},
                            {"transB", v1::OperatorAttribute::KIND_INT}}));
  // The list has its first sentence, the description all of it.
  EXPECT_THAT(op.description(), ::testing::StartsWith(op.summary().summary()));
  EXPECT_LT(op.summary().summary().size(), op.description().size());
  EXPECT_EQ(op.summary().summary().back(), '.');
  request.set_name("Nothing");
  EXPECT_TRUE(Refused(
      Call(server, &v1::Catalog::Stub::DescribeOperator, request).status,
      grpc::StatusCode::NOT_FOUND, "Nothing"));
}

TEST(CatalogTest, TellsTypesOfOutputsAndWhichAreOne) {
  TestServer server;
  const auto describe = [&](const std::string& domain,
                            const std::string& name) {
    v1::DescribeOperatorRequest request;
    request.set_domain(domain);
    request.set_name(name);
    const auto answer =
        Call(server, &v1::Catalog::Stub::DescribeOperator, request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    return answer.response.operator_description();
  };
  const auto types = [](const v1::OperatorArgument& argument) {
    return std::vector<int>(argument.types().begin(), argument.types().end());
  };
  v1::OperatorDescription op = describe("", "ArgMax");
  EXPECT_EQ(types(op.outputs(0)), (std::vector<int>{v1::DATA_TYPE_INT64}));
  EXPECT_EQ(op.inputs(0).type_group(), 0u);
  EXPECT_EQ(op.outputs(0).type_group(), 0u);
  op = describe("weir", "DecodeImage");
  EXPECT_EQ(types(op.outputs(0)), (std::vector<int>{v1::DATA_TYPE_UINT8}));
  op = describe("", "Equal");
  EXPECT_EQ(types(op.outputs(0)), (std::vector<int>{v1::DATA_TYPE_BOOL}));
  EXPECT_EQ(op.inputs(0).type_group(), 1u);
  EXPECT_EQ(op.inputs(1).type_group(), 1u);
  op = describe("", "Gather");
  EXPECT_EQ(op.inputs(0).type_group(), 1u);
  EXPECT_EQ(op.inputs(1).type_group(), 0u);
  EXPECT_EQ(op.outputs(0).type_group(), 1u);
  EXPECT_EQ(types(op.outputs(0)), types(op.inputs(0)));
  op = describe("", "Cast");
  EXPECT_EQ(op.outputs(0).type_attribute(), "to");
  EXPECT_EQ(op.outputs(0).types_size(), 0);
}

TEST(CatalogTest, ListsModels) {
  TestServer server(
      [](ServerOptions& o) { o.model_repository = TestData("data"); });
  const auto answer = Call(server, &v1::Catalog::Stub::ListModels, {});
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.response.models_size(), 1);
  const v1::Model& model = answer.response.models(0);
  EXPECT_EQ(model.name(), "digits");
  ASSERT_EQ(model.versions_size(), 1);
  EXPECT_EQ(model.versions(0).version(), 1);
  EXPECT_EQ(model.versions(0).state(), v1::MODEL_STATE_READY);
  EXPECT_EQ(model.max_batch_size(), 512);
  ASSERT_EQ(model.inputs_size(), 1);
  EXPECT_EQ(model.inputs(0).spec().dtype(), v1::DATA_TYPE_FLOAT);
  EXPECT_THAT(model.inputs(0).spec().shape(),
              ::testing::ElementsAre(-1, 1, 8, 8));
  EXPECT_EQ(model.outputs_size(), 2);
}

v1::ExplainRequest ExplainRequest(const std::string& definition) {
  v1::ExplainRequest request;
  *request.mutable_graph() = Program(definition).graph();
  return request;
}

void AddSpec(v1::ExplainRequest* request, const std::string& name,
             v1::DataType dtype, const std::vector<int64_t>& shape) {
  v1::NamedTensorSpec* input = request->add_inputs();
  input->set_name(name);
  input->mutable_spec()->set_dtype(dtype);
  for (int64_t extent : shape) input->mutable_spec()->add_shape(extent);
}

Answer<v1::ExplainResponse> ExplainOver(TestServer& server,
                                        const v1::ExplainRequest& request) {
  return Call(server, &v1::Catalog::Stub::Explain, request);
}

std::vector<int64_t> ShapeOf(const v1::NamedTensorSpec& value) {
  return {value.spec().shape().begin(), value.spec().shape().end()};
}

// "y[2,3]" of each.
template <typename Values>
std::vector<std::string> Shapes(const Values& values) {
  std::vector<std::string> shapes;
  for (const v1::NamedTensorSpec& value : values) {
    shapes.push_back(value.name() + ::testing::PrintToString(ShapeOf(value)));
  }
  return shapes;
}

// Two products with a value between them.
constexpr char kLayers[] = R"(
    inputs { name: "x" spec { dtype: DATA_TYPE_FLOAT shape: -1 shape: 8 } }
    inputs { name: "w" spec { dtype: DATA_TYPE_FLOAT shape: 8 shape: -1 } }
    nodes { name: "product" op: "MatMul" inputs: "x" inputs: "w" outputs: "h" }
    nodes { name: "curve" op: "Relu" inputs: "h" outputs: "r" }
    nodes { name: "sum" op: "Add" inputs: "r" inputs: "h" outputs: "y" }
    outputs: "y")";

TEST(CatalogTest, ExplainsThePlanOfClosedShapes) {
  TestServer server;
  v1::ExplainRequest request = ExplainRequest(kLayers);
  AddSpec(&request, "x", v1::DATA_TYPE_FLOAT, {100, 8});
  AddSpec(&request, "w", v1::DATA_TYPE_FLOAT, {8, 50});
  const auto answer = ExplainOver(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  const v1::ExplainResponse& plan = answer.response;
  EXPECT_FALSE(plan.program_cached());
  EXPECT_EQ(plan.program().size(), 16u);
  EXPECT_EQ(plan.constant_bytes(), 0u);
  EXPECT_THAT(Shapes(plan.inputs()),
              ::testing::ElementsAre("x{ 100, 8 }", "w{ 8, 50 }"));
  EXPECT_THAT(Shapes(plan.outputs()), ::testing::ElementsAre("y{ 100, 50 }"));
  EXPECT_EQ(plan.outputs(0).spec().dtype(), v1::DATA_TYPE_FLOAT);
  // Two values of 20,000 bytes between the steps.
  EXPECT_GE(plan.arena_bytes(), 2u * 100 * 50 * sizeof(float));
  ASSERT_EQ(plan.steps_size(), 3);
  EXPECT_THAT(plan.steps(0).nodes(), ::testing::ElementsAre("product"));
  EXPECT_EQ(plan.steps(0).kernel(),
            (TestDevice() == "cpu" ? "cpu" : "cuda") + std::string("/MatMul"));
  EXPECT_THAT(Shapes(plan.steps(0).outputs()),
              ::testing::ElementsAre("h{ 100, 50 }"));
  EXPECT_THAT(plan.steps(2).nodes(), ::testing::ElementsAre("sum"));
  EXPECT_THAT(Shapes(plan.steps(2).outputs()),
              ::testing::ElementsAre("y{ 100, 50 }"));
  // Nothing ran, and nobody held a lane.
  EXPECT_EQ(server.Leases(), 0);

  EXPECT_TRUE(ExplainOver(server, request).response.program_cached());
}

TEST(CatalogTest, ExplainsOpenShapesAsFarAsTheyGo) {
  TestServer server;
  v1::ExplainRequest request = ExplainRequest(kLayers);
  AddSpec(&request, "x", v1::DATA_TYPE_FLOAT, {100, -1});
  const auto answer = ExplainOver(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  const v1::ExplainResponse& outline = answer.response;
  EXPECT_THAT(Shapes(outline.inputs()),
              ::testing::ElementsAre("x{ 100, 8 }", "w{ 8, -1 }"));
  EXPECT_THAT(Shapes(outline.outputs()),
              ::testing::ElementsAre("y{ 100, -1 }"));
  EXPECT_EQ(outline.arena_bytes(), 0u);
  ASSERT_EQ(outline.steps_size(), 3);
  EXPECT_THAT(Shapes(outline.steps(0).outputs()),
              ::testing::ElementsAre("h{ 100, -1 }"));
}

// The shape is in the elements, which Explain is not given.
TEST(CatalogTest, ExplainsNothingThatDependsOnData) {
  TestServer server;
  v1::ExplainRequest request = ExplainRequest(R"(
      inputs { name: "x" spec { dtype: DATA_TYPE_FLOAT shape: 6 } }
      inputs { name: "shape" spec { dtype: DATA_TYPE_INT64 shape: 2 } }
      nodes { name: "form" op: "Reshape" inputs: "x" inputs: "shape"
              outputs: "y" }
      nodes { name: "z" op: "Exp" inputs: "x" outputs: "z" }
      outputs: "y" outputs: "z")");
  const auto answer = ExplainOver(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_THAT(Shapes(answer.response.outputs()),
              ::testing::ElementsAre("y{ -1, -1 }", "z{ 6 }"));
  EXPECT_EQ(answer.response.arena_bytes(), 0u);
  EXPECT_EQ(answer.response.steps_size(), 2);
}

// The graph says what its inputs are, so the program is one, whoever asks.
TEST(CatalogTest, ExplainsWhatEvaluateRunsWithoutItsInputs) {
  TestServer server;
  v1::EvaluateRequest evaluate;
  *evaluate.mutable_graph() = ExplainRequest(kLayers).graph();
  evaluate.set_report_settings(true);
  v1::ExplainRequest request;
  *request.mutable_graph() = evaluate.graph();
  const auto explained = ExplainOver(server, request);
  ASSERT_TRUE(explained.status.ok()) << explained.status.error_message();
  const std::string zeros(8 * sizeof(float), '\0');
  AddInput(&evaluate, "w", v1::DATA_TYPE_FLOAT, {8, 1}, zeros);
  AddInput(&evaluate, "x", v1::DATA_TYPE_FLOAT, {1, 8}, zeros);
  const auto answer = Evaluate(server, evaluate);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_TRUE(answer.response.settings().program_cached());
  EXPECT_EQ(answer.response.settings().program(), explained.response.program());
}

// What Explain says is what Evaluate then does.
TEST(CatalogTest, ExplainsTheProgramThatEvaluateRuns) {
  TestServer server;
  v1::EvaluateRequest evaluate = IdentityRequest();
  evaluate.set_report_settings(true);
  v1::ExplainRequest request;
  *request.mutable_graph() = evaluate.graph();
  AddSpec(&request, "x", v1::DATA_TYPE_FLOAT, {4});
  const auto explained = ExplainOver(server, request);
  ASSERT_TRUE(explained.status.ok()) << explained.status.error_message();
  EXPECT_FALSE(explained.response.program_cached());
  const auto answer = Evaluate(server, evaluate);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_TRUE(answer.response.settings().program_cached());
  EXPECT_EQ(answer.response.settings().program(), explained.response.program());
  EXPECT_EQ(answer.response.settings().device_uuid(),
            explained.response.device_uuid());
  TestServer other;
  EXPECT_EQ(ExplainOver(other, request).response.program(),
            explained.response.program());
  v1::ExplainRequest another = ExplainRequest(kLayers);
  EXPECT_NE(ExplainOver(other, another).response.program(),
            explained.response.program());
}

// So many steps that each is a page's entry: "#0", "#1", ...
v1::ExplainRequest ChainRequest(int nodes) {
  v1::ExplainRequest request = ExplainRequest(
      R"(inputs { name: "v0" spec { dtype: DATA_TYPE_FLOAT shape: -1 } })");
  auto* const graph = request.mutable_graph()->mutable_definition();
  for (int i = 0; i < nodes; ++i) {
    auto* const node = graph->add_nodes();
    node->set_name(absl::StrCat("n", i));
    node->set_op("Softmax");
    node->add_inputs(absl::StrCat("v", i));
    node->add_outputs(absl::StrCat("v", i + 1));
  }
  graph->add_outputs(absl::StrCat("v", nodes));
  return request;
}

TEST(CatalogTest, ExplainsInPages) {
  constexpr int kNodes = 2500;
  TestServer server;
  v1::ExplainRequest request = ChainRequest(kNodes);
  std::vector<std::string> nodes;
  std::string first_token;
  for (int page = 0; page < 3; ++page) {
    const auto answer = ExplainOver(server, request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    const v1::ExplainResponse& part = answer.response;
    EXPECT_LE(part.steps_size(), 1000);
    EXPECT_EQ(part.inputs_size(), page == 0 ? 1 : 0);
    EXPECT_EQ(part.outputs_size(), page == 0 ? 1 : 0);
    EXPECT_EQ(part.next_page_token().empty(), page == 2);
    for (const v1::ProgramStep& step : part.steps()) {
      nodes.insert(nodes.end(), step.nodes().begin(), step.nodes().end());
    }
    request.set_page_token(part.next_page_token());
    if (page == 0) first_token = part.next_page_token();
  }
  ASSERT_EQ(nodes.size(), size_t{kNodes});
  for (size_t i = 0; i < nodes.size(); ++i) {
    EXPECT_EQ(nodes[i], absl::StrCat("n", i));
  }
  request = ChainRequest(3);
  request.set_page_size(2);
  const auto answer = ExplainOver(server, request);
  EXPECT_EQ(answer.response.steps_size(), 0);
  EXPECT_FALSE(answer.response.next_page_token().empty());
  request.set_page_token(first_token);
  EXPECT_TRUE(Refused(ExplainOver(server, request).status,
                      grpc::StatusCode::INVALID_ARGUMENT, "another list"));
  request.clear_page_token();
  request.set_page_size(-1);
  EXPECT_TRUE(Refused(ExplainOver(server, request).status,
                      grpc::StatusCode::INVALID_ARGUMENT, "-1 is negative"));
}

// It takes the host's memory as the graph does, however small the request is.
TEST(CatalogTest, AnOutlineCountsWithWhatItTakes) {
  ModelFolder models;
  onnx::ModelProto chain = IdentityModel(onnx::TensorProto::FLOAT);
  const onnx::NodeProto first = chain.graph().node(0);
  const std::string last = first.output(0);
  chain.mutable_graph()->clear_node();
  for (int i = 0; i < 5000; ++i) {
    onnx::NodeProto* const node = chain.mutable_graph()->add_node();
    node->set_op_type("Softmax");
    node->add_input(i == 0 ? first.input(0) : absl::StrCat("v", i));
    node->add_output(i == 4999 ? last : absl::StrCat("v", i + 1));
  }
  models.Write("chain", chain);
  TestServer server([&](ServerOptions& o) {
    o.model_repository = models.path();
    o.queue_bytes = 1 << 16;
  });
  v1::ExplainRequest request;
  request.mutable_graph()->mutable_model()->set_name("chain");
  EXPECT_TRUE(Refused(ExplainOver(server, request).status,
                      grpc::StatusCode::RESOURCE_EXHAUSTED, "--queue-bytes"));
  EXPECT_TRUE(ServesOn(server));
}

TEST(CatalogTest, ExplainsAServedModel) {
  TestServer server(
      [](ServerOptions& o) { o.model_repository = TestData("data"); });
  v1::ExplainRequest request;
  request.mutable_graph()->mutable_model()->set_name("digits");
  auto answer = ExplainOver(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_TRUE(answer.response.program_cached());
  EXPECT_GT(answer.response.constant_bytes(), 10'000u);
  EXPECT_EQ(answer.response.arena_bytes(), 0u);
  EXPECT_GT(answer.response.steps_size(), 0);
  EXPECT_THAT(Shapes(answer.response.inputs()),
              ::testing::ElementsAre("image{ -1, 1, 8, 8 }"));
  const std::string program = answer.response.program();

  AddSpec(&request, "image", v1::DATA_TYPE_FLOAT, {3, 1, 8, 8});
  answer = ExplainOver(server, request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.program(), program);
  EXPECT_GT(answer.response.arena_bytes(), 0u);
  ASSERT_EQ(answer.response.outputs_size(), 2);
  for (const v1::NamedTensorSpec& output : answer.response.outputs()) {
    EXPECT_EQ(ShapeOf(output)[0], 3) << output.name();
  }
  for (const v1::ProgramStep& step : answer.response.steps()) {
    EXPECT_FALSE(step.kernel().empty());
    EXPECT_THAT(step.nodes(), ::testing::Not(::testing::IsEmpty()));
    for (const v1::NamedTensorSpec& output : step.outputs()) {
      EXPECT_THAT(ShapeOf(output), ::testing::Each(::testing::Ge(0)));
    }
  }
}

TEST(CatalogTest, ExplainRefusesWhatEvaluateWould) {
  TestServer server;
  const auto refusal = [&](const v1::ExplainRequest& request) {
    return ExplainOver(server, request).status;
  };
  v1::ExplainRequest request;
  EXPECT_TRUE(Refused(refusal(request), grpc::StatusCode::INVALID_ARGUMENT,
                      "a graph, an ONNX model or a model is needed"));
  request.mutable_graph()->mutable_model()->set_name("nobody");
  EXPECT_TRUE(Refused(refusal(request), grpc::StatusCode::NOT_FOUND, "nobody"));
  request.mutable_graph()->set_onnx_model("not a model");
  EXPECT_TRUE(
      Refused(refusal(request), grpc::StatusCode::INVALID_ARGUMENT, ""));

  request = ExplainRequest(kLayers);
  request.mutable_graph()->mutable_definition()->mutable_nodes(1)->set_op("No");
  EXPECT_TRUE(Refused(refusal(request), grpc::StatusCode::UNIMPLEMENTED, "No"));

  const v1::ExplainRequest layers = ExplainRequest(kLayers);
  const auto with = [&](const std::string& name, v1::DataType dtype,
                        const std::vector<int64_t>& shape) {
    v1::ExplainRequest changed = layers;
    AddSpec(&changed, name, dtype, shape);
    return refusal(changed);
  };
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  EXPECT_TRUE(Refused(with("z", v1::DATA_TYPE_FLOAT, {1}), kInvalid,
                      "the graph has no input \"z\""));
  v1::ExplainRequest unsaid = ExplainRequest(
      R"(inputs { name: "x" } outputs: "y"
         nodes { op: "Neg" inputs: "x" outputs: "y" })");
  AddSpec(&unsaid, "X", v1::DATA_TYPE_FLOAT, {1});
  const grpc::Status unknown = refusal(unsaid);
  EXPECT_TRUE(Refused(unknown, kInvalid, "the graph has no input \"X\""));
  EXPECT_EQ(Field(FromGrpcStatus(unknown)), "inputs[0]");
  EXPECT_TRUE(Refused(with("x", v1::DATA_TYPE_INT8, {1, 8}), kInvalid, "int8"));
  EXPECT_TRUE(
      Refused(with("x", v1::DATA_TYPE_FLOAT, {1, 9}), kInvalid, "[1,9]"));
  EXPECT_TRUE(Refused(with("x", v1::DATA_TYPE_FLOAT, {8}), kInvalid, "[8]"));
  EXPECT_TRUE(Refused(with("x", v1::DATA_TYPE_FLOAT, {-2, 8}), kInvalid,
                      "input \"x\" has shape [-2,8], in which -2 is no"));
  EXPECT_TRUE(Refused(with("x", v1::DATA_TYPE_FLOAT, {1'000'000'000'000, 8}),
                      kInvalid, "input \"x\""));
  EXPECT_TRUE(
      Refused(with("x", v1::DATA_TYPE_UNSPECIFIED, {1, 8}), kInvalid, ""));
  request = layers;
  AddSpec(&request, "x", v1::DATA_TYPE_FLOAT, {1, 8});
  AddSpec(&request, "x", v1::DATA_TYPE_FLOAT, {1, 8});
  const grpc::Status twice = refusal(request);
  EXPECT_TRUE(Refused(twice, kInvalid, "input \"x\" is given twice"));
  EXPECT_EQ(Field(FromGrpcStatus(twice)), "inputs[1]");
  request = layers;
  AddSpec(&request, "x", v1::DATA_TYPE_FLOAT, {1, 8});
  AddSpec(&request, "w", v1::DATA_TYPE_FLOAT, {9, 8});
  EXPECT_TRUE(Refused(refusal(request), kInvalid, "input \"w\""));
  request = layers;
  request.set_device("cuda:99");
  EXPECT_TRUE(
      Refused(refusal(request), grpc::StatusCode::NOT_FOUND, "cuda:99"));
  request = layers;
  request.set_precision(static_cast<v1::Precision>(99));
  EXPECT_TRUE(Refused(refusal(request), kInvalid, "99 is not a precision"));
  request.set_precision(v1::PRECISION_TF32);
  EXPECT_TRUE(Refused(refusal(request), grpc::StatusCode::UNIMPLEMENTED,
                      "PRECISION_TF32"));
  EXPECT_TRUE(ServesOn(server));
}

// A request like any other: admitted, or refused.
TEST(CatalogTest, ExplainIsAdmitted) {
  LaneHold hold;
  TestServer server([&](ServerOptions& o) {
    o.streams = 1;
    o.queue_length = 1;
    hold.AddTo(o);
  });
  HeldEvaluate first(server, hold), second(server, hold);
  ASSERT_TRUE(Eventually(
      [&] { return server.Metric("weir_requests_in_flight") == 2; }));
  EXPECT_TRUE(Refused(ExplainOver(server, ExplainRequest(kLayers)).status,
                      grpc::StatusCode::RESOURCE_EXHAUSTED, "--queue-length"));
  EXPECT_TRUE(first.Release().status.ok());
  EXPECT_TRUE(second.Wait().status.ok());
  ASSERT_TRUE(Eventually([&] {
    return ExplainOver(server, ExplainRequest(kLayers)).status.ok();
  }));
}

}  // namespace
}  // namespace weir::testing
