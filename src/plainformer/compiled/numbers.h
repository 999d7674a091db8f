/* Numbers as tensors hold them: float32, bfloat16 (16 bits, the upper half of a float32), int8. */
#include <stdint.h>
#include <string.h>

enum { FLOAT32, BFLOAT16, INT8 };

typedef uint16_t bfloat16;

static inline float wide(bfloat16 x) {
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

static inline bfloat16 narrow(float x) { /* to the nearest, ties to even; what is no number stays none */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t near = bits + 0x7fff + ((bits >> 16) & 1), none = bits | 0x400000;
    return (bfloat16)(((bits & 0x7fffffff) > 0x7f800000 ? none : near) >> 16);
}

static inline void put(void *y, long at, float value, int kind) {
    if (kind == BFLOAT16) ((bfloat16 *)y)[at] = narrow(value);
    else ((float *)y)[at] = value;
}
