// weir as its user runs it: output and exit codes.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/json_output.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"
#include "tests/client/cpp/paced_server.h"
#include "tests/models/temp_folder.h"
#include "tests/rpc/test_transport.h"
#include "tests/server/child_process.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

struct Ran {
  int code;
  std::string out;
  std::string err;
};

class CliTest : public ::testing::Test {
 protected:
  CliTest()
      : server_(
            [](ServerOptions& o) { o.model_repository = TestData("data"); }) {}

  // The command line, behind `first` if it is given.
  static std::vector<std::string> Weir(std::vector<std::string> arguments,
                                       const std::string& first = "") {
    if (!first.empty()) arguments.insert(arguments.begin(), first);
    arguments.insert(arguments.begin(), BuiltProgram("weir"));
    return arguments;
  }
  static Ran RunOn(const std::string& server,
                   std::vector<std::string> arguments) {
    ChildProcess process(Weir(std::move(arguments), "--server=" + server));
    const int code = process.Wait();
    return {code, process.out(), process.err()};
  }
  Ran Run(std::vector<std::string> arguments) {
    return RunOn(server_.address(), std::move(arguments));
  }

  std::string Program(const std::string& text) {
    return folder_.Write("program.textproto", text);
  }

  std::string Socket() { return (folder_.path() / "socket").string(); }

  static std::string Zeros(int count) {
    std::string values = "0";
    while (--count > 0) values += ",0";
    return values;
  }
  static std::string Samples() {
    return "image=@" + TestData("data/digits_samples.f32") + ":float:360x1x8x8";
  }

  TempFolder folder_;
  TestServer server_;
};

// A server whose replies are not what they say.
TEST_F(CliTest, InferRefusesAReplyThatIsNotWhatItSays) {
  inference::ModelInferResponse response;
  auto* const output = response.add_outputs();
  output->set_name("scores");
  output->set_datatype("FP32");
  response.add_raw_output_contents(std::string(40, '\0'));
  const auto transport = StartTransport([&](ServerCall& call) {
    ReplyBuffer reply;
    reply.AppendCopy(response.SerializeAsString());
    call.Reply(std::move(reply));
  });
  ASSERT_NE(transport, nullptr);
  const std::string labels = folder_.Write("labels", "7");
  const auto infer = [&](const std::vector<int64_t>& shape) {
    output->clear_shape();
    for (int64_t extent : shape) output->add_shape(extent);
    return RunOn(transport->addresses()[0],
                 {"infer", "digits", "--input", "x=float:1:1", "--labels",
                  labels, "--at-least=0"});
  };
  EXPECT_EQ(infer({1, 10}).code, 0);
  for (const auto& shape : std::vector<std::vector<int64_t>>{
           {1, 1 << 20}, {1, -1}, {1, int64_t{1} << 62}, {1, 9}}) {
    const Ran ran = infer(shape);
    EXPECT_EQ(ran.code, 1) << ran.out;
    EXPECT_THAT(ran.err, HasSubstr("INTERNAL: output 'scores': the server"));
  }
  // Nothing to compare.
  response.set_raw_output_contents(0, "");
  Ran none = infer({1, 0});
  EXPECT_EQ(none.code, 1) << none.out;
  EXPECT_THAT(none.err, HasSubstr("no FP32 output [rows, classes]"));
  folder_.Write("labels", "");
  none = infer({0, int64_t{1} << 62});
  EXPECT_EQ(none.code, 1) << none.out;
  EXPECT_THAT(none.err, HasSubstr("--labels: " + labels + " holds no labels"));
  folder_.Write("labels", "7");
  response.clear_raw_output_contents();
  const Ran ran = infer({1, 10});
  EXPECT_EQ(ran.code, 1) << ran.out;
  EXPECT_THAT(ran.err, HasSubstr("0 raw contents for 1 outputs"));
}

constexpr char kDouble[] = R"(definition {
  inputs { name: "x" }
  nodes { op: "Add" inputs: "x" inputs: "x" outputs: "y" }
  outputs: "y" })";

TEST_F(CliTest, EvaluatesAProgram) {
  const std::string program = Program(kDouble);
  const std::string output = folder_.path() / "y.bin";
  Ran ran = Run({"eval", program, "--input", "x=float:3:1,2,3", "--output",
                 "y=" + output, "--report=full"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("y = float [3]: 2 4 6"));
  EXPECT_THAT(ran.out, HasSubstr("state: COMPLETED"));
  EXPECT_THAT(ran.out, HasSubstr("ResolvedSettings"));
  EXPECT_EQ(Values<float>(ReadTestFile(output)), (std::vector<float>{2, 4, 6}));

  // Names of outputs may hold what divides them from their files.
  const std::string named = Program(R"(definition {
    inputs { name: "x" }
    nodes { op: "Add" inputs: "x" inputs: "x" outputs: "y" }
    nodes { op: "Add" inputs: "y" inputs: "x" outputs: "y=3x" }
    outputs: "y" outputs: "y=3x" })");
  ran = Run({"eval", named, "--input", "x=float:1:1", "-o", "y=3x=" + output});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(Values<float>(ReadTestFile(output)), (std::vector<float>{3}));
  ran = Run({"eval", Program(R"(definition {
    inputs { name: "x=a" }
    nodes { op: "Add" inputs: "x=a" inputs: "x=a" outputs: "y" }
    outputs: "y" })"),
             "--input", "x=a=float:1:4"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("y = float [1]: 8"));
  Program(kDouble);

  ran = Run({"eval", program});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("weir: INVALID_ARGUMENT: "));
  EXPECT_EQ(Run({"eval", program, "--input", "x=float:1:1",
                 "--seed=18446744073709551615"})
                .code,
            0);
  ran =
      Run({"eval", program, "--input", "x=float:1:1", "--output", "z=/tmp/z"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("the program has no output 'z', but 'y'"));
  const std::string other = folder_.path() / "other.bin";
  ran = Run({"eval", program, "--input=x=float:1:1", "-o", "y=" + other, "-o",
             "y=" + output});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("--output: 'y' is given twice"));
  EXPECT_FALSE(std::filesystem::exists(other)) << "nothing is written";
  ran = Run({"eval", program, "--input", "x=float:1:1", "--output",
             "y=/no/such/folder/y"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("NOT_FOUND: cannot write /no/such/folder/y: "
                                 "No such file or directory"));
  ran = Run({"eval", program, "--input", "x=@/no/such/file"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("NOT_FOUND: 'x=@/no/such/file': cannot read"));
  const std::string pick = Program(R"(definition {
      inputs { name: "x" } inputs { name: "i" } outputs: "y"
      nodes { name: "pick" op: "Gather" inputs: "x" inputs: "i" outputs: "y" }
  })");
  ran = Run({"eval", pick, "--input", "x=float:2:1,2", "--input", "i=int64:1:7",
             "--report=full"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("[reason INDEX_OUT_OF_RANGE"));
  EXPECT_THAT(ran.out, HasSubstr("code: 1\n"));
  EXPECT_THAT(ran.out, ::testing::ContainsRegex("\ntotal: [0-9.]+ [num]?s\n"));
  EXPECT_THAT(ran.out, HasSubstr("SyncReport\nstate: ERROR\n"));
  EXPECT_THAT(ran.out, HasSubstr("name: \"INDEX_OUT_OF_RANGE\""));
  ran = Run({"eval", Program("nodes"), "--input", "x=float:1:1"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("program.textproto:1"));
}

TEST_F(CliTest, InfersAndChecksTheAccuracy) {
  const std::string labels = TestData("data/digits_labels.txt");
  Ran ran = Run({"infer", "digits", "--input", Samples(), "--labels", labels,
                 "--at-least=0.95", "--report=brief"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("accuracy 0.9"));
  EXPECT_THAT(ran.out, HasSubstr("SyncReport\nstate: COMPLETED\n"));
  ran = Run({"infer", "digits", "--input", Samples(), "--labels", labels,
             "--at-least=1"});
  EXPECT_EQ(ran.code, 1);
  const std::string output = folder_.path() / "probabilities.bin";
  ran = Run({"infer", "digits", "--input", Samples(), "--output",
             "probabilities=" + output});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("written to " + output));
  EXPECT_EQ(ReadTestFile(output).size(), 360 * 10 * sizeof(float));
  std::filesystem::remove(output);
  ran = Run(
      {"infer", "digits", "--input", Samples(), "-o", "digit=" + output, "-o",
       "probabilities=" + folder_.path().string() + "/./probabilities.bin"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("--output: 'digit' and 'probabilities' would "
                                 "be written to one file"));
  EXPECT_FALSE(std::filesystem::exists(output)) << "nothing is written";
  ran = Run({"infer", "digits", "--input", Samples(), "--output", "digits=/x"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("the model has no output 'digits'"));
  ran = Run({"infer", "let\nters", "--input", Samples()});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("NOT_FOUND: no model \"let\\nters\""));
  EXPECT_EQ(ran.err.find('\n'), ran.err.size() - 1) << ran.err;
}

// A NaN is neither more nor less than the others: no label is its row's class,
// that of the place where a search for the largest begins neither.
TEST_F(CliTest, ARowWithANaNIsNeverRight) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> scores = {nan, 1,   2,  //
                                     1,   nan, 0,  //
                                     0,   1,   2};
  inference::ModelInferResponse response;
  auto* const output = response.add_outputs();
  output->set_name("scores");
  output->set_datatype("FP32");
  output->add_shape(3);
  output->add_shape(3);
  response.add_raw_output_contents(reinterpret_cast<const char*>(scores.data()),
                                   scores.size() * sizeof(float));
  const auto transport = StartTransport([&](ServerCall& call) {
    ReplyBuffer reply;
    reply.AppendCopy(response.SerializeAsString());
    call.Reply(std::move(reply));
  });
  ASSERT_NE(transport, nullptr);
  const std::string labels = folder_.Write("labels", "0 0 2");
  const std::vector<std::string> infer = {"infer",       "digits",   "--input",
                                          "x=float:1:1", "--labels", labels};
  std::vector<std::string> more = infer;
  more.emplace_back("--at-least=0.5");
  Ran ran = RunOn(transport->addresses()[0], more);
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.out, HasSubstr("(1 of 3)\n  of these rows 2 have a NaN"));
  more.back() = "--json";
  ran = RunOn(transport->addresses()[0], more);
  EXPECT_EQ(ran.code, 0) << ran.err;
  const auto json = client::Json::parse(ran.out, nullptr, false);
  EXPECT_EQ(json["right"], 1);
  EXPECT_EQ(json["nan_rows"], 2);
}

// What is not read would be compared with nothing.
TEST_F(CliTest, AFileOfLabelsIsReadWhole) {
  const std::string path = (folder_.path() / "labels").string();
  const auto infer = [&](const std::string& labels) {
    folder_.Write("labels", labels);
    return Run({"infer", "digits", "--input=image=float:1x1x8x8:" + Zeros(64),
                "--labels", path, "--at-least=0"});
  };
  EXPECT_EQ(infer(" 7\r\n").code, 0);
  const struct {
    const char* labels;
    const char* part;
  } wrong[] = {{"9,4,6,4\n", ":1: \"9,4,6,4\" is no class"},
               {"9\n\nsix\n", ":3: \"six\" is no class"},
               {"9 -1\n", ":1: \"-1\" is no class"},
               {"9\n4.0\n", ":2: \"4.0\" is no class"},
               {"\n \n", " holds no labels"}};
  for (const auto& c : wrong) {
    const Ran ran = infer(c.labels);
    EXPECT_EQ(ran.code, 1) << c.labels << ran.out;
    EXPECT_EQ(ran.out, "") << "nothing is asked of the server";
    EXPECT_THAT(ran.err, HasSubstr("--labels: " + path + c.part));
  }
}

// A command line is not wrong because a file is not there.
TEST_F(CliTest, AFileThatIsMissingIsAFailureLikeAnyOther) {
  const std::string file = "/no/such/file";
  const struct {
    std::vector<std::string> arguments;
    std::string part;
  } cases[] = {
      {{"eval", file}, "NOT_FOUND: cannot read " + file},
      {{"load", "--program=" + file}, "NOT_FOUND: cannot read " + file},
      {{"infer", "digits", "--labels=" + file},
       "NOT_FOUND: --labels: cannot read " + file},
      {{"infer", "digits", "--input=image=@" + file}, "cannot read " + file},
      {{"admin", "--token-file=" + file, "drain"},
       "NOT_FOUND: --token-file: cannot read " + file},
      {{"status", "--tls-ca=" + file}, "--tls-ca: " + file},
  };
  for (const auto& c : cases) {
    const Ran ran = Run(c.arguments);
    EXPECT_EQ(ran.code, 1) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr(c.part));
    EXPECT_THAT(ran.err, HasSubstr("No such file or directory"));
    EXPECT_EQ(ran.err.find('\n'), ran.err.size() - 1) << ran.err;
  }
}

TEST_F(CliTest, ListsWhatThereIs) {
  // What `weir load` may ask of it with --shape.
  EXPECT_THAT(Run({"models"}).out,
              ::testing::MatchesRegex("digits +1  READY +\n"
                                      "    max batch size 512\n(.|\n)*"));
  EXPECT_THAT(Run({"devices"}).out,
              ::testing::MatchesRegex("cpu +default +[^\n]*\n(.|\n)*"));
  EXPECT_THAT(Run({"ops"}).out, HasSubstr("DecodeImage"));
  EXPECT_THAT(Run({"ops", "weir.Resize"}).out, HasSubstr("resize_shorter"));
  const Ran add = Run({"ops", "ai.onnx.Add"});
  EXPECT_EQ(add.code, 0) << add.err;
  EXPECT_EQ(add.out.rfind("Add\n\n  ", 0), 0u) << add.out;
  for (const char* part :
       {"Domain   ONNX", "Opsets   11 to 25, with changes in 13 and 14",
        "Devices  CPU", "\nInputs\n  A  T\n  B  T\n", "\nOutputs\n  C  T\n",
        "\nTypes\n  T  float, uint8"}) {
    EXPECT_THAT(add.out, HasSubstr(part));
  }
  EXPECT_THAT(Run({"ops", "ArgMax"}).out, HasSubstr("  reduced  int64\n"));
  EXPECT_THAT(Run({"ops", "Cast"}).out, HasSubstr("what to says\n"));
  EXPECT_THAT(Run({"ops", "Split"}).out,
              HasSubstr("in place of the input of that name"));
  const Ran status = Run({"status"});
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("ready"));
  EXPECT_THAT(status.out, HasSubstr(" streams of each device, queue of "));
  EXPECT_THAT(status.out, HasSubstr("1 GiB, messages of 256 MiB\n"));
  EXPECT_THAT(status.out, ::testing::ContainsRegex("  up [0-9hm]*[0-9]s,"));
  EXPECT_EQ(Run({"status", "--probe"}).out, "SERVING\n");
  EXPECT_EQ(Run({"status", "--probe", "--service=model/letters"}).code, 1);
  // Longer than one byte can count.
  const Ran letters =
      Run({"status", "--probe", "--service=" + std::string(200, 'm')});
  EXPECT_EQ(letters.code, 1);
  EXPECT_THAT(letters.err, HasSubstr("NOT_FOUND"));
}

// A page that the server may not send is asked for in parts.
TEST_F(CliTest, ListsWhatSmallMessagesCannotHold) {
  const Ran whole = Run({"ops"});
  TestServer small([](ServerOptions& o) { o.max_message_bytes = 2048; });
  const Ran ran = RunOn(small.address(), {"ops"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, whole.out);
}

// It has no number that a request could name.
TEST_F(CliTest, AModelWithoutAVersionShowsNone) {
  std::filesystem::create_directory(folder_.path() / "hollow");
  TestServer server(
      [&](ServerOptions& o) { o.model_repository = folder_.path().string(); });
  const Ran ran = RunOn(server.address(), {"models"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out,
              ::testing::MatchesRegex("hollow +-  UNAVAILABLE +[^\n]+\n"));
  TestServer none([](ServerOptions& o) { o.model_repository = ""; });
  EXPECT_THAT(RunOn(none.address(), {"models"}).out,
              HasSubstr("--model-repository=FOLDER"));
}

// What a container's health check sees.
TEST_F(CliTest, AProbeIsOneLineAndAnExitCode) {
  const auto expect = [](const Ran& ran, int code, const std::string& part) {
    EXPECT_EQ(ran.code, code) << ran.err;
    const std::string said = ran.out + ran.err;
    EXPECT_THAT(said, HasSubstr(part));
    EXPECT_EQ(said.find('\n'), said.size() - 1) << said;
  };
  // A busy machine may take longer than the second that a probe has.
  const auto probe = [](const std::string& address,
                        const std::string& service = "") {
    std::vector<std::string> arguments = {"status", "--probe", "--timeout=60"};
    if (!service.empty()) arguments.push_back("--service=" + service);
    return RunOn(address, arguments);
  };
  const std::string here = server_.address();
  expect(probe(here), 0, "SERVING\n");
  expect(probe(here, "live"), 0, "SERVING\n");
  expect(probe(here, "model/digits"), 0, "SERVING\n");
  expect(probe(here, "model/letters"), 1, "NOT_FOUND");
  expect(Run({"status", "--service=live"}), 2, "--probe");
  expect(probe("127.0.0.1:1"), 1, "UNAVAILABLE");
  expect(probe("unix:/no/such/socket"), 1, "UNAVAILABLE");
  // The address from the environment, as an image sets it.
  setenv("WEIR_SERVER", server_.address().c_str(), 1);
  ChildProcess process(
      {BuiltProgram("weir"), "status", "--probe", "--timeout=60"});
  EXPECT_EQ(process.Wait(), 0) << process.err();
  unsetenv("WEIR_SERVER");
  // Somebody who accepts and never answers.
  const int silent = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in where = {};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(where);
  ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr*>(&where), size), 0);
  ASSERT_EQ(listen(silent, 1), 0);
  getsockname(silent, reinterpret_cast<sockaddr*>(&where), &size);
  expect(RunOn("127.0.0.1:" + std::to_string(ntohs(where.sin_port)),
               {"status", "--probe"}),
         1,
         "DEADLINE_EXCEEDED: nobody answers at 127.0.0.1:" +
             std::to_string(ntohs(where.sin_port)) + " within 1s: ");
  close(silent);
  // A server that drains is not serving, but alive.
  ChildProcess draining({BuiltProgram("weir-server"), "--device=cpu",
                         "--cpu-threads=1", "--http=off", "--drain-delay=600",
                         "--grpc=unix:" + Socket()});
  draining.ReadLine();
  const std::string there = "unix:" + Socket();
  expect(probe(there), 0, "SERVING\n");
  draining.Signal(SIGTERM);
  EXPECT_TRUE(Eventually([&] { return probe(there).code == 1; }));
  expect(probe(there), 1, "NOT_SERVING\n");
  expect(probe(there, "live"), 0, "SERVING\n");
}

// Who looks for an operator is told its name.
TEST_F(CliTest, SaysWhichOperatorWasMeant) {
  const struct {
    const char* name;
    const char* part;
  } cases[] = {{"softmax", "did you mean Softmax?"},
               {"Crop", "did you mean weir.Crop?"},
               {"weir.relu", "did you mean Relu?"},
               {"Nothing",
                "no operator \"Nothing\" in domain \"\"; ListOperators, or "
                "\"weir ops\", lists them"}};
  for (const auto& c : cases) {
    const Ran ran = Run({"ops", c.name});
    EXPECT_EQ(ran.code, 1);
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr("weir: NOT_FOUND: "));
    EXPECT_THAT(ran.err, HasSubstr(c.part));
  }
}

// Every command that prints something prints it for programs too.
TEST_F(CliTest, PrintsJson) {
  const auto json = [&](std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    const Ran ran = Run(arguments);
    EXPECT_EQ(ran.code, 0) << ran.err;
    auto parsed = client::Json::parse(ran.out, nullptr, false);
    EXPECT_FALSE(parsed.is_discarded()) << ran.out;
    return parsed;
  };
  EXPECT_EQ(json({"status"})["ready"], true);
  EXPECT_EQ(json({"status", "--probe"})["serving"], true);
  EXPECT_EQ(json({"models"})["models"][0]["name"], "digits");
  EXPECT_EQ(json({"devices"})["devices"][0]["type"], "DEVICE_TYPE_CPU");
  EXPECT_GT(json({"ops"})["operators"].size(), 50u);
  const client::Json gather = json({"ops", "Gather"});
  EXPECT_EQ(gather["summary"]["name"], "Gather");
  EXPECT_EQ(gather["opsets"].back()["last"], 25);

  const std::string program = Program(kDouble);
  const std::string file = folder_.path() / "y.bin";
  const std::vector<std::string> eval = {"eval", program, "--input",
                                         "x=float:2:1,0.1"};
  client::Json evaluated = json(eval);
  EXPECT_EQ(evaluated["outputs"].dump(),
            R"([{"name":"y","dtype":"float","shape":[2],"values":[2,0.2]}])");
  EXPECT_EQ(evaluated["report"]["state"], "WORK_STATE_COMPLETED");
  std::vector<std::string> more = eval;
  more.insert(more.end(), {"--output=y=" + file, "--report=full"});
  evaluated = json(more);
  EXPECT_EQ(evaluated["outputs"][0]["file"], file);
  EXPECT_FALSE(evaluated["outputs"][0].contains("values"));
  EXPECT_TRUE(evaluated["settings"].is_object());

  const client::Json inferred =
      json({"infer", "digits", "--input", Samples(), "--report=brief",
            "--labels", TestData("data/digits_labels.txt")});
  EXPECT_EQ(inferred["outputs"].size(), 2u);
  EXPECT_EQ(inferred["report"]["state"], "WORK_STATE_COMPLETED");
  EXPECT_GT(inferred["accuracy"], 0.95);
  EXPECT_EQ(inferred["rows"], 360);

  // A failure is one line elsewhere.
  const auto error = [&](std::vector<std::string> arguments, int code) {
    arguments.emplace_back("--json");
    const Ran ran = Run(arguments);
    EXPECT_EQ(ran.code, code) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(ran.err.find('\n'), ran.err.size() - 1) << ran.err;
    return client::Json::parse(ran.err, nullptr, false)["error"];
  };
  client::Json failed = error({"infer", "letters"}, 1);
  EXPECT_EQ(failed["code"], "NOT_FOUND");
  EXPECT_EQ(failed["reason"], "MODEL_NOT_FOUND");
  EXPECT_THAT(failed["message"], HasSubstr("\"letters\""));
  failed = error({"infer", "digits", "--input=y=float:1:1"}, 1);
  EXPECT_EQ(failed["fields"].dump(), R"(["inputs[0]"])");
  EXPECT_EQ(error({"infer", "let\nters"}, 1)["code"], "NOT_FOUND");
  failed = error({"infer", "digits", "--colour"}, 2);
  EXPECT_EQ(failed["code"], "USAGE");
  EXPECT_EQ(failed["message"], "there is no flag \"--colour\"");
  EXPECT_EQ(failed["help"], "weir infer --help");
  EXPECT_EQ(error({"infer", "digits", "--input=x"}, 2)["code"], "USAGE");

  ChildProcess server({BuiltProgram("weir-server"), "--device=cpu",
                       "--cpu-threads=1", "--http=off",
                       "--grpc=unix:" + Socket()});
  server.ReadLine();
  Ran ran =
      RunOn("unix:" + Socket(), {"admin", "log-level", "debug", "--json"});
  EXPECT_EQ(client::Json::parse(ran.out, nullptr, false)["previous"],
            "LOG_LEVEL_INFO");
  ran = RunOn("unix:" + Socket(), {"admin", "drain", "--json"});
  EXPECT_EQ(client::Json::parse(ran.out, nullptr, false)["started"], true);
}

// The model says what its inputs are like.
TEST_F(CliTest, LoadsAModelOfWhichNothingIsKnown) {
  const std::vector<std::string> quick = {"load", "digits", "--duration=0.3",
                                          "--warmup=0"};
  Ran ran = Run(quick);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("p99.9"));
  EXPECT_THAT(ran.err, HasSubstr("image: float [1,1,8,8] of random numbers"));
  EXPECT_THAT(ran.err, HasSubstr("leaves open are 1; --free N or --shape"));
  std::vector<std::string> more = quick;
  more.insert(more.end(), {"--free=4", "--json"});
  ran = Run(more);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("image: float [4,1,8,8]"));
  EXPECT_EQ(ran.err.find("leaves open"), std::string::npos);
  const auto json = client::Json::parse(ran.out, nullptr, false);
  EXPECT_EQ(json["inputs"].dump(),
            R"([{"name":"image","dtype":"float","shape":[4,1,8,8]}])");
  more = quick;
  more.emplace_back("--shape=image=2x1x8x8");
  EXPECT_THAT(Run(more).err, HasSubstr("image: float [2,1,8,8]"));
  // The model may stand behind a flag that may stand several times.
  const Ran behind = Run({"load", "--duration=0.3", "--warmup=0", "--shape",
                          "image=2x1x8x8", "digits"});
  EXPECT_EQ(behind.code, 0) << behind.err;
  EXPECT_THAT(behind.err, HasSubstr("image: float [2,1,8,8]"));
  more.back() = "--shape=image=2x1x8x9";
  ran = Run(more);
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("the model's shape is [-1,1,8,8]"));
  more.back() = "--input=picture=float:1:1";
  ran = Run(more);
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("no input 'picture', but 'image'"));
  ran = Run({"load", "letters"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("weir: NOT_FOUND"));
}

TEST_F(CliTest, LoadsInAClosedAndInAnOpenLoop) {
  const std::string program = Program(kDouble);
  Ran ran = Run({"load", "--program", program, "--input", "x=float:3:1,2,3",
                 "--duration=0.6", "--warmup=0", "-c", "4"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("p99.9"));

  ran =
      Run({"load", "--model=digits", "--input",
           "image=@" + TestData("data/digits_samples.f32") + ":float:360x1x8x8",
           "--rate=50", "--duration=1", "--warmup=0", "-c", "200", "--json"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const auto json = client::Json::parse(ran.out, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << ran.out;
  EXPECT_GT(json["requests"], 0);
  EXPECT_EQ(json["rate"], 50);
  EXPECT_EQ(json["errors"], client::Json::object());
  for (const char* quantile : {"p50", "p90", "p99", "p99.9", "max"}) {
    EXPECT_GT(json["latency_us"][quantile], 0) << quantile;
  }
}

// Told as what it is, by the first of them.
TEST_F(CliTest, AWrongRequestIsNoLoad) {
  const std::string program = Program(kDouble);
  const struct {
    std::vector<std::string> arguments;
    const char* part;
  } cases[] = {
      {{"--model=digits", "--input=image=int8:0x1x8x8:"},
       "weir: INVALID_ARGUMENT: input \"image\""},
      {{"digits", "--free=1000"}, "at most 512 [field inputs[0].shape]\n"},
      {{"digits", "--model-version=7"}, "version \"7\"; it has 1"},
      {{"--program", program, "--input=z=float:1:1"},
       "weir: INVALID_ARGUMENT: "},
  };
  for (const auto& c : cases) {
    std::vector<std::string> arguments = {"load", "--duration=0.2"};
    arguments.insert(arguments.end(), c.arguments.begin(), c.arguments.end());
    const Ran ran = Run(arguments);
    EXPECT_EQ(ran.code, 1);
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr(c.part));
    EXPECT_EQ(ran.err.find(" errors"), std::string::npos) << ran.err;
  }
  const Ran nobody = RunOn(
      "127.0.0.1:1", {"load", "--program", program, "--input=x=float:1:1"});
  EXPECT_EQ(nobody.code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("nobody listens at 127.0.0.1:1: "));
  const Ran first = Run(
      {"load", "digits", "--model-version=1", "--duration=0.2", "--warmup=0"});
  EXPECT_EQ(first.code, 0) << first.err;
}

// A server that is busy for now is what a load is for; and of no answers there
// is no latency.
TEST_F(CliTest, AServerThatIsBusyIsLoaded) {
  google::rpc::Status details;
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_nanos(20'000'000);
  details.add_details()->PackFrom(retry);
  const grpc::Status full(grpc::StatusCode::RESOURCE_EXHAUSTED, "full",
                          details.SerializeAsString());
  PacedServer server([&](int64_t, PacedServer::Clock::time_point now) {
    return PacedServer::Answer{.at = now, .status = full};
  });
  std::vector<std::string> load = {
      "load", "--program",  Program(kDouble), "--input=x=float:1:1",
      "-c1",  "--warmup=0", "--duration=0.2"};
  Ran ran = RunOn(server.address(), load);
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.out, HasSubstr("first error: RESOURCE_EXHAUSTED: full"));
  EXPECT_THAT(ran.out,
              ::testing::ContainsRegex("max\n +- +- +- +- +-\nerrors"));
  load.emplace_back("--json");
  ran = RunOn(server.address(), load);
  EXPECT_EQ(ran.code, 1);
  const auto json = client::Json::parse(ran.out, nullptr, false);
  EXPECT_GT(json["errors"]["RESOURCE_EXHAUSTED"], 0);
  EXPECT_TRUE(json["latency_us"]["p99"].is_null()) << ran.out;
}

// A queue of thirty callers before a server that answers one at a time: the
// line says what was answered in the time that it names.
TEST_F(CliTest, ALoadTellsTheRateOfAnswers) {
  PacedServer::Clock::time_point free;
  PacedServer server([&free](int64_t, PacedServer::Clock::time_point now) {
    free = std::max(free, now) + std::chrono::milliseconds(20);
    return PacedServer::Answer{.at = free};
  });
  std::vector<std::string> load = {
      "load", "--program",  Program(kDouble), "--input=x=float:1:1",
      "-c30", "--warmup=0", "--duration=0.3", "--json"};
  Ran ran = RunOn(server.address(), load);
  EXPECT_EQ(ran.code, 0) << ran.err;
  const auto json = client::Json::parse(ran.out, nullptr, false);
  EXPECT_GE(json["requests"], 30);
  EXPECT_LT(json["answers"], json["requests"]) << ran.out;
  EXPECT_LT(json["requests_per_second"], 52);
  load.pop_back();
  ran = RunOn(server.address(), load);
  EXPECT_THAT(ran.out, ::testing::ContainsRegex(
                           "^[0-9]+ requests; [0-9]+ answers in 0.300 s: "
                           "[0-9.]+/s\n"));
  load.emplace_back("--rate=0.001");
  ran = RunOn(server.address(), load);
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("no request was due within 0.3 s"));
}

// Its figures leave out whoever would have waited longest.
TEST_F(CliTest, AnOpenLoopThatIsNoneFails) {
  const std::string program = Program(kDouble);
  const Ran ran = Run({"load", "--program", program, "--input", "x=float:1:1",
                       "--rate=100000", "-c1", "--duration=0.3", "--json"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_GT(client::Json::parse(ran.out)["skipped"], 0);
  EXPECT_THAT(ran.err, HasSubstr("did not leave when they were due"));
  EXPECT_THAT(ran.err, HasSubstr("--concurrency"));
}

TEST_F(CliTest, WrongUsageIsTwo) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{
           {},
           {"dance"},
           {"eval"},
           {"infer"},
           {"infer", "digits", "--colour=red"},
           {"infer", "digits", "--output=digit"},
           {"load", "--rate=-1"},
           {"load", "-c", "0"},
           {"status", "--timeout=0"},
           {"eval", "/dev/null", "--mode=lazy"},
           {"eval", "/dev/null", "--mode=deferred"},
           {"infer", "digits", "--input", "image=float:1"},
           {"eval", "/dev/null", "--input", "image"}}) {
    const Ran ran = Run(arguments);
    EXPECT_EQ(ran.code, 2) << ::testing::PrintToString(arguments);
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr("weir: "));
  }
  const struct {
    std::vector<std::string> arguments;
    const char* part;
  } said[] = {
      // Nothing would be checked, and nobody told.
      {{"infer", "digits", "--at-least=0.9"}, "--labels"},
      {{"dance"}, "weir: there is no command \"dance\"; see weir --help\n"},
      {{"admin", "dance"},
       "weir: there is no command \"dance\"; see weir admin --help\n"},
      {{"--colour", "red"}, "weir: there is no flag \"--colour\""},
      // Not what stands beside it.
      {{"load", "--colour", "1", "digits"},
       "weir: there is no flag \"--colour\"; see weir load --help\n"},
      {{"infer", "digits", "-x", "--colour=red"},
       "weir: there is no flag \"-x\"; see weir infer --help\n"},
      {{"infer", "digits", "--colour=red"},
       "weir: there is no flag \"--colour\"; see weir infer --help\n"},
      {{"infer", "digits", "letters"},
       "weir: \"letters\" is one argument too many; see weir infer --help\n"},
      {{"infer", "digits", "--colour=red"}, "; see weir infer --help\n"},
      // The page that has what is wanted, or the flag that is wrong.
      {{"admin"}, "; see weir admin --help\n"},
      {{"admin", "log-level"}, "; see weir admin log-level --help\n"},
      {{"eval", "/dev/null", "--mode=deferred"}, "; see weir eval --help\n"},
      {{"load", "digits", "--rate=0"}, "; see weir load --help\n"},
      {{"load", "--duration=0.2"}, "; see weir load --help\n"},
      {{"load", "digits", "--timeout=0"}, "; see weir --help\n"},
      {{"infer", "digits", "--input=image"}, "; see weir infer --help\n"},
      {{"models", "--tls-server-name=y"}, "--tls-ca; see weir --help\n"},
      {{"eval", "/dev/null", "--label=a", "--label=b"},
       "weir: --label: given 2 times; give it once; see weir eval --help\n"},
      {{"status", "--timeout=1", "--timeout=2"},
       "weir: --timeout: given 2 times; give it once; see weir --help\n"},
      // What stands twice for one name would have one of its values.
      {{"eval", "/dev/null", "-ix=float:1:1", "-i", "x=float:1:2"},
       "weir: --input: 'x' is given twice; see weir eval --help\n"},
      {{"infer", "digits", "-ix=float:1:1", "-ix=float:2:1,2"},
       "weir: --input: 'x' is given twice; see weir infer --help\n"},
      {{"load", "digits", "-ix=float:1:1", "-ix=float:1:1"},
       "weir: --input: 'x' is given twice; see weir load --help\n"},
      {{"load", "digits", "--shape=x=1", "--shape=x=1"},
       "weir: --shape: 'x' is given twice; see weir load --help\n"},
      // A flag takes one value.
      {{"infer", "digits", "-i", "x=float:1:1", "y=float:1:1"},
       "weir: \"y=float:1:1\" is one argument too many; see weir infer "
       "--help\n"},
      // Names travel as UTF-8.
      {{"infer", "caf\xe9"},
       "weir: model: \"caf\\351\" is not UTF-8; see weir infer --help\n"},
      {{"load", "caf\xe9"}, "weir: --model: \"caf\\351\" is not UTF-8"},
      {{"ops", "caf\xe9"}, "weir: name: \"caf\\351\" is not UTF-8"},
      {{"eval", "/dev/null", "--label=caf\xe9"}, "weir: --label: \"caf"},
      {{"eval", "/dev/null", "--device=caf\xe9"}, "weir: --device: \"caf"},
      {{"infer", "digits", "--model-version=\xe9"}, "weir: --model-version: "},
      {{"load", "digits", "--model-version=\xe9"}, "weir: --model-version: "},
      {{"status", "--probe", "--service=\xe9"}, "weir: --service: \"\\351"},
      {{"infer", "digits", "-i", "caf\xe9=float:1:1"},
       "weir: --input: the name \"caf\\351\" is not UTF-8"},
      // One line, whatever is in it.
      {{"dan\nce"}, "weir: there is no command \"dan\\nce\"; see"},
      {{"load", "digits", "--model=digits"},
       "weir: --model: given 2 times, with the flag or without it; give it "
       "once; see weir load --help\n"},
      {{"eval", "/dev/null", "--input=x=float:3:1,2"}, "2 values where"},
      {{"eval", "/dev/null", "--seed=-1"}, "--seed: \"-1\" is not a whole"},
      {{"load", "--duration=0.2"}, "give either a model or --program"},
      {{"load", "digits", "--program=/dev/null"},
       "give either a model or --program"},
      {{"load", "--program=/dev/null", "--free=3"}, "are for models"},
      {{"load", "digits", "--shape=3x4"}, "'3x4' is not NAME=DIMS"},
      {{"load", "digits", "--free=0"}, "--free"},
      {{"load", "--model=digits", "--rate=1e11"}, "not in range 0.001"},
      {{"load", "--model=digits", "--rate=-1"}, "not in range 0.001"},
      {{"load", "--model=digits", "--rate=nan"}, "--rate: Value nan not in"},
      {{"load", "--model=digits", "--duration=nan"}, "--duration: Value nan"},
      {{"load", "--model=digits", "--warmup=-nan"}, "--warmup: Value -nan"},
      {{"infer", "digits", "--labels=/dev/null", "--at-least=nan"},
       "--at-least: Value nan"},
      {{"status", "--timeout=nan"}, "--timeout: Value nan not in range 0.001"},
      {{"status", "--timeout=inf"}, "--timeout: Value inf not in range 0.001"},
      {{"load", "--model=digits", "--input=image"}, "there is no NAME="},
      {{"infer", "digits", "--input=image=float32:1:1"},
       "'float32' is no element type: float, double, uint8"},
  };
  for (const auto& c : said) {
    const Ran ran = Run(c.arguments);
    EXPECT_EQ(ran.code, 2) << ran.out << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr(c.part));
    EXPECT_EQ(ran.err.find('\n'), ran.err.size() - 1) << ran.err;
  }
  for (const char* server :
       {"127.0.0.1", "unix:", ":8001", "host:port", "host:65536", "::1:8001"}) {
    const Ran ran = RunOn(server, {"status"});
    EXPECT_EQ(ran.code, 2) << server;
    EXPECT_THAT(ran.err, HasSubstr("--server: \"" + std::string(server) +
                                   "\" is not HOST:PORT or unix:PATH"));
  }
  const std::string path(108, 'x');
  const Ran ran = RunOn("unix:" + path, {"status"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("a socket's path has 1 to 107 bytes, and this "
                                 "one 108; see weir --help\n"));
  for (const std::string& longest :
       {"unix:" + path.substr(1), "unix:///" + path.substr(2)}) {
    EXPECT_EQ(RunOn(longest, {"status"}).code, 1) << "nobody listens";
  }
  setenv("WEIR_SERVER", "foo", 1);
  ChildProcess process({BuiltProgram("weir"), "status"});
  EXPECT_EQ(process.Wait(), 2);
  unsetenv("WEIR_SERVER");
  EXPECT_EQ(
      process.err(),
      "weir: WEIR_SERVER: \"foo\" is not HOST:PORT or unix:PATH; see weir "
      "--help\n");
  EXPECT_EQ(Run({"--version"}).code, 0);
  EXPECT_EQ(Run({"--help"}).code, 0);
}

// Every page says where the flags stand that it does not list.
TEST_F(CliTest, AnyPageOfHelpLeadsToAllFlags) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"eval"},
                                             {"status"},
                                             {"admin"},
                                             {"admin", "drain"},
                                             {"admin", "log-level"}}) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back("--help");
    const Ran ran = Run(arguments);
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("--server and --json among them: weir "
                                   "--help\n"));
    if (command[0] != "admin") continue;
    EXPECT_THAT(ran.out,
                HasSubstr(command.size() > 1 ? "--token-file: weir admin --help"
                                             : "--token-file TEXT"));
  }
}

TEST_F(CliTest, OpensShowsListsAndClosesASpace) {
  const Ran opened = Run({"spaces", "open", "--label=tour", "--lease=90"});
  ASSERT_EQ(opened.code, 0) << opened.err;
  EXPECT_THAT(opened.out, HasSubstr(", unused for at most 90 s\n"));
  const std::string token = opened.out.substr(opened.out.find('\n') + 1, 32);
  EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos);
  const std::string space = "--space=" + token;
  const Ran shown = Run({"spaces", "show", space});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("\"tour\" of anonymous, opened "));
  EXPECT_THAT(shown.out, HasSubstr("tensors    0 of 65536, 0 B of "));
  Ran ran = Run({"spaces", "show", space, "--json"});
  EXPECT_EQ(client::Json::parse(ran.out, nullptr, false)["label"], "tour");
  ran = Run({"spaces", "list"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("spaces with 0 tensors of 0 B, 0 contexts"));
  setenv("WEIR_SPACE", token.c_str(), 1);
  ran = Run({"spaces", "close"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("closed; it held 0 tensors of 0 B"));
  ran = Run({"spaces", "show"});
  unsetenv("WEIR_SPACE");
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("SPACE_NOT_FOUND"));
  ran = Run({"spaces", "open", "--json"});
  const auto json = client::Json::parse(ran.out, nullptr, false);
  EXPECT_EQ(json["token"].get<std::string>().size(), 32u);
  EXPECT_EQ(Run({"spaces", "close",
                 "--space=" + json["token"].get<std::string>(), "--json"})
                .code,
            0);
}

TEST_F(CliTest, SaysWhatATokenOfASpaceIs) {
  for (const std::string token : {"12", "0123456789abcdef0123456789abcdeg"}) {
    const Ran ran = Run({"spaces", "show", "--space=" + token});
    EXPECT_EQ(ran.code, 2);
    EXPECT_EQ(ran.err,
              "weir: --space: a token has 32 hexadecimal digits; see weir "
              "spaces show --help\n");
  }
  const Ran none = Run({"spaces", "close"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("WEIR_SPACE in the environment"));
}

// What is set for one command is no other's: a health check reads no token.
TEST_F(CliTest, OnlyAdminReadsTheVariableOfItsToken) {
  setenv("WEIR_ADMIN_TOKEN_FILE", "/nope", 1);
  const Ran probe = Run({"status", "--probe"});
  const Ran admin = Run({"admin", "log-level", "info"});
  const Ran flag = Run({"admin", "--token-file=/neither", "drain"});
  const std::string blank = folder_.Write("blank", " \n");
  setenv("WEIR_ADMIN_TOKEN_FILE", blank.c_str(), 1);
  const Ran wordless = Run({"admin", "drain"});
  unsetenv("WEIR_ADMIN_TOKEN_FILE");
  EXPECT_EQ(probe.code, 0) << probe.err;
  EXPECT_EQ(probe.out, "SERVING\n");
  EXPECT_EQ(admin.code, 1);
  EXPECT_EQ(admin.err,
            "weir: NOT_FOUND: WEIR_ADMIN_TOKEN_FILE: cannot read /nope: No "
            "such file or directory\n");
  EXPECT_EQ(flag.code, 1);
  EXPECT_EQ(flag.err,
            "weir: NOT_FOUND: --token-file: cannot read /neither: No such file "
            "or directory\n");
  EXPECT_EQ(wordless.code, 1);
  EXPECT_EQ(wordless.err, "weir: FAILED_PRECONDITION: WEIR_ADMIN_TOKEN_FILE: " +
                              blank + " holds no token\n");
}

// Plain text must be asked for, not left over from a variable that was never
// filled in.
TEST_F(CliTest, AnEmptyValueIsWrongUsage) {
  for (const std::string flag :
       {"--tls-ca", "--tls-cert", "--tls-key", "--tls-server-name", "--server",
        "--timeout"}) {
    const std::string said = "weir: " + flag + ": the value is empty; see";
    for (const std::vector<std::string>& arguments :
         std::vector<std::vector<std::string>>{{flag + "=", "status"},
                                               {flag, "", "status"},
                                               {"status", flag, ""}}) {
      ChildProcess process(Weir(arguments));
      EXPECT_EQ(process.Wait(), 2) << ::testing::PrintToString(arguments);
      EXPECT_THAT(process.err(), HasSubstr(said));
    }
  }
  // Every flag that takes a value, of every command; and what has no flag.
  const struct {
    std::vector<std::string> command;
    std::vector<std::string> flags;
  } commands[] = {
      {{"eval", "/dev/null"},
       {"--input", "--output", "--mode", "--device", "--label", "--report",
        "--seed"}},
      {{"infer", "digits"},
       {"--model-version", "--input", "--output", "--labels", "--report"}},
      {{"infer", "digits", "--labels=/dev/null"}, {"--at-least"}},
      {{"load"},
       {"--model", "--model-version", "--program", "--input", "--shape",
        "--free", "--concurrency", "--rate", "--duration", "--warmup",
        "--connections"}},
      {{"status", "--probe"}, {"--service"}},
      {{"admin", "drain"}, {"--token-file"}}};
  for (const auto& c : commands) {
    for (const std::string& flag : c.flags) {
      for (const std::vector<std::string>& value :
           std::vector<std::vector<std::string>>{{flag + "="}, {flag, ""}}) {
        std::vector<std::string> arguments = c.command;
        arguments.insert(arguments.end(), value.begin(), value.end());
        const Ran ran = Run(arguments);
        EXPECT_EQ(ran.code, 2) << ::testing::PrintToString(arguments);
        EXPECT_THAT(ran.err, HasSubstr("weir: " + flag +
                                       ": the value is empty; see weir "));
      }
    }
  }
  const std::pair<const char*, const char*> bare[] = {{"eval", "program"},
                                                      {"infer", "model"},
                                                      {"load", "--model"},
                                                      {"ops", "name"}};
  for (const auto& [command, name] : bare) {
    const Ran ran = Run({command, ""});
    EXPECT_EQ(ran.code, 2) << command;
    EXPECT_EQ(ran.err,
              absl::StrCat("weir: ", name, ": the value is empty; see weir ",
                           command, " --help\n"));
  }
  setenv("WEIR_TLS_CA", "", 1);
  const Ran ran = Run({"status"});
  unsetenv("WEIR_TLS_CA");
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("weir: WEIR_TLS_CA: the value is empty"));
}

// What nobody can read is no result.
TEST_F(CliTest, AResultThatCannotBeWrittenIsAFailure) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"status"},
                                             {"ops"},
                                             {"models", "--json"},
                                             {"--version"},
                                             {"infer", "--help"}}) {
    std::vector<std::string> shell = {"/bin/sh", "-c", "\"$@\" >/dev/full",
                                      "sh"};
    const std::vector<std::string> weir =
        Weir(arguments, "--server=" + server_.address());
    shell.insert(shell.end(), weir.begin(), weir.end());
    ChildProcess process(shell);
    EXPECT_EQ(process.Wait(), 1) << ::testing::PrintToString(arguments);
    EXPECT_THAT(process.err(), HasSubstr("cannot write to standard output"));
    EXPECT_EQ(process.err().find('\n'), process.err().size() - 1);
  }
}

TEST_F(CliTest, SaysWhenNobodyAnswers) {
  for (const char* address : {"127.0.0.1:1", "unix:/no/such/socket"}) {
    const Ran ran = RunOn(address, {"status", "--timeout=5"});
    EXPECT_EQ(ran.code, 1);
    EXPECT_THAT(ran.err,
                HasSubstr("weir: UNAVAILABLE: nobody listens at " +
                          std::string(address) + ": is the server running"));
  }
  // Connected, and never answered.
  PacedServer mute([](int64_t, PacedServer::Clock::time_point) {
    return PacedServer::Answer{};
  });
  Ran ran = RunOn(mute.address(), {"status", "--timeout=3"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("weir: DEADLINE_EXCEEDED: no reply from " +
                                 mute.address() + " within 3s: "));
  EXPECT_THAT(ran.err, HasSubstr("--timeout"));
  ran = RunOn(mute.address(),
              {"load", "--program", Program(kDouble), "--timeout=3"});
  EXPECT_THAT(ran.err, HasSubstr("no reply from " + mute.address()));
  // The other port of a server.
  const std::string http = server_.server().http_address();
  ran = RunOn(http, {"status"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr(http + " speaks HTTP/1 and not gRPC"));
  EXPECT_THAT(ran.err, HasSubstr("--grpc"));
}

TEST_F(CliTest, HelpSaysHowInputsAreWritten) {
  for (const char* command : {"eval", "infer", "load"}) {
    const Ran ran = Run({command, "--help"});
    for (const char* part : {"x=float:2x3:1,2,3,4,5,6", "bfloat16, string, or",
                             "BYTES", "1x8x8", "scalar"}) {
      EXPECT_THAT(ran.out, HasSubstr(part)) << command;
    }
  }
  EXPECT_THAT(Run({"infer", "--help"}).out, HasSubstr("whole numbers from 0"));
  EXPECT_THAT(Run({"load", "--help"}).out, HasSubstr("--shape TEXT  "));
  EXPECT_THAT(Run({"--help"}).out, HasSubstr("docs/"));
}

}  // namespace
}  // namespace weir::testing
