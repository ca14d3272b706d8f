/* Jumps: calls that decide which call is next. Their parameters begin with rlx_jump_target. */

static int kernel_jump(const rlx_call *call)
{
    (void)call;
    return RLX_JUMP;
}

static int kernel_jump_unless(const rlx_call *call)
{
    RLX_ARGUMENTS(jump_unless, call);
    return *(const uint8_t *)in->condition ? RLX_OK : RLX_JUMP;
}

/* The counter goes up by one for each trip; after `trips` of them the call jumps out of the loop. */
static int kernel_next_trip(const rlx_call *call)
{
    RLX_ARGUMENTS(next_trip, call);
    int64_t *counter = out->counter;
    if (*counter >= p->trips) return RLX_JUMP;
    ++*counter;
    return RLX_OK;
}
