/* Updates of a tensor at places that indices name, in order. */

/* The result holds a copy of the data when the call begins. */
#define SCATTER(SUFFIX, T)                                                                        \
    static int kernel_scatter_##SUFFIX(const rlx_call *call)                                      \
    {                                                                                             \
        RLX_ARGUMENTS(scatter, call);                                                             \
        const T *updates = in->updates;                                                           \
        T *y = out->y;                                                                            \
        for (int64_t line = 0; line < p->lines; line++) {                                         \
            int64_t rest = line, at = 0, which = 0, source = 0;                                   \
            for (int64_t d = p->rank - 1; d >= 0; d--) {                                          \
                const int64_t c = rest % p->dims[d];                                              \
                at += c * p->data_steps[d], which += c * p->index_steps[d];                   \
                source += c * p->update_steps[d];                                               \
                rest /= p->dims[d];                                                               \
            }                                                                                     \
            for (int64_t u = p->start; u < p->stop; u++) {                                        \
                const int64_t place = index_offset(in->index, which + u * p->index_step,        \
                                                   p->index_bytes, p->depth, p->sizes,            \
                                                   p->axis_steps);                              \
                if (place < 0) return RLX_INDEX_OUT_OF_RANGE;                                     \
                const T v = updates[source + u * p->update_step];                               \
                T *to = y + at + place;                                                           \
                switch (p->reduction) {                                                           \
                case RLX_REDUCTION_NONE: *to = v; break;                                          \
                case RLX_REDUCTION_ADD: *to = (T)(*to + v); break;                                \
                case RLX_REDUCTION_MUL: *to = (T)(*to * v); break;                                \
                case RLX_REDUCTION_MIN: *to = *to < v || *to != *to ? *to : v; break;             \
                default: *to = *to > v || *to != *to ? *to : v; break;                            \
                }                                                                                 \
            }                                                                                     \
        }                                                                                         \
        return RLX_OK;                                                                            \
    }
SCATTER(f32, float)
SCATTER(f64, double)
SCATTER(i32, int32_t)
SCATTER(u32, uint32_t)
SCATTER(i64, int64_t)
SCATTER(bool, uint8_t)
