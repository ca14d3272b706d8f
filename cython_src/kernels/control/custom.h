/* Calls the C function of a registered operation, whose arithmetic keeps subnormal numbers. */
typedef int (*custom_function)(const void *const *inputs, void *const *outputs, const int64_t *sizes,
                               const double *numbers);

static int kernel_custom(const rlx_call *call)
{
    RLX_ARGUMENTS(custom, call);
    const rlx_floats before = rlx_floats_enter(RLX_FLOATS_IEEE);
    const int status = ((custom_function)p->function)((const void *const *)call->in, call->out, p->sizes, p->numbers);
    rlx_floats_set(before);
    return status ? RLX_CUSTOM_ERROR : RLX_OK;
}
