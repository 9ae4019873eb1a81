// weir.RandomUniform. Define given before this text: S, the storage type.
namespace weir {

struct Args {
  S* out;
  uint64_t elements;
  uint64_t row_elements;
  uint64_t seed;
  uint64_t ordinal;  // in the upper 20 bits
  uint64_t first_row;
  double low, high;
};

// Four elements of a row share one block of Philox.
extern "C" __global__ void __launch_bounds__(256)
    weir_kernel(const __grid_constant__ Args a) {
  const uint64_t i = GlobalThread();
  if (i >= a.elements) return;
  const uint64_t row = i / a.row_elements;
  const uint64_t k = i - row * a.row_elements;
  const PhiloxBlock block =
      Philox(a.seed, a.ordinal | (a.first_row + row), k / 4);
  a.out[i] = Store<S>(static_cast<Compute<S>>(
      PhiloxUniform(block.word[k % 4], static_cast<float>(a.low),
                    static_cast<float>(a.high))));
}

}  // namespace weir
