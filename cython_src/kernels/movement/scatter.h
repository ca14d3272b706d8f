/* Updates of a tensor at places that indices name, in order. */

/* Joins an update to what is there. */
#define SCATTER_ONE(SUFFIX, T)                                                                    \
    static RLX_INLINE void scatter_one_##SUFFIX(T *to, T v, int64_t reduction)                    \
    {                                                                                             \
        switch (reduction) {                                                                      \
        case RLX_REDUCTION_NONE: *to = v; break;                                                  \
        case RLX_REDUCTION_ADD: *to = (T)(*to + v); break;                                        \
        case RLX_REDUCTION_MUL: *to = (T)(*to * v); break;                                        \
        case RLX_REDUCTION_MIN: *to = *to < v || *to != *to ? *to : v; break;                     \
        default: *to = *to > v || *to != *to ? *to : v; break;                                    \
        }                                                                                         \
    }                                                                                             \
    /* Neighbouring lines that one index updates. */                                              \
    static RLX_INLINE void scatter_run_##SUFFIX(T *to, const T *v, int64_t n, int64_t step, int64_t from, \
                                                int64_t reduction)                                \
    {                                                                                             \
        if (step == 1 && from == 1 && reduction == RLX_REDUCTION_NONE)                            \
            copy_bytes((char *)to, (const char *)v, n * (int64_t)sizeof(T));                      \
        else if (step == 1 && from == 1)                                                          \
            for (int64_t j = 0; j < n; j++) scatter_one_##SUFFIX(to + j, v[j], reduction);        \
        else                                                                                      \
            for (int64_t j = 0; j < n; j++) scatter_one_##SUFFIX(to + j * step, v[j * from], reduction); \
    }                                                                                             \
    /* All updates of n neighbouring lines, whose first is at these places. An update comes before the next one of its \
       line: either line after line, or update after update where the indices of a line are apart. */ \
    static RLX_INLINE int scatter_lines_##SUFFIX(T *y, const T *updates, const void *index, int64_t which, int64_t n, \
                                                 int shared, const rlx_scatter *p, int64_t reduction) \
    {                                                                                             \
        const int64_t last = p->rank - 1, step = last < 0 ? 0 : p->data_steps[last];              \
        const int64_t from = last < 0 ? 0 : p->update_steps[last], next = last < 0 ? 0 : p->index_steps[last]; \
        const int by_update = shared || next == 1;                                                \
        const int64_t outer = by_update ? 1 : n, lines = by_update ? n : 1;                       \
        for (int64_t i = 0; i < outer; i++)                                                       \
            for (int64_t u = p->start; u < p->stop; u++)                                          \
                for (int64_t j = i; j < i + lines; j++) {                                         \
                    const int64_t place = index_offset(index, which + j * next + u * p->index_step, p->index_bytes, \
                                                       p->depth, p->sizes, p->axis_steps);        \
                    if (place < 0) return RLX_OUT_OF_RANGE;                                 \
                    const T *v = updates + j * from + u * p->update_step;                         \
                    T *to = y + j * step + place;                                                 \
                    if (!shared || n == 1) {                                                      \
                        scatter_one_##SUFFIX(to, *v, reduction);                                  \
                    } else {                                                                      \
                        scatter_run_##SUFFIX(to, v, n, step, from, reduction);                    \
                        break;                                                                    \
                    }                                                                             \
                }                                                                                 \
        return RLX_OK;                                                                            \
    }

/* The result holds a copy of the data when the call begins. */
#define SCATTER(SUFFIX, T)                                                                        \
    SCATTER_ONE(SUFFIX, T)                                                                        \
    static int kernel_scatter_##SUFFIX(const rlx_call *call)                                      \
    {                                                                                             \
        RLX_ARGUMENTS(scatter, call);                                                             \
        const int64_t last = p->rank - 1, length = last < 0 ? 1 : p->dims[last];                  \
        int shared = 1;                                                                           \
        for (int64_t d = 0; d <= last; d++) shared &= p->index_steps[d] == 0;                     \
        const rlx_range own = rlx_share(call, p->lines, 64);                                      \
        for (int64_t line = own.first, n; line < own.last; line += n) {                           \
            const int64_t c = line % length;                                                      \
            int64_t rest = line / length, position = 0, which = 0, source = 0;                    \
            n = own.last - line < length - c ? own.last - line : length - c;                      \
            if (last >= 0) position = c * p->data_steps[last], which = c * p->index_steps[last], source = c * p->update_steps[last]; \
            for (int64_t d = last - 1; d >= 0; d--) {                                             \
                const int64_t k = rest % p->dims[d];                                              \
                position += k * p->data_steps[d], which += k * p->index_steps[d];                 \
                source += k * p->update_steps[d], rest /= p->dims[d];                             \
            }                                                                                     \
            T *y = (T *)out->y + position;                                                        \
            const T *updates = (const T *)in->updates + source;                                   \
            const int status = p->reduction == RLX_REDUCTION_NONE                                 \
                ? scatter_lines_##SUFFIX(y, updates, in->index, which, n, shared, p, RLX_REDUCTION_NONE) \
                : scatter_lines_##SUFFIX(y, updates, in->index, which, n, shared, p, p->reduction); \
            if (status) return status;                                                            \
        }                                                                                         \
        return RLX_OK;                                                                            \
    }
SCATTER(f32, float)
SCATTER(f64, double)
SCATTER(i32, int32_t)
SCATTER(u32, uint32_t)
SCATTER(i64, int64_t)
SCATTER(bool, uint8_t)
#undef SCATTER
#undef SCATTER_ONE
