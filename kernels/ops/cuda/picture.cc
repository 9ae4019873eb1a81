// weir.Resize, Crop, Flip and Normalize, with the geometry of the CPU kernels.
#include "kernels/ops/picture.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/cuda/elementwise.h"
#include "kernels/ops/cuda/node_kernel.h"

namespace weir::cuda {
namespace {

uint64_t U(int64_t value) { return static_cast<uint64_t>(value); }

absl::StatusOr<GeneratedKernel> MakePictureKernel(CudaDevice* device,
                                                  std::string_view part,
                                                  std::string_view in,
                                                  std::string_view out) {
  return GeneratedKernel::Make(
      device,
      absl::StrCat(std::string(PreludeSource()),
                   std::string(ScalarFunctionsSource()), Define("S_IN", in),
                   Define("S_OUT", out), Define("E", in), Define(part, "1"),
                   std::string(PictureSource())));
}

// -- Resize -------------------------------------------------------------------

struct Axis {
  std::shared_ptr<const void> first;
  std::shared_ptr<const void> weights;
  uint64_t taps = 0;
  size_t bytes = 0;
};

absl::StatusOr<Axis> UploadAxis(CudaDevice* device,
                                const image::AxisGeometry& geometry,
                                const image::ResizeFilter& filter) {
  const image::AxisWeights weights =
      image::MakeAxisWeights(geometry, filter, {0, geometry.out_size});
  Axis axis;
  axis.taps = U(weights.taps);
  axis.bytes = static_cast<size_t>(weights.bytes());
  WEIR_ASSIGN_OR_RETURN(axis.first,
                        device->Upload(weights.first.data(),
                                       weights.first.size() * sizeof(int64_t)));
  WEIR_ASSIGN_OR_RETURN(axis.weights,
                        device->Upload(weights.weights.data(),
                                       weights.weights.size() * sizeof(float)));
  return axis;
}

absl::StatusOr<PlannedRun> PlanNearest(CudaDevice* device, DType dtype,
                                       const PictureShape& in,
                                       const PictureShape& out, Axis y,
                                       Axis x) {
  const std::string_view word = WordType(SizeOf(dtype));
  WEIR_ASSIGN_OR_RETURN(
      GeneratedKernel kernel,
      MakePictureKernel(device, "PICTURE_NEAREST", word, word));
  const uint64_t elements = U(out.count * out.picture());
  return PlannedRun{
      [=](const RunArgs& run) {
        Words words;
        words.Add(run.inputs[0]).Add(run.outputs[0]);
        words.Add(y.first.get()).Add(x.first.get()).Add(elements);
        words.Add(U(in.row())).Add(U(out.row()));
        words.Add(U(in.picture())).Add(U(out.picture())).Add(U(in.channels));
        return kernel.Launch(run.stream, GridFor(elements), words);
      },
      {kernel.hold()}};
}

absl::StatusOr<PlannedRun> PlanLinear(CudaDevice* device, DType dtype,
                                      const PictureShape& in,
                                      const PictureShape& out, Axis y, Axis x) {
  const std::string_view type = StorageType(dtype);
  WEIR_ASSIGN_OR_RETURN(
      GeneratedKernel rows,
      MakePictureKernel(device, "PICTURE_ROWS", type, "float"));
  WEIR_ASSIGN_OR_RETURN(
      GeneratedKernel columns,
      MakePictureKernel(device, "PICTURE_COLUMNS", "float", type));
  // Between the passes: as high as the output, as wide as the input.
  const uint64_t middle_picture = U(out.height * in.row());
  const uint64_t middle = U(in.count) * middle_picture;
  const uint64_t elements = U(out.count * out.picture());
  PlannedRun planned;
  planned.scratch_bytes = middle * sizeof(float);
  planned.launches = 2;
  planned.shared_holds = {rows.hold(), columns.hold()};
  planned.run = [=](const RunArgs& run) -> absl::Status {
    Words words;
    words.Add(run.inputs[0]).Add(run.scratch);
    words.Add(y.first.get()).Add(y.weights.get()).Add(y.taps).Add(middle);
    words.Add(U(in.row())).Add(U(in.row()));
    words.Add(U(in.picture())).Add(middle_picture).Add(U(in.channels));
    WEIR_RETURN_IF_ERROR(rows.Launch(run.stream, GridFor(middle), words));
    Words across;
    across.Add(run.scratch).Add(run.outputs[0]);
    across.Add(x.first.get()).Add(x.weights.get()).Add(x.taps).Add(elements);
    across.Add(U(in.row())).Add(U(out.row()));
    across.Add(middle_picture).Add(U(out.picture())).Add(U(in.channels));
    return columns.Launch(run.stream, GridFor(elements), across);
  };
  return planned;
}

absl::StatusOr<PlanFunction> CompileResize(const NodeInfo& node,
                                           CudaDevice* device) {
  return PlanFunction([node, device](
                          const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
    const PictureShape in = PictureShapeOf(args.inputs[0].dims);
    const PictureShape out = PictureShapeOf(args.outputs[0].dims);
    if (args.outputs[0].elements == 0) {
      return PlannedRun{[](const RunArgs&) { return absl::OkStatus(); }};
    }
    WEIR_ASSIGN_OR_RETURN(const image::ResizeGeometry geometry,
                          ResizeGeometryOf(node, in.height, in.width));
    WEIR_ASSIGN_OR_RETURN(const image::ResizeFilter filter,
                          ResizeFilterOf(node));
    WEIR_ASSIGN_OR_RETURN(Axis y, UploadAxis(device, geometry.y, filter));
    WEIR_ASSIGN_OR_RETURN(Axis x, UploadAxis(device, geometry.x, filter));
    const DType dtype = args.inputs[0].dtype;
    const size_t held = y.bytes + x.bytes;
    auto planned =
        filter.interpolation == image::Interpolation::kNearest
            ? PlanNearest(device, dtype, in, out, std::move(y), std::move(x))
            : PlanLinear(device, dtype, in, out, std::move(y), std::move(x));
    if (planned.ok()) planned->held_bytes = held;
    return planned;
  });
}

// All that there is between the passes.
int64_t ResizeScratch(const NodeInfo& node, const PlanArgs& args) {
  const auto filter = ResizeFilterOf(node);
  if (!filter.ok() || filter->interpolation == image::Interpolation::kNearest) {
    return 0;
  }
  const PictureShape in = PictureShapeOf(args.inputs[0].dims);
  const PictureShape out = PictureShapeOf(args.outputs[0].dims);
  if (args.outputs[0].elements == 0) return 0;
  return SaturatingMul(SaturatingMul(in.count * out.height, in.row()),
                       sizeof(float));
}

// -- Crop, Flip ---------------------------------------------------------------

absl::StatusOr<PlanFunction> CompileCrop(const NodeInfo& node,
                                         CudaDevice* device) {
  return PlanFunction([node, device](
                          const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
    const PictureShape in = PictureShapeOf(args.inputs[0].dims);
    const PictureShape out = PictureShapeOf(args.outputs[0].dims);
    WEIR_ASSIGN_OR_RETURN(const CropWindow window,
                          CropWindowOf(node, in.height, in.width));
    ElementwiseSpec spec;
    spec.expression = "x0";
    spec.moves = true;
    spec.output = args.outputs[0].dtype;
    spec.dims = {out.count, out.height, out.width, out.channels};
    spec.inputs = {{spec.output,
                    {in.picture(), in.row(), in.channels, 1},
                    window.y.begin * in.row() + window.x.begin * in.channels}};
    WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const ElementwiseLoop> loop,
                          ElementwiseLoop::Make(device, spec));
    return PlannedRun{[loop](const RunArgs& run) {
                        return loop->Run(run.stream, run.inputs, run.outputs[0],
                                         run.node_index);
                      },
                      {loop->hold()}};
  });
}

// What the kernel takes of a flag.
void AddFlags(const FlipFlags& flags, const RunArgs& run, Words* words) {
  const FlipFlag* const both[] = {&flags.horizontal, &flags.vertical};
  for (const FlipFlag* flag : both) words->Add(flag->value ? 1 : 0);
  for (const FlipFlag* flag : both) {
    words->Add(flag->input == 0 ? nullptr : run.inputs[flag->input]);
  }
  for (const FlipFlag* flag : both) {
    words->Add(uint64_t{flag->input == 0 ? 1 : SizeOf(flag->dtype)});
  }
  for (const FlipFlag* flag : both) {
    words->Add(uint64_t{flag->per_picture ? 1u : 0u});
  }
}

absl::StatusOr<PlanFunction> CompileFlip(const NodeInfo& node,
                                         CudaDevice* device) {
  return PlanFunction([node, device](
                          const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
    const PictureShape shape = PictureShapeOf(args.inputs[0].dims);
    const std::string_view word = WordType(SizeOf(args.inputs[0].dtype));
    WEIR_ASSIGN_OR_RETURN(
        GeneratedKernel kernel,
        MakePictureKernel(device, "PICTURE_FLIP", word, word));
    const FlipFlags flags = FlipFlagsOf(node, args);
    const uint64_t elements = U(shape.count * shape.picture());
    return PlannedRun{
        [=](const RunArgs& run) {
          if (elements == 0) return absl::OkStatus();
          Words words;
          words.Add(run.inputs[0]).Add(run.outputs[0]).Add(elements);
          words.Add(U(shape.height)).Add(U(shape.width)).Add(U(shape.channels));
          AddFlags(flags, run, &words);
          return kernel.Launch(run.stream, GridFor(elements), words);
        },
        {kernel.hold()}};
  });
}

// -- Normalize ----------------------------------------------------------------

absl::StatusOr<PlanFunction> CompileNormalize(const NodeInfo& node,
                                              CudaDevice* device) {
  return PlanFunction([node, device](
                          const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
    const PictureShape shape = PictureShapeOf(args.inputs[0].dims);
    WEIR_ASSIGN_OR_RETURN(const NormalizeSettings settings,
                          NormalizeSettingsOf(node, shape.channels));
    std::vector<float> means, factors;
    for (size_t c = 0; c < static_cast<size_t>(shape.channels); ++c) {
      means.push_back(settings.mean[settings.mean.size() == 1 ? 0 : c]);
      factors.push_back(settings.scale /
                        settings.stddev[settings.stddev.size() == 1 ? 0 : c]);
    }
    WEIR_ASSIGN_OR_RETURN(
        std::shared_ptr<const void> mean,
        device->Upload(means.data(), means.size() * sizeof(float)));
    WEIR_ASSIGN_OR_RETURN(
        std::shared_ptr<const void> factor,
        device->Upload(factors.data(), factors.size() * sizeof(float)));
    WEIR_ASSIGN_OR_RETURN(GeneratedKernel kernel,
                          MakePictureKernel(device, "PICTURE_NORMALIZE",
                                            StorageType(args.inputs[0].dtype),
                                            StorageType(settings.dtype)));
    const uint64_t elements = U(shape.count * shape.picture());
    const uint64_t pixels = U(shape.height * shape.width);
    const double shift = static_cast<double>(settings.shift);
    PlannedRun planned;
    planned.held_bytes = (means.size() + factors.size()) * sizeof(float);
    planned.shared_holds = {kernel.hold()};
    planned.run = [=, planes = settings.planes,
                   channels = U(shape.channels)](const RunArgs& run) {
      if (elements == 0) return absl::OkStatus();
      Words words;
      words.Add(run.inputs[0]).Add(run.outputs[0]).Add(elements);
      words.Add(pixels).Add(channels).Add(planes ? 1 : 0);
      words.Add(mean.get()).Add(factor.get()).Add(shift);
      return kernel.Launch(run.stream, GridFor(elements), words);
    };
    return planned;
  });
}

}  // namespace

absl::Status RegisterPicture(OpRegistry& registry) {
  WEIR_RETURN_IF_ERROR(RegisterNode(registry, "weir", "Resize", CompileResize,
                                    {.scratch_bytes = ResizeScratch}));
  WEIR_RETURN_IF_ERROR(RegisterNode(registry, "weir", "Crop", CompileCrop));
  WEIR_RETURN_IF_ERROR(RegisterNode(registry, "weir", "Flip", CompileFlip));
  return RegisterNode(registry, "weir", "Normalize", CompileNormalize,
                      {.scratch_bytes = NoScratch});
}

}  // namespace weir::cuda
