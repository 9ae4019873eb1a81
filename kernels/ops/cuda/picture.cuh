// Resize, Crop, Flip and Normalize on HWC pictures. Defines given before this
// text: S_IN and S_OUT, and one of
//   PICTURE_ROWS      the vertical pass of Resize: S_IN to float
//   PICTURE_COLUMNS   its horizontal pass: float to S_OUT
//   PICTURE_NEAREST   Resize by the nearest pixel; E is the word of an
//                     element's size
//   PICTURE_NORMALIZE (x - mean) * factor + shift per channel
//   PICTURE_FLIP      mirrored pictures; E is the word of an element's size
//   PICTURE_ORIENT    a decoded picture turned upright
// Tables are those of MakeAxisWeights, one per axis; what has a weight of 0 may
// be infinite or NaN.
namespace weir {

__device__ __forceinline__ void Put(float* out, float value) { *out = value; }
__device__ __forceinline__ void Put(uint8_t* out, float value) {
  *out = value > 0 ? static_cast<uint8_t>(fminf(value + 0.5f, 255.0f)) : 0;
}

#if defined(PICTURE_ROWS) || defined(PICTURE_COLUMNS)
struct Args {
  const S_IN* in;
  S_OUT* out;
  const int64_t* first;
  const float* weights;
  uint64_t taps;
  uint64_t elements;         // of the output
  uint64_t in_row, out_row;  // elements of a row
  uint64_t in_picture, out_picture;
  uint64_t channels;
};
#endif

#if defined(PICTURE_ROWS)
// out[p, y, i] = sum of weights[y, t] * in[p, first[y] + t, i]
extern "C" __global__ void __launch_bounds__(256)
    weir_kernel(const __grid_constant__ Args a) {
  const uint64_t i = GlobalThread();
  if (i >= a.elements) return;
  const uint64_t picture = i / a.out_picture;
  const uint64_t rest = i - picture * a.out_picture;
  const uint64_t y = rest / a.out_row;
  const S_IN* in = a.in + picture * a.in_picture +
                   static_cast<uint64_t>(a.first[y]) * a.in_row +
                   (rest - y * a.out_row);
  const float* weights = a.weights + y * a.taps;
  float sum = 0;
  for (uint64_t t = 0; t < a.taps; ++t) {
    if (weights[t] == 0) continue;
    sum = fmaf(weights[t], static_cast<float>(in[t * a.in_row]), sum);
  }
  a.out[i] = sum;
}
#elif defined(PICTURE_COLUMNS)
// out[p, y, x, c] = sum of weights[x, t] * in[p, y, first[x] + t, c]
extern "C" __global__ void __launch_bounds__(256)
    weir_kernel(const __grid_constant__ Args a) {
  const uint64_t i = GlobalThread();
  if (i >= a.elements) return;
  const uint64_t picture = i / a.out_picture;
  const uint64_t rest = i - picture * a.out_picture;
  const uint64_t y = rest / a.out_row;
  const uint64_t column = rest - y * a.out_row;
  const uint64_t x = column / a.channels;
  const uint64_t c = column - x * a.channels;
  const S_IN* in = a.in + picture * a.in_picture + y * a.in_row +
                   static_cast<uint64_t>(a.first[x]) * a.channels + c;
  const float* weights = a.weights + x * a.taps;
  float sum = 0;
  for (uint64_t t = 0; t < a.taps; ++t) {
    if (weights[t] == 0) continue;
    sum = fmaf(weights[t], in[t * a.channels], sum);
  }
  Put(&a.out[i], sum);
}
#elif defined(PICTURE_NEAREST)
struct Args {
  const E* in;
  E* out;
  const int64_t* first_y;
  const int64_t* first_x;
  uint64_t elements;
  uint64_t in_row, out_row;
  uint64_t in_picture, out_picture;
  uint64_t channels;
};
extern "C" __global__ void __launch_bounds__(256)
    weir_kernel(const __grid_constant__ Args a) {
  const uint64_t i = GlobalThread();
  if (i >= a.elements) return;
  const uint64_t picture = i / a.out_picture;
  const uint64_t rest = i - picture * a.out_picture;
  const uint64_t y = rest / a.out_row;
  const uint64_t column = rest - y * a.out_row;
  const uint64_t x = column / a.channels;
  const uint64_t c = column - x * a.channels;
  a.out[i] = a.in[picture * a.in_picture +
                  static_cast<uint64_t>(a.first_y[y]) * a.in_row +
                  static_cast<uint64_t>(a.first_x[x]) * a.channels + c];
}
#elif defined(PICTURE_NORMALIZE)
struct Args {
  const S_IN* in;
  S_OUT* out;
  uint64_t elements;
  uint64_t pixels;  // of one picture
  uint64_t channels;
  uint64_t planes;
  const float* means;  // one per channel
  const float* factors;
  double shift;
};
__device__ __forceinline__ void PutNormalized(float* out, float v) { *out = v; }
__device__ __forceinline__ void PutNormalized(Float16* out, float v) {
  *out = Store<Float16>(v);
}
__device__ __forceinline__ void PutNormalized(Bfloat16* out, float v) {
  *out = Store<Bfloat16>(v);
}
__device__ __forceinline__ void PutNormalized(uint8_t* out, float v) {
  *out = scalar::Convert<uint8_t>(roundf(v));
}
__device__ __forceinline__ void PutNormalized(int8_t* out, float v) {
  *out = scalar::Convert<int8_t>(roundf(v));
}
// Threads follow the output, which is the side written in full.
extern "C" __global__ void __launch_bounds__(256)
    weir_kernel(const __grid_constant__ Args a) {
  const uint64_t i = GlobalThread();
  if (i >= a.elements) return;
  uint64_t from = i;
  uint64_t channel;
  if (a.planes) {
    const uint64_t plane = i / a.pixels;
    const uint64_t pixel = i - plane * a.pixels;
    const uint64_t picture = plane / a.channels;
    channel = plane - picture * a.channels;
    from = (picture * a.pixels + pixel) * a.channels + channel;
  } else {
    channel = i % a.channels;
  }
  PutNormalized(&a.out[i],
                fmaf(static_cast<float>(a.in[from]) - a.means[channel],
                     a.factors[channel], static_cast<float>(a.shift)));
}
#elif defined(PICTURE_FLIP)
// A flag is `horizontal`/`vertical`, unless its tensor is given.
struct Args {
  const E* in;
  E* out;
  uint64_t elements;
  uint64_t height, width, channels;
  uint64_t horizontal, vertical;
  const void* horizontal_flags;
  const void* vertical_flags;
  uint64_t horizontal_size, vertical_size;  // bytes of a flag
  uint64_t horizontal_step, vertical_step;  // 0: one for all pictures
};
__device__ __forceinline__ bool Flag(const void* flags, uint64_t size,
                                     uint64_t at, uint64_t value) {
  if (flags == nullptr) return value != 0;
  return size == 1 ? static_cast<const uint8_t*>(flags)[at] != 0
                   : static_cast<const int32_t*>(flags)[at] != 0;
}
extern "C" __global__ void __launch_bounds__(256)
    weir_kernel(const __grid_constant__ Args a) {
  const uint64_t i = GlobalThread();
  if (i >= a.elements) return;
  uint64_t rest = i / a.channels;
  const uint64_t c = i - rest * a.channels;
  uint64_t q = rest / a.width;
  uint64_t x = rest - q * a.width;
  const uint64_t picture = q / a.height;
  uint64_t y = q - picture * a.height;
  if (Flag(a.horizontal_flags, a.horizontal_size, picture * a.horizontal_step,
           a.horizontal)) {
    x = a.width - 1 - x;
  }
  if (Flag(a.vertical_flags, a.vertical_size, picture * a.vertical_step,
           a.vertical)) {
    y = a.height - 1 - y;
  }
  a.out[i] = a.in[((picture * a.height + y) * a.width + x) * a.channels + c];
}
#elif defined(PICTURE_ORIENT)
// Pixel (x, y) of the stored RGB picture goes to
// start + y * step_y + x * step_x.
struct Args {
  const uint8_t* in;
  uint8_t* out;
  uint64_t pixels;
  uint64_t width;
  int64_t start, step_x, step_y;
};
extern "C" __global__ void __launch_bounds__(256)
    weir_kernel(const __grid_constant__ Args a) {
  const uint64_t i = GlobalThread();
  if (i >= a.pixels) return;
  const int64_t y = static_cast<int64_t>(i / a.width);
  const int64_t x = static_cast<int64_t>(i) - y * static_cast<int64_t>(a.width);
  const int64_t to = a.start + y * a.step_y + x * a.step_x;
  for (int c = 0; c < 3; ++c) {
    a.out[to + c] = a.in[i * 3 + static_cast<uint64_t>(c)];
  }
}
#endif

}  // namespace weir
