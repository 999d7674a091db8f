/* A whole stack of layers for one new token a row: its steps one after another, without a word between them. What a step
   reads and writes are registers: so many float32 for each of a few rows. Only products and attention are shared between
   threads; the rest is less than it takes to wake one. */

enum { NORM, PRODUCT, TURNS, TURN, APPEND, ATTEND, ACTIVATE, ADD };

/* What a step takes from its fields, one a line:
   NORM      to = start normed in runs of b numbers, a in all; how: 0 layer, 1 rms, 2 more where the gain is added to 1
   PRODUCT   to (b) = start (a) W^T + bias; along: 1 where the next product reads the same and is taken with it
   TURNS     to = cos and sin of position * angle[i] (float64, at weight) for a pairs, times number, as kept
             in the model's dtype
   TURN      start, b numbers in a heads each, turned by `also` in place: c pairs; how: 0 halves, 1 neighbours
   APPEND    keys start, values also: into the state's slots, a heads of b and c numbers; nth: which attention's
   ATTEND    to = what queries start see: a heads, b kv heads, c numbers a key, d a value; number: scale, window: e
   ACTIVATE  to = act(start) * also, or act(start) where also is below 0: a numbers; how: which
   ADD       to = start + also, a numbers */
typedef struct {
    int what, how, kind, kind_bias, along, nth;
    long start, also, to, a, b, c, d, e;
    const void *weight, *bias;
    const float *scale;
    float number, softcap;
} Step;

typedef struct {
    void *keys, *values;
    long ring; /* how many slots a row has */
} Slots;

static void normed(const Step *s, const float *x, float *y) {
    for (long from = 0; from < s->a; from += s->b) {
        float sum = 0, squares = 0;
        long to = from + s->b;
        if (s->how % 2 == 0) {
#pragma omp simd reduction(+ : sum)
            for (long i = from; i < to; i++) sum += x[i];
        }
        float mean = sum / s->b;
#pragma omp simd reduction(+ : squares)
        for (long i = from; i < to; i++) squares += (x[i] - mean) * (x[i] - mean);
        float by = 1 / sqrtf(squares / s->b + s->number);
        for (long i = from; i < to; i++) {
            float gain = s->weight ? get(s->weight, i - from, s->kind) + (s->how >= 2) : 1;
            y[i] = (x[i] - mean) * by * gain + (s->bias ? get(s->bias, i - from, s->kind_bias) : 0);
        }
    }
}

static void turns(const Step *s, long position, int kind, float *y) {
    const double *angle = s->weight;
    for (long i = 0; i < s->a; i++) {
        float cosine = (float)(cos(position * angle[i]) * s->number), sine = (float)(sin(position * angle[i]) * s->number);
        y[i] = kind == BFLOAT16 ? wide(narrow(cosine)) : cosine;
        y[s->a + i] = kind == BFLOAT16 ? wide(narrow(sine)) : sine;
    }
}

static void turned(const Step *s, float *x, const float *by) {
    long apart = s->how ? 1 : s->c, next = s->how ? 2 : 1;
    for (long h = 0; h < s->a; h++, x += s->b)
        for (long i = 0; i < s->c; i++) {
            float *first = x + i * next, *second = first + apart, cosine = by[i], sine = by[s->c + i];
            float a = *first * cosine - *second * sine, b = *second * cosine + *first * sine;
            *first = a, *second = b;
        }
}

/* n_heads runs of `width` numbers, each into slot `at` of its head's ring. */
static void append(const float *x, void *slots, long n_heads, long width, long ring, long at, int kind) {
    for (long h = 0; h < n_heads; h++)
        for (long i = 0; i < width; i++) put(slots, (h * ring + at) * width + i, x[h * width + i], kind);
}

/* y (n_rows, n_to) of kind `kind` = what the steps leave in register `last`, from x (n_rows, n_from) in register 0.
   positions (n_rows): of the new tokens. slots: of each attention, of kind `kind`. n_floats: of all registers of a row;
   widest: the most numbers that a product reads. 0 when done, 1 when memory lacks. */
int stack(const Step *steps, long n_steps, const void *x, void *y, int kind, long n_rows, long n_from, long last,
          long n_to, const long *positions, const Slots *slots, long n_floats, long widest, int n_threads) {
    long n_scores = 0, furthest = 0;
    for (long r = 0; r < n_rows; r++) furthest = positions[r] > furthest ? positions[r] : furthest;
    for (const Step *s = steps; s < steps + n_steps; s++)
        if (s->what == ATTEND) {
            long n = s->a * ((furthest + 1 < slots[s->nth].ring ? furthest + 1 : slots[s->nth].ring) + s->c + s->d);
            n_scores = n > n_scores ? n : n_scores;
        }
    float *room = malloc((size_t)(n_rows * (n_floats + widest + n_scores)) * sizeof(float) +
                         (size_t)(n_rows * widest) * sizeof(int16_t));
    if (!room) return 1;
    float *apart = room + n_rows * n_floats, *scores = apart + n_rows * widest;
    int16_t *in_steps = (int16_t *)(scores + n_rows * n_scores);
    Rows rows;
    Products together = {.n = 0};
    for (long i = 0; i < n_rows * n_from; i++) room[i] = get(x, i, kind);
    for (const Step *s = steps; s < steps + n_steps; s++) {
        float *from = room + s->start * n_rows, *also = room + s->also * n_rows, *to = room + s->to * n_rows;
        switch (s->what) {
        case NORM:
            for (long r = 0; r < n_rows; r++) normed(s, from + r * s->a, to + r * s->a);
            break;
        case PRODUCT:
            if (!together.n) prepare(&rows, from, n_rows, s->a, s->kind, apart, in_steps);
            together.one[together.n++] =
                (Product){&rows, 1, s->kind, s->kind_bias, FLOAT32, s->weight, s->bias, s->scale, to, s->b, 0};
            if (s->along) break;
            multiply(&together, n_threads);
            together.n = 0;
            break;
        case TURNS:
            for (long r = 0; r < n_rows; r++) turns(s, positions[r], kind, to + r * 2 * s->a);
            break;
        case TURN:
            for (long r = 0; r < n_rows; r++) turned(s, from + r * s->a * s->b, also + r * 2 * s->c);
            break;
        case APPEND:
            for (long r = 0; r < n_rows; r++) {
                long ring = slots[s->nth].ring, at = positions[r] % ring, size = size_of(kind);
                char *keys = (char *)slots[s->nth].keys + r * s->a * ring * s->b * size;
                char *values = (char *)slots[s->nth].values + r * s->a * ring * s->c * size;
                append(from + r * s->a * s->b, keys, s->a, s->b, ring, at, kind);
                append(also + r * s->a * s->c, values, s->a, s->c, ring, at, kind);
            }
            break;
        case ATTEND: {
            Attention a = {.kind = kind, .kind_out = FLOAT32, .q = from, .out = to, .positions = positions};
            a.keys = slots[s->nth].keys, a.values = slots[s->nth].values, a.ring = slots[s->nth].ring;
            a.scale = s->number, a.softcap = s->softcap, a.window = s->e, a.room = scores;
            a.B = n_rows, a.H = s->a, a.G = s->b, a.K = s->c, a.J = s->d;
            a.S = furthest + 1 < a.ring ? furthest + 1 : a.ring;
            a.keys_g = a.ring * a.K, a.values_g = a.ring * a.J, a.keys_b = a.G * a.keys_g, a.values_b = a.G * a.values_g;
            look(&a, n_threads);
            break;
        }
        case ACTIVATE: activate(s->how, from, s->also < 0 ? NULL : also, to, n_rows * s->a); break;
        case ADD:
            for (long i = 0; i < n_rows * s->a; i++) to[i] = from[i] + also[i];
        }
    }
    for (long i = 0; i < n_rows * n_to; i++) put(y, i, room[last * n_rows + i], kind);
    free(room);
    return 0;
}
