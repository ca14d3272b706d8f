/* Jumps: calls that change which call comes next. Parameters begin with the target. */

static int kernel_jump(const rlx_call *call)
{
    (void)call;
    return RLX_JUMP;
}

static int kernel_jump_unless(const rlx_call *call)
{
    return *(const uint8_t *)call->in[0] ? RLX_OK : RLX_JUMP;
}

/* Parameters: target, trips. The counter, the output, goes up until the trips are made. */
static int kernel_next_trip(const rlx_call *call)
{
    int64_t *counter = call->out[0];
    if (*counter >= call->p[1].i) return RLX_JUMP;
    ++*counter;
    return RLX_OK;
}
