#include "kernels/ops/vector_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/vector_math.cc"
#include <hwy/foreach_target.h>
// Keep this order: each target includes this file again.
#include <hwy/highway.h>
// After highway.h.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// c0 + c1 x + c2 x^2 + ...
template <class D, class V>
V Polynomial(D d, V, float c0) {
  return hn::Set(d, c0);
}
template <class D, class V, typename... Rest>
V Polynomial(D d, V x, float c0, Rest... rest) {
  return hn::MulAdd(Polynomial(d, x, rest...), x, hn::Set(d, c0));
}

// Near 0 x + x P(x^2), beyond 1 - exp(-Q(|x|)). P fits erf(x) / x - 1 on
// [0, 1] and Q fits -log(erfc(x)) on [1, 4], each with the largest error of erf
// made small: 1.2e-9 and 1.0e-9 before rounding. From 4 on the result is 1.
template <class D, class V>
V Erf(D d, V x) {
  const V t = hn::Min(hn::Abs(x), hn::Set(d, 4.0f));
  const V p = Polynomial(d, hn::Mul(t, t), 1.28379166e-1f, -3.76126258e-1f,
                         1.12835851e-1f, -2.68538119e-2f, 5.18832767e-3f,
                         -8.01019351e-4f, 7.85386096e-5f);
  const V q = Polynomial(d, t, 3.53718748e-4f, 1.12704004f, 6.38225672e-1f,
                         1.03037373e-1f, -2.18053206e-2f, 2.93960790e-3f,
                         -1.85574072e-4f);
  const V rest = hn::Exp(d, hn::Neg(q));
  const V far = hn::CopySign(hn::Sub(hn::Set(d, 1.0f), rest), x);
  const V y =
      hn::IfThenElse(hn::Lt(t, hn::Set(d, 1.0f)), hn::MulAdd(x, p, x), far);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

void ErfOfFloats(const float* x, int64_t n, float* y) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(Erf(d, hn::LoadU(d, x + i)), d, y + i);
  }
  for (; i < n; ++i) hn::StoreU(Erf(one, hn::LoadU(one, x + i)), one, y + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir {

HWY_EXPORT(ErfOfFloats);

void ErfOfFloats(const float* x, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(ErfOfFloats)(x, n, y);
}

}  // namespace weir
#endif  // HWY_ONCE
