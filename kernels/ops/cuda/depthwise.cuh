// A convolution with one input channel for each filter, over up to three
// spatial dims; a channel may have several filters. Defines given before this
// text: S the storage type, INDEX an unsigned type that holds every element's
// number, CHANNELS_LAST 1 or 0, ACTIVATE(x) of a sum, in terms of T, a.low and
// a.high.
namespace weir {
using namespace scalar;

typedef Compute<S> T;

struct Args {
  const S* in;
  const S* weights;   // filters x kernel
  const S* bias;      // filters; may be null
  const S* residual;  // as `out`; may be null
  S* out;
  uint64_t elements;  // of `out`
  uint64_t channels, filters;
  int64_t in_dims[3], out_dims[3], kernel[3], stride[3], dilation[3], pad[3];
  double low, high;  // for ACTIVATE
};

extern "C" __global__ void __launch_bounds__(256)
    weir_kernel(const __grid_constant__ Args a) {
  if (GlobalThread() >= a.elements) return;
  const INDEX i = static_cast<INDEX>(GlobalThread());
  INDEX rest = i;
  const auto next = [&rest](uint64_t size) {
    const INDEX at = rest % static_cast<INDEX>(size);
    rest /= static_cast<INDEX>(size);
    return at;
  };
  int64_t first[3];
#if CHANNELS_LAST
  const INDEX filter = next(a.filters);
#endif
  for (int d = 2; d >= 0; --d) {
    first[d] =
        static_cast<int64_t>(next(a.out_dims[d])) * a.stride[d] - a.pad[d];
  }
#if !CHANNELS_LAST
  const INDEX filter = next(a.filters);
#endif
  const INDEX image = rest;
  const INDEX channel = filter / static_cast<INDEX>(a.filters / a.channels);
  const int64_t pixels = a.in_dims[0] * a.in_dims[1] * a.in_dims[2];
#if CHANNELS_LAST
  const int64_t pixel = static_cast<int64_t>(a.channels);
  const S* in = a.in + static_cast<int64_t>(image) * pixels * pixel + channel;
#else
  const int64_t pixel = 1;
  const S* in =
      a.in + (static_cast<int64_t>(image) * a.channels + channel) * pixels;
#endif
  const S* weights = a.weights + static_cast<int64_t>(filter) * a.kernel[0] *
                                     a.kernel[1] * a.kernel[2];
  T sum = T(0);
  for (int64_t k0 = 0; k0 < a.kernel[0]; ++k0) {
    const int64_t c0 = first[0] + k0 * a.dilation[0];
    if (c0 < 0 || c0 >= a.in_dims[0]) continue;
    for (int64_t k1 = 0; k1 < a.kernel[1]; ++k1) {
      const int64_t c1 = first[1] + k1 * a.dilation[1];
      if (c1 < 0 || c1 >= a.in_dims[1]) continue;
      for (int64_t k2 = 0; k2 < a.kernel[2]; ++k2) {
        const int64_t c2 = first[2] + k2 * a.dilation[2];
        if (c2 < 0 || c2 >= a.in_dims[2]) continue;
        sum +=
            Load(in[((c0 * a.in_dims[1] + c1) * a.in_dims[2] + c2) * pixel]) *
            Load(weights[(k0 * a.kernel[1] + k1) * a.kernel[2] + k2]);
      }
    }
  }
  if (a.bias != nullptr) sum += Load(a.bias[filter]);
  if (a.residual != nullptr) sum += Load(a.residual[i]);
  a.out[i] = Store<S>(ACTIVATE(sum));
}

}  // namespace weir
