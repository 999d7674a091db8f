/* exp and what is made of it, by additions and products alone, so that compilers do several at once. Polynomials are
   least-squares fits in Chebyshev's points, made with NumPy. */

/* e^x within 2e-7 of itself from -87 to 88; beyond, what it is there. What is no number stays none. */
static inline float exp_of(float x) {
    x = x < -87 ? -87 : x > 88 ? 88 : x;
    float shifted = x * 1.44269504f + 12582912.f; /* 1.5 * 2^23: what is added is rounded to a whole number */
    float n = shifted - 12582912.f;
    float r = x - n * 0.693359375f + n * 2.12194440e-4f; /* x - n ln 2, ln 2 in two parts */
    float y = 0.00139497826f;
    y = y * r + 0.00837597065f;
    y = y * r + 0.0416661985f;
    y = y * r + 0.166664049f;
    y = y * r + 0.5f;
    y = y * r + 1;
    y = y * r + 1;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits - 0x4b400000u + 127) << 23; /* 2^n */
    float power;
    memcpy(&power, &bits, sizeof power);
    return y * power;
}

static inline float sigmoid_of(float x) { return 1 / (1 + exp_of(-x)); }

/* 1 - erf a for a >= 0, within 6e-8: ln of it is a polynomial. */
static inline float erfc_of(float a) {
    a = a > 5 ? 5 : a;
    float p = 6.17937967e-09f;
    p = p * a - 2.15920508e-07f;
    p = p * a + 3.38339396e-06f;
    p = p * a - 3.12946322e-05f;
    p = p * a + 0.000188029793f;
    p = p * a - 0.000745562604f;
    p = p * a + 0.0017325331f;
    p = p * a - 0.000104746054f;
    p = p * a - 0.019267261f;
    p = p * a + 0.10284958f;
    p = p * a + 0.636600018f;
    p = p * a + 1.12838101f;
    return exp_of(-p * a);
}

static inline float gelu_of(float x) { /* x times the share of a normal distribution below it */
    float half = 0.5f * x * erfc_of(fabsf(x) * 0.707106781f);
    return x < 0 ? half : x - half;
}

static inline float gelu_tanh_of(float x) { /* 0.5 x (1 + tanh u) is x sigmoid(2 u) */
    return x * sigmoid_of(1.59576912f * (x + 0.044715f * x * x * x));
}

enum { RELU, RELU_SQUARED, SILU, GELU, GELU_TANH, TANH, SWIGLU_CLAMPED };

#define EACH(VALUE)                                                                                                   \
    _Pragma("omp simd") for (long i = 0; i < n; i++) {                                                                \
        float x = gate[i], times = up ? up[i] : 1;                                                                    \
        to[i] = (VALUE)*times;                                                                                        \
    }                                                                                                                 \
    break;

/* act(gate) * up, or act(gate) alone, of n numbers. */
static void activate(int name, const float *gate, const float *up, float *to, long n) {
    switch (name) {
    case RELU: EACH(x < 0 ? 0 : x)
    case RELU_SQUARED: EACH(x < 0 ? 0 : x * x)
    case SILU: EACH(x * sigmoid_of(x))
    case GELU: EACH(gelu_of(x))
    case GELU_TANH: EACH(gelu_tanh_of(x))
    case TANH: for (long i = 0; i < n; i++) to[i] = tanhf(gate[i]) * (up ? up[i] : 1); break;
    case SWIGLU_CLAMPED: /* always with a gate */
        _Pragma("omp simd") for (long i = 0; i < n; i++) {
            float x = gate[i] > 7 ? 7 : gate[i], y = up[i] > 7 ? 7 : up[i] < -7 ? -7 : up[i];
            to[i] = x * sigmoid_of(1.702f * x) * (y + 1);
        }
    }
}
