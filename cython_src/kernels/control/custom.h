/* Calls the C function of a registered operation. Parameters: function, count of sizes, sizes, numbers. */
typedef int (*custom_function)(const void *const *inputs, void *const *outputs, const int64_t *sizes,
                               const double *numbers);

static int kernel_custom(const rlx_call *call)
{
    const rlx_param *p = call->p;
    const int64_t *sizes = (const int64_t *)(p + 2);
    const double *numbers = (const double *)(p + 2 + p[1].i);
    const int status = ((custom_function)p[0].p)((const void *const *)call->in, call->out, sizes, numbers);
    return status ? RLX_CUSTOM_ERROR : RLX_OK;
}
