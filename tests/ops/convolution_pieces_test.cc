// How convolutions are cut, without the library that computes the pieces.
#include "kernels/ops/convolution_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "kernels/ops/convolution_spec.h"

namespace weir::onednn {
namespace {

// As convolutions round.
int64_t OutOf(int64_t in, int64_t before, int64_t after, int64_t kernel,
              int64_t stride, int64_t dilation) {
  const int64_t reach = (kernel - 1) * dilation + 1;
  return (in + before + after - reach) / stride + 1;
}

ConvolutionSpec Square(int64_t channels, int64_t side, int64_t kernel,
                       int64_t out_channels) {
  ConvolutionSpec spec;
  spec.in_channels = channels;
  spec.out_channels = out_channels;
  spec.in = {side, side, 1};
  spec.kernel = {kernel, kernel, 1};
  const int64_t pad = kernel / 2;
  spec.pad_begin = {pad, pad, 0};
  spec.out = {OutOf(side, pad, pad, kernel, 1, 1),
              OutOf(side, pad, pad, kernel, 1, 1), 1};
  return spec;
}

double ProductsOfPiece(const ConvolutionPieces& pieces, const Band& band) {
  const ConvolutionSpec& spec = pieces.spec;
  return static_cast<double>(band.out_rows * pieces.RowPixels(spec.out)) *
         static_cast<double>(pieces.SliceWeights());
}

// Every row of the output is in one band, with all the rows that it reads.
void ExpectWhole(const ConvolutionPieces& pieces) {
  const ConvolutionSpec& spec = pieces.spec;
  const size_t axis = pieces.axis;
  int64_t next = 0;
  for (const Band& band : pieces.bands) {
    ASSERT_EQ(band.out_begin, next);
    ASSERT_GT(band.out_rows, 0);
    next += band.out_rows;
    int64_t reads = 0;
    for (int64_t row = band.out_begin; row < next; ++row) {
      for (int64_t tap = 0; tap < spec.kernel[axis]; ++tap) {
        const int64_t from = row * spec.stride[axis] +
                             tap * spec.dilation[axis] - spec.pad_begin[axis];
        if (from < 0 || from >= spec.in[axis]) continue;
        ++reads;
        ASSERT_GE(from, band.in_begin);
        ASSERT_LT(from, band.in_begin + band.in_rows);
      }
    }
    if (band.in_rows == 0) {
      EXPECT_EQ(reads, 0);
      continue;
    }
    EXPECT_GE(band.pad_begin, 0);
    const ConvolutionPieces::Extent along = pieces.Along(band, axis);
    const int64_t reach = (spec.kernel[axis] - 1) * spec.dilation[axis] + 1;
    EXPECT_EQ(
        (along.in + along.before + along.after - reach) / spec.stride[axis] + 1,
        band.out_rows);
  }
  EXPECT_EQ(next, spec.out[axis]);
  EXPECT_EQ(pieces.SliceChannels() * pieces.slices, spec.out_channels);
}

TEST(ConvolutionPiecesTest, EveryRowIsInOneBandWithAllThatItReads) {
  std::mt19937 random(1);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int i = 0; i < 3000; ++i) {
    ConvolutionSpec spec;
    spec.groups = draw(1, 3);
    spec.in_channels = spec.groups * draw(1, 80);
    spec.out_channels = spec.groups * (draw(0, 1) == 0 ? 128 : draw(1, 300));
    spec.channels_last = draw(0, 1) == 1;
    for (size_t axis = 0; axis < 2; ++axis) {
      spec.kernel[axis] = draw(1, 5);
      spec.stride[axis] = draw(1, 3);
      spec.dilation[axis] = draw(1, 3);
      spec.pad_begin[axis] = draw(0, 20);
      const int64_t after = draw(0, 20);
      const int64_t reach = (spec.kernel[axis] - 1) * spec.dilation[axis] + 1;
      const int64_t least = reach - spec.pad_begin[axis] - after;
      spec.in[axis] = draw(std::max<int64_t>(1, least), 90 + reach);
      spec.out[axis] =
          OutOf(spec.in[axis], spec.pad_begin[axis], after, spec.kernel[axis],
                spec.stride[axis], spec.dilation[axis]);
    }
    const auto pieces = ConvolutionPieces::Cut(spec);
    ASSERT_TRUE(pieces.has_value());
    SCOPED_TRACE(i);
    ExpectWhole(*pieces);
    if (HasFatalFailure()) return;
  }
}

TEST(ConvolutionPiecesTest, WhatIsLargeIsCutAndWhatIsSmallIsNot) {
  const auto small = ConvolutionPieces::Cut(Square(3, 8, 3, 4));
  ASSERT_TRUE(small.has_value());
  EXPECT_EQ(small->Pieces(), 1);
  const auto usual = ConvolutionPieces::Cut(Square(64, 56, 3, 64));
  ASSERT_TRUE(usual.has_value());
  EXPECT_GT(usual->Pieces(), 1);
  EXPECT_LE(usual->Pieces(), 16);
  // Many weights of few pixels: by channels.
  const auto deep = ConvolutionPieces::Cut(Square(512, 7, 3, 512));
  ASSERT_TRUE(deep.has_value());
  EXPECT_GT(deep->slices, 1);
  EXPECT_EQ(deep->bands.size(), 1u);
}

// A call of the library is not asked within.
TEST(ConvolutionPiecesTest, NoCallLastsForSeconds) {
  const auto pieces = ConvolutionPieces::Cut(Square(1024, 224, 3, 1024));
  ASSERT_TRUE(pieces.has_value());
  for (const Band& band : pieces->bands) {
    EXPECT_LE(ProductsOfPiece(*pieces, band), kMostProducts);
  }
  ExpectWhole(*pieces);
  // A sum that cannot be cut.
  ConvolutionSpec spec = Square(3 << 18, 1, 1, 3 << 18);
  spec.groups = 3;
  EXPECT_FALSE(ConvolutionPieces::Cut(spec).has_value());
  // Few products, but a row under many taps takes as long to prepare.
  spec = Square(1, 3148, 1101, 1);
  spec.pad_begin = {};
  spec.out = {2048, 2048, 1};
  EXPECT_FALSE(ConvolutionPieces::Cut(spec).has_value());
  spec = Square(1, 1612, 1101, 1);
  spec.pad_begin = {};
  spec.out = {512, 512, 1};
  EXPECT_TRUE(ConvolutionPieces::Cut(spec).has_value());
}

// A row that makes much code is cut too, and the last band may differ.
TEST(ConvolutionPiecesTest, LongRowsAreCutIntoFewShapes) {
  ConvolutionSpec spec;
  spec.in_channels = spec.out_channels = 16;
  spec.in = {1, 100'000, 1};
  spec.kernel = {1, 3, 1};
  spec.pad_begin = {0, 1, 0};
  spec.out = {1, 100'000, 1};
  auto pieces = ConvolutionPieces::Cut(spec);
  ASSERT_TRUE(pieces.has_value());
  EXPECT_EQ(pieces->axis, 1u);
  EXPECT_GT(pieces->bands.size(), 100u);
  ExpectWhole(*pieces);
  const std::vector<Band> shapes = pieces->ShareShapes();
  EXPECT_LE(shapes.size(), 3u);  // the first, the last, and the others
  for (const Band& band : pieces->bands) {
    const Band& shape = shapes[band.primitive];
    EXPECT_EQ(band.out_rows, shape.out_rows);
    EXPECT_EQ(band.in_rows, shape.in_rows);
    EXPECT_EQ(band.pad_begin, shape.pad_begin);
  }
  double kept = 0;
  for (const Band& shape : shapes) kept += pieces->MostBytes(shape, true);
  EXPECT_LT(kept, kMostKeptBytes);
}

TEST(ConvolutionPiecesTest, RowsAreNotTrustedBesideMuchPadding) {
  ConvolutionSpec spec = Square(8, 9, 7, 8);
  auto near = ConvolutionPieces::Cut(spec);
  ASSERT_TRUE(near.has_value());
  EXPECT_TRUE(near->TrustsRows(near->bands[0]));
  spec.out[1] += 1;  // 4 columns behind the row
  auto far = ConvolutionPieces::Cut(spec);
  ASSERT_TRUE(far.has_value());
  EXPECT_FALSE(far->TrustsRows(far->bands[0]));
}

TEST(ConvolutionPiecesTest, EstimatesGrowWithWhatCodeIsMadeFor) {
  const RowShape row = {
      .columns = 100, .copied = 102, .channels = 16, .taps = 9};
  RowShape other = row;
  other.columns = 200;
  EXPECT_GT(RowBytes(other), RowBytes(row));
  other = row;
  other.pads = other.pads_far = true;
  EXPECT_GT(RowBytes(other), RowBytes(row));
  EXPECT_GT(TapsBytes(100), TapsBytes(1));
}

}  // namespace
}  // namespace weir::onednn
