// Deferred works for the tests of what Flush makes of them.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/eval/eval_fixture.h"

namespace weir {

class DeferredTest : public EvalTest {
 protected:
  // A program and the graph that it was compiled from.
  struct Source {
    std::shared_ptr<const Graph> graph;
    std::shared_ptr<const Program> program;
  };
  Source MakeSource(Graph made) {
    auto graph = std::make_shared<const Graph>(std::move(made));
    auto program = Compile(*graph);
    return {std::move(graph), std::move(program)};
  }
  Source MakeSource(const std::string& op, size_t inputs) {
    return MakeSource(MakeGraph(op, inputs));
  }

  // A deferred work that brings its graph and keeps its results.
  struct Deferred : WatchedWork {
    explicit Deferred(Source source) {
      request().outputs.assign(source.graph->outputs.size(), OutputWish::kKeep);
      request().program = std::move(source.program);
      request().graph = std::move(source.graph);
      request().mode = EvalMode::kDeferred;
    }
    Deferred(DeferredTest* test, const std::string& op, size_t inputs,
             Attributes attributes = {}, std::string domain = "")
        : Deferred(test->MakeSource(MakeGraph(op, inputs, std::move(attributes),
                                              std::move(domain)))) {}

    void Read(size_t input, const WatchedWork& from, size_t output = 0) {
      Input(input).producer = from.work;
      Input(input).producer_output = output;
    }
    void Read(size_t input, const std::vector<float>& values) {
      Input(input) = Floats(values);
    }
    InputSource& Input(size_t input) {
      request().inputs.resize(std::max(request().inputs.size(), input + 1));
      return request().inputs[input];
    }
  };

  // As they were deferred since the last Flush.
  static std::vector<uint64_t> Positions(
      const std::vector<FlushedWork>& works) {
    std::vector<uint64_t> positions;
    for (const FlushedWork& work : works) positions.push_back(work.position);
    return positions;
  }

  void Defer(Activation& activation, Deferred& deferred) {
    activation.Defer(deferred.work, &deferred.waiter);
    ASSERT_TRUE(deferred.Returned().ok()) << deferred.work->status();
  }

  // The elements of what a finished work kept.
  std::vector<float> Kept(Activation& activation, const WatchedWork& from,
                          size_t output = 0) {
    WatchedWork reader;
    reader.request().program = Compile("Identity", 1);
    reader.request().inputs.resize(1);
    reader.request().inputs[0].tensor = from.work->OutputTensor(output);
    activation.Submit(reader.work.get(), &reader.waiter);
    EXPECT_TRUE(reader.Done().ok()) << reader.work->status();
    return Result(*reader.work);
  }
};

}  // namespace weir
