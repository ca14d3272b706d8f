/* Updates of a tensor at places that indices name, in order. */

/* Parameters: rank, depth, bytes of an index, reduction, start, stop, index step, update step, lines,
   parts, places, dims[rank], data steps[rank], index steps[rank], update steps[rank], sizes[depth],
   axis steps[depth]. The output holds a copy of the data. */
#define SCATTER(SUFFIX, T)                                                                        \
    static int kernel_scatter_##SUFFIX(const rlx_call *call)                                      \
    {                                                                                             \
        const rlx_param *p = call->p;                                                             \
        const int rank = (int)p[0].i, depth = (int)p[1].i, reduction = (int)p[3].i;               \
        const int64_t bytes = p[2].i, lines = p[8].i;                                             \
        const rlx_param *dims = p + 11, *data = dims + rank, *index = data + rank;                \
        const rlx_param *update = index + rank, *sizes = update + rank, *along = sizes + depth;   \
        const T *updates = call->in[0];                                                           \
        T *y = call->out[0];                                                                      \
        for (int64_t line = 0; line < lines; line++) {                                            \
            int64_t rest = line, at = 0, which = 0, source = 0;                                   \
            for (int d = rank - 1; d >= 0; d--) {                                                 \
                const int64_t c = rest % dims[d].i;                                               \
                at += c * data[d].i, which += c * index[d].i, source += c * update[d].i;          \
                rest /= dims[d].i;                                                                \
            }                                                                                     \
            for (int64_t u = p[4].i; u < p[5].i; u++) {                                           \
                const int64_t place =                                                             \
                    index_offset(call->in[1], which + u * p[6].i, bytes, depth, sizes, along);    \
                if (place < 0) return RLX_INDEX_OUT_OF_RANGE;                                     \
                const T v = updates[source + u * p[7].i];                                         \
                T *to = y + at + place;                                                           \
                switch (reduction) {                                                              \
                case 0: *to = v; break;                                                           \
                case 1: *to = (T)(*to + v); break;                                                \
                case 2: *to = (T)(*to * v); break;                                                \
                case 3: *to = *to < v || *to != *to ? *to : v; break;                             \
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
