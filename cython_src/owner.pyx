"""The rule that one call at a time uses a graph: another thread's call, or one from inside it, is refused."""

from libc.stdint cimport uintptr_t

cimport cython

from rlx.errors import BusyError, InputError, describe


cdef extern from "owner.h" nogil:
    ctypedef struct rlx_owner:
        uintptr_t holder
    const uintptr_t RLX_ME
    const uintptr_t RLX_CLOSED


@cython.final
cdef class Owner:
    """Held from the first read of a call's arguments to the last copy of its results.

    ``with owner:`` never waits. Compiled code holds it through ``address`` at the cost of two
    assignments; it is then not released by ``__exit__``.

    Args:
        what: What messages call the thing that is owned.
        hint: What a second thread should do instead.
    """

    cdef rlx_owner state
    cdef str _what
    cdef str _hint

    def __cinit__(self, str what, str hint):
        self._what, self._hint = what, hint

    @property
    def address(self):
        """Where compiled code finds the ``struct rlx_owner`` (owner.h)."""
        return <uintptr_t>&self.state

    @property
    def held(self):
        """Whether a call is under way, or the thing is closed."""
        return self.state.holder != 0

    def __enter__(self):
        if self.state.holder:
            self.refuse()
        self.state.holder = RLX_ME

    def __exit__(self, kind, value, trace):
        if self.state.holder != RLX_CLOSED:
            self.state.holder = 0

    def close(self):
        """From now on every call is refused."""
        self.state.holder = RLX_CLOSED

    def refuse(self):
        """Raises the error that says why a call can't be made now.

        Raises:
            BusyError: A call is under way.
            InputError: The thing is closed.
        """
        if self.state.holder == RLX_CLOSED:
            raise InputError(describe(f"{self._what} is closed", hint="make a new one"))
        if self.state.holder == RLX_ME:
            raise BusyError(
                describe(
                    f"{self._what} is already running, further up in this thread",
                    got="a call from a signal handler, a custom operation or __array__",
                    hint="make the call when the one that is under way has returned",
                )
            )
        raise BusyError(
            describe(f"{self._what} is already running in another thread", hint=self._hint)
        )
